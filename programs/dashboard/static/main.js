// Asks the server for news once a second while the page can be seen, and shows them.

import { checkedBoxes, find, make, setBoxes, setKeyed, setText } from "./elements.js";
import { showFilms } from "./films.js";
import { NAMES, drawMetrics } from "./metrics.js";
import { showPresent } from "./present.js";
import { drawScores } from "./scores.js";
import { showActors, watchView } from "./view.js";

const INTERVAL_MS = 1000;
const COMPARED_MS = 15_000;  // between two looks at the runs beside the shown one
let chosen = "";  // the run whose files are shown; empty: that of the run on the Redis server, else the newest
let kept = "";  // the newest, when it was shown first: it stays while others train
let drawn = "";  // what the curves on the page were made of
let curves = null;

async function ask(address, parameters = []) {
  const response = await fetch(`${address}?${new URLSearchParams(parameters)}`, { signal: AbortSignal.timeout(20000) });
  if (response.status === 403) {
    throw new Error("This dashboard asks for another token than this page has, as one does that was started again. " +
      "Open the address that dashboard.py has printed anew.");
  }
  if (!response.ok) throw new Error(`the dashboard answers ${response.status}`);
  return response.json();
}

async function look() {
  const wanted = chosen;
  const now = await ask("/api/now", [["run", wanted || kept]]);
  if (!wanted && !chosen) kept = now.files.own ? "" : now.files.shown;
  showPresent(now);
  showRuns(now.files);
  showFilms(now.files);
  showActors(now.run?.is_over ? [] : now.processes || []);
  await bringCurves(now.files);
}

function showRuns({ runs, shown }) {
  const select = find("shown-run");
  setKeyed(select, runs, run => make("option", { value: run, textContent: run }));
  chosen = select.value;  // perhaps it has gone
  setBoxes(find("other-runs"), runs.filter(run => run !== shown), () => false, () => lookSoon());
}

async function bringCurves({ shown, stamp }) {
  const others = checkedBoxes(find("other-runs")).filter(run => run !== shown);
  const turn = others.length && Math.floor(Date.now() / COMPARED_MS);  // `stamp` is of the shown run alone
  const wanted = JSON.stringify([shown, stamp, others, turn]);
  if (wanted === drawn) return;
  const runs = shown ? [shown, ...others] : [];
  const [scores, metrics] = await Promise.all([
    ask("/api/scores", runs.map(run => ["run", run])),
    ask("/api/metrics", [["run", shown], ...NAMES.map(name => ["name", name])]),
  ]);
  curves = { scores, metrics };
  drawCurves();
  drawn = [...scores.runs, metrics].some(part => part.has_more) ? "" : wanted;
}

function drawCurves() {
  if (!curves) return;
  drawScores(curves.scores, drawCurves);
  drawMetrics(curves.metrics, curves.scores.runs[0]?.repeat ?? 4);
}

let timer = 0, isLooking = false;
async function lookSoon() {
  clearTimeout(timer);
  if (isLooking) return;
  isLooking = true;
  try {
    if (!document.hidden) await look();
  } catch (error) {
    const isAway = error instanceof TypeError || error instanceof DOMException;
    const away = "The dashboard's own process does not answer: is dashboard.py still running?";
    setText(find("problem"), isAway ? away : String(error.message));
    document.documentElement.classList.add("stale");
  }
  isLooking = false;
  timer = setTimeout(lookSoon, INTERVAL_MS);
}

find("shown-run").addEventListener("change", event => {
  chosen = event.target.value;
  kept = "";
  lookSoon();
});
for (const radio of document.querySelectorAll("input[name=axis]")) radio.addEventListener("change", drawCurves);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCurves);
document.addEventListener("visibilitychange", lookSoon);
lookSoon();
watchView(ask);
