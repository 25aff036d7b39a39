// Draws what a policy thinks that takes several actions at once: numbers in [-1, 1], or several choices.

import { find, make, setChildren, setText } from "./elements.js";
import { number, percent, whole } from "./format.js";
import { draw, faint, line, reference } from "./plots.js";

const MOST_IN_TEXT = 6, MOST_TICKS = 20;
const TITLES = {
  intervals: "Numbers in [-1, 1] that the policy takes without exploration",
  choices: "Probabilities of several choices at once; the likeliest",
};

export const drawsSeveral = kind => kind in TITLES;

export function drawSeveral(view, seen) {
  const { kind, value, more_actions: more } = view;
  const rows = kind === "choices" ? choices(view) : intervals(view);
  const first = rows.slice(0, MOST_IN_TEXT).map(row => row.short).join(", ");
  const others = rows.length > MOST_IN_TEXT ? ", …" : "";
  const estimate = value === null ? "" : `; value of the state ${number(value)}`;
  const rest = more ? `; ${whole(more)} more are not shown` : "";
  const text = `${TITLES[kind]}: ${first}${others}${estimate}${rest}`;
  setText(find("thoughts-text"), `${text}. ${seen}.`);
  const list = rows.map(row => row.long);
  setChildren(find("action-list"), list, () => list.map(textContent => make("li", { textContent })));
  (kind === "choices" ? drawChoices : drawIntervals)(rows, view, text);
}

function intervals({ actions, curves }) {
  return curves.map((curve, i) => {
    const [low, from, , to, high] = curve.map(value => number(value));
    const short = number(actions[i]), action = actions[i];
    const long = `${i}: ${short}, half of what is drawn from ${from} to ${to}, nine tenths from ${low} to ${high}`;
    return { short, curve, action, long };
  });
}

// A line from end to end of each range; null ends a line.
const ranges = (rows, from, to) => ({
  x: rows.flatMap((_, i) => [i, i, null]), y: rows.flatMap(({ curve }) => [curve[from], curve[to], null]),
});

function drawIntervals(rows, { places }, text) {
  const share = (from, to) => percent(places[to] - places[from]), width = Math.max(1, Math.min(16, 400 / rows.length));
  const common = { type: "scatter", hoverinfo: "skip", mode: "lines" };
  const traces = [
    { ...common, ...ranges(rows, 0, 4), name: `${share(0, 4)} of what it draws`, line: { width, color: faint(line(0), 0.35) } },
    { ...common, ...ranges(rows, 1, 3), name: share(1, 3), line: { width, color: line(0) } },
    {
      type: "scatter", mode: "markers", name: "without exploration", x: rows.map((_, i) => i), y: rows.map(row => row.action),
      marker: { symbol: "line-ew-open", size: width + 6, color: line(1), line: { width: 3, color: line(1) } },
      text: rows.map(row => row.long), hovertemplate: "%{text}<extra></extra>",
    },
  ];
  const ticks = rows.length <= MOST_TICKS ? { dtick: 1 } : {};
  const xaxis = { title: "number", range: [-0.5, rows.length - 0.5], zeroline: false, showgrid: false, ...ticks };
  draw("thoughts", traces, { xaxis, yaxis: { title: "action", range: [-1.05, 1.05], zerolinecolor: reference() } }, text);
}

function choices({ actions, places }) {
  let start = 0;
  return places.map((count, i) => {
    const shares = actions.slice(start, start += count), best = shares.indexOf(Math.max(...shares));
    const order = shares.map((_, k) => k).sort((a, b) => shares[b] - shares[a]);
    const long = `choice ${i} – ${order.map(k => `${k}: ${percent(shares[k])}`).join(", ")}`;
    return { shares, best, long, short: `${best} (${percent(shares[best])})` };
  });
}

// The bars of a choice stand together; a gap as wide as a bar parts them from the next choice's.
function drawChoices(rows, _, text) {
  let at = 0;
  const groups = rows.map(({ shares }) => ({ first: at, middle: at + (shares.length - 1) / 2, next: at += shares.length + 1 }));
  const every = Math.ceil(rows.length / MOST_TICKS);
  const ticked = groups.map((_, i) => i).filter(i => i % every === 0);
  const bars = rows.flatMap(({ shares, best }, i) => shares.map((share, k) => ({
    x: groups[i].first + k, share, color: k === best ? line(1) : line(0), label: `choice ${i}, option ${k}`,
  })));
  const trace = {
    type: "bar", x: bars.map(bar => bar.x), y: bars.map(bar => bar.share), marker: { color: bars.map(bar => bar.color) },
    customdata: bars.map(bar => bar.label), hovertemplate: "%{customdata}: %{y:.3~g}<extra></extra>",
  };
  const xaxis = { title: "choice", tickvals: ticked.map(i => groups[i].middle), ticktext: ticked.map(String), showgrid: false, zeroline: false };
  const yaxis = { title: "probability", range: [0, 1], tickformat: ".0%" };
  draw("thoughts", [trace], { xaxis, yaxis, bargap: 0.15, hovermode: "closest" }, text);
}
