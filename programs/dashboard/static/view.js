// What an actor sees and thinks. It is asked for only while it can be seen here: otherwise no actor makes a view.

import { find, make, setChildren, setKeyed, setText } from "./elements.js";
import { moment, number, percent, whole } from "./format.js";
import { draw, line, reference } from "./plots.js";
import { drawSeveral, drawsSeveral } from "./policies.js";

const INTERVAL_MS = 1000;
const TITLES = {
  quantiles: ["fraction", "return", "Quantiles of the return of each action"],
  atoms: ["return", "probability", "Probabilities of the return of each action"],
  probabilities: ["action", "probability", "Probability of each action"],
  values: ["action", "return", "Value of each action"],
};
let isVisible = false, newest = null;

export function showActors(processes) {
  const actors = processes.filter(({ role }) => role.endsWith("actor")).map(({ title }) => title);
  find("view").hidden = !actors.length;
  setKeyed(find("watched"), actors, actor => make("option", { value: actor, textContent: actor }));
}

export function watchView(ask) {
  new IntersectionObserver(entries => { isVisible = entries.at(-1).isIntersecting; }).observe(find("view"));
  const isWatched = () => find("watch").getAttribute("aria-pressed") === "true";
  find("watch").addEventListener("click", () => find("watch").setAttribute("aria-pressed", String(!isWatched())));
  find("watched").addEventListener("change", () => { newest = null; });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => newest && drawThoughts(newest));
  const look = async () => {
    const who = find("watched").value;
    if (who && isVisible && isWatched() && !document.hidden) {
      try {
        show(await ask("/api/view", [["who", who]]));
      } catch {
        setText(find("view-problem"), "");  // the head of the page says that the dashboard is away
      }
    }
    setTimeout(look, INTERVAL_MS);
  };
  look();
}

function show({ problem, view }) {
  const waiting = newest ? "" : "Waiting for a view: an actor makes one a second while it plays and is watched.";
  setText(find("view-problem"), problem || (view ? "" : waiting));
  if (!view || view.at === newest?.at) return;
  newest = view;
  drawSeen(view);
  drawThoughts(view);
}

function drawSeen(view) {
  const { frame, numbers, step, version, at } = view;
  const canvas = find("frame");
  canvas.hidden = !frame;
  find("seen").hidden = !numbers.length;
  const when = `at its step ${whole(step)}, with weights ${whole(version)}, ${moment(at)}`;
  canvas.dataset.text = `${frame ? "Frame" : "Observation"} ${when}`;
  if (frame) drawFrame(canvas, frame);
  else listNumbers(view);
}

function drawFrame(canvas, frame) {
  const { width, height, pixels } = frame;
  const bytes = Uint8Array.from(atob(pixels), character => character.charCodeAt(0));
  const channels = bytes.length / (width * height);  // 1: grey, 3: colours
  [canvas.width, canvas.height] = [width, height];
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    const [red, green = red, blue = red] = bytes.subarray(i * channels, (i + 1) * channels);
    image.data.set([red, green, blue, 255], 4 * i);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", canvas.dataset.text);
}

// One line for each part of the observation that has a name; where none has one, for each number.
function listNumbers({ numbers, parts, more_numbers: more }) {
  let start = 0;
  const named = parts.length ? parts : numbers.map((_, i) => [String(i), 1]);
  const lines = named.map(([name, count]) => [name, numbers.slice(start, start += count).map(value => number(value)).join(", ")]);
  if (more) lines.push(["…", `${whole(more)} more numbers are not shown`]);
  find("numbers").classList.toggle("nameless", !parts.length);
  setChildren(find("numbers"), lines, () => lines.map(([name, text]) => (
    make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: text }))
  )));
}

function drawThoughts(view) {
  const { kind, actions, value, places, curves, names } = view;
  const seen = find("frame").dataset.text;
  for (const part of [find("thoughts"), find("all-actions")]) part.hidden = !kind;
  if (!kind) {
    setText(find("thoughts-text"), `${seen}. This agent does not show what it thinks.`);
    return;
  }
  find("action-list").classList.toggle("several", drawsSeveral(kind));
  if (drawsSeveral(kind)) {
    drawSeveral(view, seen);
    return;
  }
  const best = actions.indexOf(Math.max(...actions)), [x, y, title] = TITLES[kind];
  const write = kind === "probabilities" ? percent : number;
  const estimate = value === null ? "" : `, value of the state ${number(value)}`;
  const text = `${title}: best is ${names[best]}, ${curves.length ? "mean " : ""}${write(actions[best])}${estimate}`;
  setText(find("thoughts-text"), `${text}. ${seen}.`);
  const order = actions.map((_, i) => i).sort((a, b) => actions[b] - actions[a]);
  const ranked = order.map(i => `${names[i]}: ${write(actions[i])}`);
  setChildren(find("action-list"), ranked, () => ranked.map(textContent => make("li", { textContent })));
  if (curves.length) drawCurves(kind, actions, places, curves, names, best, text);
  else {
    const color = actions.map((_, i) => (i === best ? line(1) : line(0)));
    const trace = { type: "bar", x: names, y: actions, marker: { color }, hovertemplate: "%{x}: %{y:.3~g}<extra></extra>" };
    const yaxis = { title: y, ...(kind === "probabilities" && { range: [0, 1], tickformat: ".0%" }) };
    draw("thoughts", [trace], { xaxis: { title: x, type: "category" }, yaxis, bargap: 0.25 }, text);
  }
}

// The best action comes last, above the others.
function drawCurves(kind, actions, places, curves, names, best, text) {
  const [x, y] = TITLES[kind];
  const order = actions.map((_, i) => i).sort((a, b) => (a === best) - (b === best));
  const traces = order.map(i => ({
    type: "scatter", mode: "lines", name: `${names[i]} ${number(actions[i])}`, x: places, y: curves[i],
    line: { width: i === best ? 3 : 1.3, color: i === best ? line(1) : line(0), shape: kind === "atoms" ? "hvh" : "linear" },
    opacity: i === best ? 1 : 0.55, showlegend: i === best, hoverinfo: i === best ? "all" : "skip",
  }));
  const others = { type: "scatter", mode: "lines", name: "other actions", x: [null], y: [null], line: { color: line(0) } };
  draw("thoughts", [...traces, others], { xaxis: { title: x }, yaxis: { title: y, zerolinecolor: reference() } }, text);
}
