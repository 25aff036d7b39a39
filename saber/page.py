"""Pages with plots that are one file: plotly.js is written into them (4.8 MB), so they open offline and can be mailed.

A script beside a page would be left behind, and one on a CDN needs a network. Pages follow the reader's choice of a
light or a dark display.
"""

import json
from collections.abc import Mapping
from html import escape
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from saber.live_page import HAND_OVER, LOOK_AGAIN

BLUE, ORANGE, TEAL = "#3b82d6", "#d08a3c", "#2f9e8a"  # legible on white and on black
BAND = "rgba(59,130,214,0.25)"

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1f2430; --soft: #59606e; --grid: #e4e7ec; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ec; --soft: #a5abb7; --grid: #2e333c; --paper: #15171b; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.4 system-ui, sans-serif; }
header { padding: 16px 20px 4px; }
h1 { margin: 0; font-size: 21px; }
p { margin: 4px 0 0; color: var(--soft); }
$style
</style>
</head>
<body>
$body
<script type="application/json" id="figure">$figures</script>
$hand_over<script>$plotly</script>
<script>
let figures = JSON.parse(document.getElementById("figure").textContent);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function theme(layout) {
  const [ink, soft, grid, paper] = ["--ink", "--soft", "--grid", "--paper"].map(colour);
  const axis = { gridcolor: grid, linecolor: soft, tickcolor: soft, tickfont: { color: soft } };
  const { xaxis, yaxis, hoverlabel, ...rest } = layout;
  const size = innerWidth > 700 ? 13 : 11;
  return { ...rest, uirevision: "kept", paper_bgcolor: paper, plot_bgcolor: paper,
           font: { color: ink, size, family: "system-ui, sans-serif" },
           xaxis: { ...xaxis, ...axis, spikecolor: soft }, yaxis: { ...yaxis, ...axis },
           hoverlabel: { ...hoverlabel, bgcolor: paper, bordercolor: soft, font: { color: ink, size } },
           modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink } };
}
const config = { responsive: true, displaylogo: false,
                 modeBarButtonsToRemove: ["select2d", "lasso2d", "sendChartToCloud"],  // nothing leaves the page
                 displayModeBar: innerWidth > 700 ? "hover" : false };  // it would cover the legend of a narrow page
const drawn = new Set();
function draw(id) {
  drawn.add(id);
  Plotly.react(id, figures[id].data, theme(figures[id].layout), config);
}
const seen = new IntersectionObserver(entries => {  // a page may have dozens of plots: each when it is scrolled to
  for (const entry of entries.filter(entry => entry.isIntersecting)) {
    seen.unobserve(entry.target);
    draw(entry.target.id);
  }
}, { rootMargin: "400px" });
Object.keys(figures).forEach(id => seen.observe(document.getElementById(id)));
addEventListener("beforeprint", () => Object.keys(figures).forEach(draw));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
function show(text) {
  figures = JSON.parse(text);
  drawn.forEach(draw);
}
$look_again</script>
</body>
</html>
""")


def render_page(title: str, body: str, figures: Mapping[str, dict[str, Any]], style: str, *, live: bool = False) -> str:
    """Write a page; `body` is HTML in which every figure has an element with its key as the id, and `style` is CSS.

    A figure is plotly's, but for the colours of text and grid: the page sets them for light or dark readers.
    A `live` page brings itself up to date while it is open; its body has an element `summary` (`saber/live_page.py`).
    """
    text = json.dumps(figures, separators=(",", ":"), allow_nan=False)
    return _PAGE.substitute(
        title=escape(title),
        style=style,
        body=body,
        figures=text.replace("<", "\\u003c"),  # no name in it can end the script
        plotly=get_plotlyjs(),
        hand_over=f"<script>{HAND_OVER}</script>\n" if live else "",
        look_again=LOOK_AGAIN if live else "",
    )


def game_title(game: str) -> str:
    """Write a game's name for readers, as in "Ms Pacman"."""
    return game.replace("_", " ").title()
