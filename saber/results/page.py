"""Pages with plots that are one file: each contains plotly.js (4.8 MB), so pages open offline and can be mailed.

A script beside a page would be left behind, and a script on a CDN needs a network. Pages follow the reader's choice of
a light or a dark display, and are light on paper. All plots are drawn before the page counts as loaded, so pictures of
the whole page and prints hold all plots.
"""

import json
from collections.abc import Mapping
from html import escape
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from rainbow_iqn_apex.saber.results.figure import DARK, LIGHT, SHADES

INTERVAL_S = 30  # a learner writes its plot no more often

HAND_OVER = """
const [summary, written] = ["summary", "figure"].map(id => document.getElementById(id));
const inFrame = parent !== window && new URLSearchParams(location.search).has("newest");
if (inFrame) {  // of a page that looks for newer data; pages of file:// have no origin to name
  parent.postMessage([summary.textContent, written.textContent], location.protocol === "file:" ? "*" : location.origin);
  stop();
}
"""

LOOK_AGAIN = f"""
let shown = written.textContent, frame = null;
function look() {{
  if (document.hidden) return;
  if (frame) frame.remove();  // the file had gone
  frame = document.createElement("iframe");
  frame.hidden = true;
  const newest = new URL(location);
  newest.hash = "";
  newest.searchParams.set("newest", Date.now());
  frame.src = newest;
  document.body.append(frame);
}}
addEventListener("message", ({{ source, data }}) => {{
  if (!frame || source !== frame.contentWindow) return;
  frame.remove();
  frame = null;
  if (data[1] === shown) return;
  [summary.textContent, shown] = data;
  show(shown);
}});
if (!inFrame) setInterval(look, {INTERVAL_S} * 1000);
"""


_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; $light }
@media (prefers-color-scheme: dark) { :root { $dark } }
:root.paper { color-scheme: light; $light }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.4 system-ui, "Helvetica Neue", Arial, "Liberation Sans", sans-serif; }
header { padding: 16px 20px 4px; }
h1 { margin: 0; font-size: 21px; }
p { margin: 4px 0 0; color: var(--soft); }
@page { size: portrait; margin: 12mm; }
.paper body { width: ${paper_width}px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.paper .modebar { display: none; }
h1, h2, h3 { break-after: avoid; }
.paper .js-plotly-plot { overflow: hidden; }
.js-plotly-plot, tr { break-inside: avoid; }
$style
</style>
</head>
<body>
$body
<script type="application/json" id="figure">$figures</script>
$hand_over<script>$plotly</script>
<script>
const themes = $themes, shades = $shades;
const root = document.documentElement, onPaper = () => root.classList.contains("paper");
const darkDisplay = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => darkDisplay.matches && !onPaper();
const read = () => JSON.parse(document.getElementById("figure").textContent, (_, value) =>
  isDark() && typeof value === "string" && shades[value] || value);
let figures = read();
function theme(layout) {
  const { ink, soft, grid, paper } = themes[isDark() ? "dark" : "light"];
  const size = onPaper() ? 10 : innerWidth > 700 ? 13 : 11;
  const style = { gridcolor: grid, linecolor: soft, tickcolor: soft, tickfont: { color: soft } };
  const axis = old => ({ ...old, ...style, title: { ...old.title, font: { size } } });
  const { xaxis, yaxis, hoverlabel, ...rest } = layout;
  return { ...rest, uirevision: "kept", paper_bgcolor: paper, plot_bgcolor: paper,
           font: { color: ink, size, family: getComputedStyle(document.body).fontFamily },
           xaxis: { ...axis(xaxis), spikecolor: soft }, yaxis: axis(yaxis),
           hoverlabel: { ...hoverlabel, bgcolor: paper, bordercolor: soft, font: { color: ink, size } },
           modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink } };
}
const config = { responsive: true, displaylogo: false,
                 modeBarButtonsToRemove: ["select2d", "lasso2d", "sendChartToCloud"] };  // nothing leaves the page
// Buttons are for zooming, and would cover the legend of a narrow page.
const buttons = layout => layout.dragmode !== false && innerWidth > 700 ? "hover" : false;
function draw() {
  figures = read();
  for (const [id, { data, layout }] of Object.entries(figures)) {
    const place = document.getElementById(id);
    if (onPaper() && layout.height) layout.height = Math.min(layout.height, $paper_height);
    if (layout.height) place.style.height = `$${layout.height}px`;
    if (onPaper()) [layout.width, layout.height] = [place.clientWidth, place.clientHeight];  // measured once by plotly
    const shown = onPaper() ? data.filter(trace => trace.visible !== "legendonly") : data;  // no one clicks on paper
    Plotly.react(id, shown, theme(layout), { ...config, displayModeBar: buttons(layout) });
  }
}
draw();
darkDisplay.addEventListener("change", draw);
const closed = [];
addEventListener("beforeprint", () => {  // in the width and the colours of the paper, with what is folded on a screen
  closed.push(...document.querySelectorAll("details:not([open])"));
  closed.forEach(part => part.open = true);
  root.classList.add("paper");
  draw();
});
addEventListener("afterprint", () => {
  closed.splice(0).forEach(part => part.open = false);
  root.classList.remove("paper");
  draw();
  Object.keys(figures).forEach(Plotly.Plots.resize);
});
function show(text) {
  document.getElementById("figure").textContent = text;
  draw();
}
$look_again</script>
</body>
</html>
""")
_PAPER_WIDTH, _PAPER_HEIGHT = 690, 830  # pixels: what A4 and Letter leave for a plot, with a text above it


def render_page(title: str, body: str, figures: Mapping[str, dict[str, Any]], style: str, *, live: bool = False) -> str:
    """Write a page; `body` is HTML in which every figure has an element with its key as the id, and `style` is CSS.

    A figure is plotly's, without the colours of text and grid: the page sets them for a light or a dark display.
    A `live` page brings itself up to date while it is open; its body has an element `summary`.
    """
    return _PAGE.substitute(
        title=escape(title),
        style=style,
        body=body,
        light=_variables(LIGHT),
        dark=_variables(DARK),
        paper_width=_PAPER_WIDTH,
        paper_height=_PAPER_HEIGHT,
        themes=json.dumps({"light": LIGHT, "dark": DARK}),
        shades=json.dumps(SHADES),
        figures=_in_script(json.dumps(figures, separators=(",", ":"), allow_nan=False)),
        plotly=get_plotlyjs(),
        hand_over=f"<script>{HAND_OVER}</script>\n" if live else "",
        look_again=LOOK_AGAIN if live else "",
    )


def _variables(theme: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in theme.items())


def _in_script(text: str) -> str:
    """Escape JSON so that no name in it can end the script around the JSON."""
    return text.replace("<", "\\u003c")
