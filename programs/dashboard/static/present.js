// What is true now: head, alerts, processes, events, time shares and priorities.

import { find, make, setChildren, setText } from "./elements.js";
import { bytes, duration, moment, number, percent, whole } from "./format.js";
import { draw, faint, line, soft } from "./plots.js";

// Parts of a process's time; those in one line are of different kinds of processes, and have one colour.
const PARTS = [
  ["act", "update", "play"], ["environment", "sample"], ["pack", "take_in"], ["send", "publish"], ["pull", "save"], ["wait"],
  ["other"],
];
const named = part => part.replace("_", " ");

export function showPresent(now) {
  const { run, files } = now;
  const metrics = now.processes?.[0].metrics ?? {};  // the learner's
  const isMixed = Boolean(run && files.shown && files.shown !== files.own);
  const facts = isMixed ? {} : files.facts;
  const game = facts.game || run?.task || "";
  const agent = facts.agent || run?.agent || "";
  const title = game ? `${game}${agent ? ` · ${agent}` : ""}` : "No run yet";
  setText(find("title"), title);
  document.title = `${title} – dashboard`;
  const isOver = run ? run.is_over : Boolean(files.facts.is_over);  // then nothing is wrong with a server that has gone
  const ended = isOver ? "This run has finished; all is from its files." : "";
  setText(find("run"), run ? `Run ${run.name}, ${run.status}, in ${run.owner || "an unknown folder"}` : ended);
  showProblem(isOver ? { ...now, problem: "" } : now);
  showAlerts(isOver ? [] : now.alerts || []);  // those of a run that is over stand among its events
  showMixture(isMixed, run, files.shown);
  const isAlive = !isOver && ["working", "waiting", "lockstep"].includes(now.processes?.[0].state);
  const reported = Object.keys(metrics).length ? metrics : facts.metrics || {};  // a run that is over reports no more
  showFacts(reported, facts, run?.t_max ?? facts.t_max, isAlive);
  find("processes").closest("section").hidden = !now.processes?.length;
  setChildren(find("processes"), now.processes || [], () => (now.processes || []).map(processRow));
  setChildren(find("events"), now.events, () => now.events.map(eventItem));
  drawShares(now.processes || []);
  drawPriorities(isMixed ? null : now.priorities);  // they stand among the curves of the files
}

function showProblem({ problem, at, run }) {
  const since = run ? ` What stands below was true at ${moment(at)}.` : " What stands below is from the files.";
  setText(find("problem"), problem ? `No news of the run: ${problem}.${since}` : "");
  document.documentElement.classList.toggle("stale", Boolean(problem && run));
}

// The files of another run than that on the Redis server may be chosen, or be all there are: names which is which.
function showMixture(isMixed, run, shown) {
  const text = isMixed ? `What stands under Scores and Learning is of ${shown}, all else of run ${run.name}.` : "";
  setText(find("mixed"), text);
  setText(find("progress-title"), isMixed ? `Progress of run ${run.name}` : "Progress");
  setText(find("scores-title"), isMixed ? `Scores of ${shown}` : "Scores");
  setText(find("learning-title"), isMixed ? `Learning of ${shown}` : "Learning");
}

function showAlerts(alerts) {
  find("alerts").hidden = !alerts.length;
  setChildren(find("alert-list"), alerts, () => alerts.map(alert => make("li", { textContent: alert })));
}

function showFacts(metrics, facts, most, isAlive) {
  const done = metrics["time/progress"];
  find("progress").value = done ?? 0;
  setText(find("progress"), percent(done));
  const left = isAlive ? [["Remaining", duration(metrics["time/remaining"]), "at the speed of the last minutes"]] : [];
  const held = "buffer/rows" in metrics  // the on-policy family holds nothing
    ? [["Replay or queue", percent(metrics["buffer/fill"]), `${whole(metrics["buffer/rows"])} agent steps held`]] : [];
  const entries = [
    ["Agent steps", whole(metrics["time/total_timesteps"]), most ? `of ${whole(most)}: ${percent(done)} learned` : ""],
    ["Frames", whole(metrics["time/frames"]), isAlive ? `${number(metrics["time/fps"])} a second` : ""],
    ...left,
    ["Weights", `version ${whole(metrics["train/version"])}`, `${whole(metrics["train/n_updates"])} updates since the learner's start`],
    ...held,
    ["Redis", bytes(metrics["redis/used_memory"]), `${whole(metrics["redis/unread"])} messages not read yet`],
    ...Object.entries(facts.scores || {}).map(([name, score]) => scoreEntry(name, score, facts)),
  ];
  setChildren(find("facts"), entries, () => entries.map(([name, value, more]) => make("div", {},
    make("dt", { textContent: name }),
    make("dd", {}, value, ...(more ? [make("small", { textContent: more })] : [])),
  )));
}

