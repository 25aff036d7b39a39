// The small plots of a run's history: each has a few metrics by the names of monitoring/metrics.py.

import { find, make, setText } from "./elements.js";
import { number } from "./format.js";
import { draw, faint, line, mode } from "./plots.js";
import { AXES, along, chosenAxis } from "./scores.js";

const PLOTS = [
  { id: "speed", title: "Agent steps per second", names: { "time/steps_per_second": "agent steps/s" } },
  { id: "updates", title: "Updates per second", names: { "train/updates_per_second": "updates/s" } },
  {
    id: "loss", title: "Losses",
    names: { "train/loss": "loss", "train/policy_loss": "policy", "train/value_loss": "value" },
  },
  { id: "value", title: "Values: mean estimate of the sampled rows", names: { "train/value": "value" } },
  { id: "gradient", title: "Gradient norm", names: { "train/gradient_norm": "norm" } },
  { id: "entropy", title: "Entropy of the policy", names: { "train/entropy": "nats" } },
  { id: "fill", title: "Replay or queue: fill", names: { "buffer/fill": "share of the capacity" }, percent: true },
  { id: "age", title: "Age of sampled rows, in agent steps", names: { "buffer/sampled_age": "agent steps" } },
  {
    id: "samples", title: "Rows learned from for each that was inserted",
    names: { "buffer/samples_per_insert": "samples per insert" },
  },
  {
    id: "lag", title: "Lag, in versions of the weights",
    names: { "train/policy_lag": "mean", "train/largest_policy_lag": "largest" },
  },
  { id: "unread", title: "Messages in Redis that are not read yet", names: { "redis/unread": "messages" } },
  {
    id: "learner-time", title: "The learner's time", stacked: true, percent: true,
    names: {
      "share/update": "update", "share/sample": "sample", "share/take_in": "take in", "share/publish": "publish",
      "share/save": "save", "share/wait": "wait", "share/other": "other",
    },
  },
];
export const NAMES = PLOTS.flatMap(plot => Object.keys(plot.names));
const given = new Map();  // plots of the metrics that the agent has named, by name

function plotOf(name) {
  if (!given.has(name)) given.set(name, { id: `given-${given.size}`, title: name, names: { [name]: "mean" } });
  return given.get(name);
}

function place(plot) {
  if (!find(plot.id)) {
    const caption = make("figcaption", { id: `${plot.id}-text`, className: "hidden" });
    const heading = make("h3", { textContent: plot.title });
    const figure = make("figure", {}, heading, make("div", { id: plot.id, className: "plot" }), caption);
    find("priorities").parentElement.before(figure);
  }
  return find(plot.id).parentElement;
}

export function drawMetrics({ steps = [], hours = [], values = {} }, repeat) {
  const axis = chosenAxis(), x = along(axis, { steps, hours }, repeat);
  for (const name of Object.keys(values)) if (!NAMES.includes(name)) plotOf(name);
  for (const plot of [...PLOTS, ...given.values()]) {
    const names = Object.keys(plot.names).filter(name => values[name]?.some(value => value !== null));
    place(plot).hidden = !names.length;
    if (!names.length) continue;
    const traces = names.map((name, index) => ({
      type: "scatter", name: plot.names[name], x, y: values[name], mode: mode(values[name]),
      line: { width: plot.stacked ? 0.5 : 2, color: line(index) },
      hovertemplate: plot.percent ? "%{y:.1%}" : "%{y:,.4~g}",
      ...(plot.stacked ? { stackgroup: "all", fillcolor: faint(line(index)) } : { connectgaps: true }),
    }));
    const newest = names.map(name => `${plot.names[name]} ${number(values[name].findLast(value => value !== null))}`);
    const text = `${plot.title}: newest ${newest.join(", ")}`;
    setText(find(`${plot.id}-text`), text);
    const yaxis = { rangemode: "tozero", ...(plot.percent && { tickformat: ".0%" }) };
    draw(plot.id, traces, { xaxis: { title: AXES[axis], rangemode: "tozero", nticks: 6 }, yaxis }, text);
  }
}
