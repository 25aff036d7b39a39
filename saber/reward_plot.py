"""The plot `Reward_<game>.html`: statistics of the last 100 training episodes against agent steps.

It is a pure function of the training log, so a restart loses nothing. plotly.js is written into the page (4.8 MB): one
file opens offline, on any machine, and can be mailed alone; a script beside it would be left behind, one on a CDN needs
a network. Writing it takes a fraction of a second, also after 100 000 episodes.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from saber.files import replace_file
from saber.scores import EpisodeRecord
from saber.summary import FRAMES_PER_MINUTE, Moment, Summary, rolling_summaries

BLUE, BAND, ORANGE, TEAL = "#3b82d6", "rgba(59,130,214,0.25)", "#d08a3c", "#2f9e8a"  # legible on white and on black

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$game: training scores</title>
<style>
:root { color-scheme: light dark; --ink: #1f2430; --soft: #59606e; --grid: #e4e7ec; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --soft: #a5abb7; --grid: #2e333c; --paper: #15171b; }
}
body { margin: 0; height: 100vh; display: flex; flex-direction: column; overflow: hidden;
       background: var(--paper); color: var(--ink); font: 15px/1.4 system-ui, sans-serif; }
header { padding: 16px 20px 4px; }
h1 { margin: 0; font-size: 21px; }
p { margin: 4px 0 0; color: var(--soft); }
#plot { flex: 1; min-height: 0; }
</style>
</head>
<body>
<header><h1>$game: training scores</h1><p>$summary</p></header>
<div id="plot"></div>
<script type="application/json" id="figure">$figure</script>
<script>$plotly</script>
<script>
const figure = JSON.parse(document.getElementById("figure").textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function theme() {
  const [ink, soft, grid, paper] = ["--ink", "--soft", "--grid", "--paper"].map(colour);
  const axis = { gridcolor: grid, linecolor: soft, tickcolor: soft, tickfont: { color: soft } };
  const { xaxis, yaxis, hoverlabel, ...rest } = figure.layout;
  const size = innerWidth > 700 ? 13 : 11;
  return { ...rest, paper_bgcolor: paper, plot_bgcolor: paper,
           font: { color: ink, size, family: "system-ui, sans-serif" },
           xaxis: { ...xaxis, ...axis, spikecolor: soft }, yaxis: { ...yaxis, ...axis },
           hoverlabel: { ...hoverlabel, bgcolor: paper, bordercolor: soft, font: { color: ink, size } },
           modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink } };
}
const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"],
                 displayModeBar: innerWidth > 700 ? "hover" : false };  // it would cover the legend of a narrow page
const draw = () => Plotly.react("plot", figure.data, theme(), config);
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
</script>
</body>
</html>
""")


def write_reward_plot(records: Sequence[EpisodeRecord], path: Path, game: str, action_repeat: int = 4) -> None:
    """Replace the plot at `path`; `action_repeat` is the number of frames per agent step."""
    page = render_reward_plot(records, game, action_repeat)
    with replace_file(path) as file:
        file.write(page.encode())


def render_reward_plot(records: Sequence[EpisodeRecord], game: str, action_repeat: int = 4) -> str:
    """Write the page; equal records give equal pages."""
    moments = rolling_summaries(records, action_repeat=action_repeat)
    figure = json.dumps(reward_figure(moments, action_repeat), separators=(",", ":"), allow_nan=False)
    return PAGE.substitute(
        game=escape(game.replace("_", " ").title()),
        summary=escape(_describe(moments, len(records), action_repeat)),
        figure=figure,
        plotly=get_plotlyjs(),
    )


def reward_figure(moments: Sequence[Moment], action_repeat: int) -> dict[str, Any]:
    """Build plotly's figure, but for the colours of text and grid: the page sets them for light or dark readers."""
    steps = [moment.newest.T_actors for moment in moments]
    summaries = [moment.summary for moment in moments]
    means = [summary.mean for summary in summaries]
    spreads = [summary.standard_deviation for summary in summaries]
    mode = "lines" if len(moments) > 30 else "lines+markers"  # a single point has no line

    def trace(name: str, values: Sequence[float | None], **style: Any) -> dict[str, Any]:
        return {"type": "scatter", "name": name, "x": steps, "y": values, "mode": mode, "hoverinfo": "skip", **style}

    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "legendgroup": "band"}
    upper = [None if spread is None else mean + spread for mean, spread in zip(means, spreads, strict=True)]
    lower = [None if spread is None else mean - spread for mean, spread in zip(means, spreads, strict=True)]
    minima = [summary.minimum for summary in summaries]
    maxima = [summary.maximum for summary in summaries]
    texts = [_hover_text(moment, action_repeat) for moment in moments]
    return {
        "data": [
            trace("mean + 1 standard deviation", upper, **edge, showlegend=False),
            trace("± 1 standard deviation", lower, **edge, fill="tonexty", fillcolor=BAND, legendrank=2),
            trace("max", maxima, line={"width": 1, "color": ORANGE}, legendrank=3),
            trace("mean", means, line={"width": 2.5, "color": BLUE}, hoverinfo="text", hovertext=texts, legendrank=1),
            trace("min", minima, line={"width": 1, "color": TEAL}, legendrank=4),
        ],
        "layout": _layout(empty=not moments),
    }


def _layout(empty: bool) -> dict[str, Any]:
    axis = {"zeroline": False, "automargin": True, "showline": True, "ticks": "outside", "nticks": 8}
    layout: dict[str, Any] = {
        "xaxis": {
            **axis,
            "title": {"text": "agent steps (all actors together)"},
            "rangemode": "tozero",
            "spikethickness": 1,
            "spikedash": "solid",
        },
        "yaxis": {**axis, "title": {"text": "SABER score per episode"}},
        "hovermode": "x",
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},  # above the data, never over it
        "margin": {"l": 20, "r": 20, "t": 40, "b": 20},
    }
    if empty:
        for name in ("xaxis", "yaxis"):
            layout[name] |= {"range": [0, 1], "showticklabels": False, "showgrid": False, "ticks": ""}
    return layout


def _hover_text(moment: Moment, action_repeat: int) -> str:
    summary, longest = moment.summary, moment.longest
    minutes = longest.length * action_repeat / FRAMES_PER_MINUTE
    return "<br>".join(
        [
            f"<b>mean {_mean_and_spread(summary)}</b>",
            f"min {summary.minimum:,.0f}, max {summary.maximum:,.0f}",
            f"{_episodes(summary.episodes)}, mean length {summary.mean_length:,.0f} agent steps",
            f"longest {longest.length:,} agent steps ({minutes:,.1f} min)",
            f"score of the longest {longest.score_saber:,.0f}",
            f"agent step {moment.newest.T_actors:,}",
            f"learner's step {moment.newest.T_learner:,}",
        ]
    )


def _describe(moments: Sequence[Moment], total: int, action_repeat: int) -> str:
    if not moments:
        return "No training episode has ended yet."
    summary, steps = moments[-1].summary, moments[-1].newest.T_actors
    which = f"the last {summary.episodes} of {total:,} training episodes"
    if summary.episodes == total:
        which = f"the {_episodes(total)} so far"
    return (
        f"Mean {_mean_and_spread(summary)} over {which}, at {steps:,} agent steps ({steps * action_repeat:,} frames)."
    )


def _mean_and_spread(summary: Summary) -> str:
    spread = "" if summary.standard_deviation is None else f" ± {summary.standard_deviation:,.1f}"
    return f"{summary.mean:,.1f}{spread}"


def _episodes(count: int) -> str:
    return f"{count:,} episode{'' if count == 1 else 's'}"
