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

// Fills a fieldset with boxes, by label; keeps those that are checked, or else takes `checked` of a new one.
export function setBoxes(fieldset, labels, checked, changed) {
  setChildren(fieldset, labels, () => {
    const before = new Map([...fieldset.querySelectorAll("input")].map(box => [box.value, box.checked]));
    const boxes = labels.map(label => {
      const box = make("input", { type: "checkbox", value: label, checked: before.get(label) ?? checked(label) });
      box.addEventListener("change", changed);
      return make("label", {}, box, ` ${label}`);
    });
    return [fieldset.querySelector("legend"), ...boxes];
  });
}

export function checkedBoxes(fieldset) {
  return [...fieldset.querySelectorAll("input:checked")].map(box => box.value);
}
