// Makes and changes elements. Texts are set as texts alone: what a peer has written is never HTML.

export const find = id => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Sets a text, and leaves an equal one alone: a screen reader would read it out again.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Replaces the children if their description, any JSON, has changed since the last call.
const shown = new WeakMap();
export function setChildren(element, description, build) {
  const text = JSON.stringify(description);
  if (shown.get(element) === text) return;
  shown.set(element, text);
  element.replaceChildren(...build());
}

// Leaves one child for each key, in their order, behind those without a key. Those that stay are not touched: one of
// them may have the focus, or be in a list that is open.
export function setKeyed(element, keys, build) {
  const known = new Map([...element.querySelectorAll(":scope > [data-key]")].map(child => [child.dataset.key, child]));
  for (const [key, child] of known) if (!keys.includes(key)) child.remove();
  let place = element.querySelector(":scope > [data-key]");
  for (const key of keys) {
    const child = known.get(key) ?? build(key);
    child.dataset.key = key;
    if (child === place) place = place.nextElementSibling;
    else element.insertBefore(child, place);
  }
}

// Fills a folded fieldset with boxes, by label; a new one is checked if `checked` says so. Hides an empty one.
export function setBoxes(fieldset, labels, checked, changed) {
  fieldset.closest("details").hidden = !labels.length;
  setKeyed(fieldset, labels, label => {
    const box = make("input", { type: "checkbox", value: label, checked: checked(label) });
    box.addEventListener("change", changed);
    return make("label", {}, box, ` ${label}`);
  });
}

export function checkedBoxes(fieldset) {
  return [...fieldset.querySelectorAll("input:checked")].map(box => box.value);
}
