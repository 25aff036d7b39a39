// The curves of the scores: of the shown run, of those it is compared with, and known scores as lines.

import { checkedBoxes, find, setBoxes, setText } from "./elements.js";
import { number, whole } from "./format.js";
import { draw, faint, line, mode, reference } from "./plots.js";

export const AXES = { steps: "agent steps", frames: "frames", hours: "hours of the learner" };

export function chosenAxis() {
  return document.querySelector("input[name=axis]:checked").value;
}

// Returns the values of an axis for a curve, null for hours that were not written down.
export function along(axis, curve, repeat) {
  return axis === "frames" ? curve.steps.map(step => step * repeat) : curve[axis];
}

function curveTraces(run, index, axis, isCompared) {
  const { training, evaluation, repeat, title } = run;
  const colour = line(index), traces = [];
  const add = (curve, name, values, style) => {
    const x = along(axis, curve, repeat);
    if (!x || !x.length) return;
    traces.push({ type: "scatter", name, x, y: values, mode: mode(values), hovertemplate: "%{y:,.4~g}", ...style });
  };
  const edge = { mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip", hovertemplate: null };
  if (!isCompared) {
    const bound = sign => training.mean.map((mean, i) => mean + sign * (training.spread[i] ?? 0));
    add(training, "+1 standard deviation", bound(1), edge);
    add(training, "−1 standard deviation", bound(-1), { ...edge, fill: "tonexty", fillcolor: faint(colour) });
    add(training, "max", training.most, { line: { width: 1, color: line(1) } });
    add(training, "min", training.least, { line: { width: 1, color: line(2) } });
  }
  add(training, isCompared ? title : "mean", training.mean, { line: { width: 2.5, color: colour } });
  const name = isCompared ? `${title}, evaluation` : "evaluation";
  const dashed = isCompared ? { width: 2.5, color: colour, dash: "dot" } : { width: 2.5, color: line(3) };
  add(evaluation, name, evaluation.mean, { line: dashed });
  return traces;
}

// The names stand in the legend, where no curve crosses them. Dashes are those of the other pages.
const DASHES = { random: "dot", human: "dash", "world record": "longdashdot" };
function referenceShapes(lines) {
  return lines.map(({ name, label, value }, i) => ({
    type: "line", name: label, showlegend: true, legendrank: 1001, xref: "paper", x0: 0, x1: 1, y0: value, y1: value,
    line: { width: 1, dash: DASHES[name] ?? ["longdash", "dashdot"][i % 2], color: reference() },
  }));
}

// Plotly's own range does not count lines: these invisible traces do.
function ghosts(lines, x) {
  const style = { type: "scatter", mode: "markers", marker: { opacity: 0 }, hoverinfo: "skip", showlegend: false };
  return lines.length ? [{ ...style, x: lines.map(() => x), y: lines.map(({ value }) => value) }] : [];
}

export function drawScores({ runs, lines, left_out: leftOut, games_left_out: games }, changed) {
  const near = new Set(lines.filter(entry => entry.near).map(entry => entry.name));
  setBoxes(find("lines"), lines.map(({ name }) => name), name => near.has(name), changed);
  const wanted = new Set(checkedBoxes(find("lines")));
  const drawnLines = lines.filter(({ name }) => wanted.has(name));
  const axis = chosenAxis();
  const traces = runs.flatMap((run, index) => curveTraces(run, index, axis, runs.length > 1));
  const first = traces.length ? traces[0].x[0] : 0;
  const more = [[leftOut, "Runs"], [games, "Games"]].filter(([count]) => count)
    .map(([count, what]) => ` ${what} that are not drawn, as there are too many: ${count}.`);
  const text = describe(runs, axis) + more.join("");
  setText(find("scores-text"), text);
  const layout = { xaxis: { title: AXES[axis], rangemode: "tozero" }, yaxis: { title: "score per episode" } };
  draw("scores", [...traces, ...ghosts(drawnLines, first)], { ...layout, shapes: referenceShapes(drawnLines) }, text);
}

function describe(runs, axis) {
  if (!runs.length) return "There is no training log in this results folder yet.";
  const sentences = runs.map(({ title, training, evaluation, problem }) => {
    if (problem) return `${title}: not all of its files can be read (${problem}).`;
    if (!training.mean.length) return `${title}: no training episode has ended yet.`;
    const last = training.mean.length - 1;
    const evaluated = evaluation.mean.length ? `, in evaluation ${number(evaluation.mean.at(-1))}` : "";
    const noHours = axis === "hours" && !training.hours ? ", not drawn: it has written down no hours" : "";
    return `${title}: mean ${number(training.mean[last])} of the last ${training.episodes[last]} episodes${evaluated}, ` +
      `at ${whole(training.steps[last])} agent steps${noHours}.`;
  });
  return sentences.join(" ");
}