function scoreEntry(name, score, facts) {
  const parts = Object.entries({ human: "human", world_record: "world record" }).flatMap(([key, label]) => {
    const share = facts.normalised?.[key]?.[name];
    return Number.isFinite(share) ? [`${percent(share)} of the ${label}`] : [];
  });
  const [where, game] = name.split(", ");
  return [`Score in ${where}${game ? ` of ${game}` : ""}`, number(score, 4), parts.join(", ")];
}

// What an inference server does: how many actors ask it, how much it computes together, and how long they wait.
function serving(values) {
  const batch = values["inference/batch"], latency = values["inference/latency"];
  return [
    `${whole(values["inference/clients"])} actors ask`,
    ...(batch === undefined ? [] : [`batches of ${number(batch)}`]),
    ...(latency === undefined ? [] : [`answers after ${number(1000 * latency)} ms`]),
  ].join(", ");
}

function processRow({ title, role, state, seen, host, pid, began, waits_for, version, lag, unread, memory, metrics }) {
  const speed = metrics["actor/steps_per_second"] ?? metrics["time/steps_per_second"];
  const cells = [
    number(speed), whole(version), whole(lag), whole(unread), number(metrics["process/cpu"]), bytes(memory),
    whole(metrics["process/restarts"]),
  ];
  const detail = state === "waiting" ? `waits for ${waits_for}` : state === "silent" ? `silent for ${duration(seen)}` : state === "lockstep" ? "in lockstep"
    : role === "inference server" && state === "working" ? serving(metrics) : state;
  const className = ["missing", "silent"].includes(state) ? "alarm" : ["working", "lockstep"].includes(state) ? "fine" : "";
  const row = make("tr", {},
    make("th", { scope: "row", textContent: title }),
    make("td", { textContent: detail, className }),
    ...cells.map(text => make("td", { textContent: text, className: "number" })),
    make("td", { textContent: began ? moment(began) : "–" }),
    make("td", { textContent: host ? `${host}, process ${pid}` : "–" }),
  );
  document.querySelectorAll("thead th").forEach((head, i) => { row.cells[i].dataset.label = head.textContent; });
  return row;
}

function eventItem({ at, who, text, is_alarm }) {
  return make("li", {},
    make("time", { dateTime: new Date(1000 * at).toISOString(), textContent: moment(at), className: "soft" }),
    make("span", { textContent: who || "run" }),
    make("span", { textContent: text, className: is_alarm ? "alarm" : "" }),
  );
}

function sharesOf(metrics) {
  return Object.fromEntries(Object.entries(metrics).flatMap(([name, share]) => (name.startsWith("share/") ? [[name.slice(6), share]] : [])));
}

function drawShares(processes) {
  const reporting = processes.map(({ title, state, metrics }) => ({ title, state, shares: sharesOf(metrics) }))
    .filter(({ shares, state }) => Object.keys(shares).length && state !== "left");
  find("shares").closest("section").hidden = !reporting.length;
  if (!reporting.length) return;
  const names = reporting.map(({ title }) => title).reverse();
  const traces = PARTS.map((parts, index) => ({
    type: "bar", orientation: "h", name: parts.map(named).join(" / "), y: names,
    x: reporting.map(({ shares }) => parts.reduce((sum, part) => sum + (shares[part] ?? 0), 0)).reverse(),
    marker: { color: index < 5 ? line(index) : faint(soft(), index === 5 ? 0.45 : 0.18) },
    hovertemplate: "%{x:.0%}",
  }));
  find("shares").style.height = `${(innerWidth > 700 ? 90 : 190) + 26 * reporting.length}px`;
  const text = reporting.map(({ title, shares }) => {
    const [part, share] = Object.entries(shares).reduce((a, b) => (b[1] > a[1] ? b : a));
    return `${title} mostly ${named(part)}, ${percent(share)}`;
  });
  const xaxis = { range: [0, 1], tickformat: ".0%" };
  draw("shares", traces, { barmode: "stack", hovermode: "closest", xaxis, bargap: 0.3 }, text.join("; "));
}

function drawPriorities(priorities) {
  const figure = find("priorities").parentElement;
  figure.hidden = !priorities?.counts.some(count => count > 0);
  if (figure.hidden) return;
  const { bounds, counts } = priorities;
  const names = counts.map((_, i) => (i < bounds.length ? `≤ ${number(bounds[i], 2)}` : `> ${number(bounds.at(-1), 2)}`));
  const trace = { type: "bar", x: names, y: counts, marker: { color: line(0) }, hovertemplate: "%{x}: %{y}<extra></extra>" };
  const most = names[counts.indexOf(Math.max(...counts))];
  draw("priorities", [trace], { xaxis: { type: "category", nticks: 8 }, bargap: 0.05 }, `Priorities in the replay: most are ${most}`);
}
