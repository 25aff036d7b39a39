"""Draws measured runs: a panel for each game, with a curve for each run and lines for the baselines.

The runs of a configuration, which differ by their seeds, share its colour.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

LAST = 20  # episodes that a point of a curve, and a score, is the mean of
MOST = 300  # dots of a run, and points of its curve: the committed file stays small

COLOURS = ("#2563eb", "#ea580c", "#059669", "#7c3aed", "#db2777", "#0891b2", "#ca8a04", "#4b5563")
PAGE_WIDTH = 900
_COLUMNS, _HEIGHT = 3, 210  # of panels
_LEFT, _TOP, _RIGHT, _BOTTOM = 54, 30, 18, 30  # of a panel, around its axes
_LABEL_WIDTH, _LINE, _LABELS = 200, 20, 4  # of the legend, and how many stand in a line
_BASELINES = {"random policy": ("random", "6 4"), "best constant action": ("best_constant_action", "1 4")}

Baseline = dict[str, Any]
Style = tuple[str, str]  # a label of the legend, and the attributes of its line
T = TypeVar("T")


@dataclass(frozen=True)
class Panel:
    """Places agent steps and scores inside its axes, which go to `steps`, and from `low` to `high`."""

    steps: int
    low: float
    high: float
    width: int
    height: int

    def x(self, step: float) -> float:
        """Return where a number of agent steps stands."""
        return _LEFT + (self.width - _LEFT - _RIGHT) * step / self.steps

    def y(self, score: float) -> float:
        """Return where a score stands."""
        share = (score - self.low) / (self.high - self.low)
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * share

    def points(self, curve: Sequence[tuple[float, float]]) -> str:
        """Return the points of a curve of steps and scores, as SVG has them."""
        return " ".join(f"{self.x(step):.1f},{self.y(score):.1f}" for step, score in curve)

    def line(self, score: float, style: str) -> str:
        """Return a line at a score, from one side to the other."""
        return f'<path d="M{_LEFT} {self.y(score):.1f}H{self.width - _RIGHT}" {style}/>'


def fitted(steps: int, scores: Sequence[float], width: int, height: int) -> Panel:
    """Return a panel that has room for all scores and for 0."""
    low, high = min(0.0, *scores), max(0.0, *scores)
    margin = 0.03 * (high - low or 1.0)
    return Panel(steps, low - margin * (low < 0), high + margin, width, height)


def levels(baseline: Baseline | None) -> list[float]:
    """Return the scores of the baselines; none where they were not measured."""
    return [baseline[name]["mean"] for name, _ in _BASELINES.values()] if baseline else []


def frame(panel: Panel, title: str, baseline: Baseline | None) -> list[str]:
    """Draw a panel's title, the numbers at its axes, and the lines of the baselines."""
    lines = [f'<text x="{_LEFT}" y="{_TOP - 10}" font-weight="bold">{title}</text>']
    for score in _ticks(panel.low, panel.high):
        lines.append(panel.line(score, 'stroke="#e4e7ec"'))
        lines.append(f'<text x="{_LEFT - 6}" y="{panel.y(score) + 4:.1f}" text-anchor="end">{score:,.0f}</text>')
    lines += [
        f'<text x="{panel.x(step):.1f}" y="{panel.height - 14}" text-anchor="middle">{step / 1000:.0f}k</text>'
        for step in _ticks(0, panel.steps)
    ]
    styles = [style for _, style in baseline_styles()]
    return lines + [panel.line(level, style) for level, style in zip(levels(baseline), styles, strict=False)]


def baseline_styles() -> list[Style]:
    """Return the lines of the baselines for a legend."""
    grey = 'stroke="#475467" stroke-width="1.4"'
    return [(name, f'{grey} stroke-dasharray="{dashes}"') for name, (_, dashes) in _BASELINES.items()]


def page(panels: Sequence[Sequence[str]], columns: int, panel_height: int, text: str, styles: Sequence[Style]) -> str:
    """Lay out panels in columns of one width, and below them a text and a legend with as many lines as it needs."""
    legend = _legend(text, styles)
    top = panel_height * -(-len(panels) // columns)
    height = top + 26 + _LINE * -(-len(styles) // _LABELS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_WIDTH} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{PAGE_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for i, panel in enumerate(panels):
        x, y = i % columns * (PAGE_WIDTH // columns), i // columns * panel_height
        lines += [f'<g transform="translate({x} {y})">', *panel, "</g>"]
    return "\n".join([*lines, f'<g transform="translate(0 {top + 14})">', *legend, "</g>", "</svg>"]) + "\n"


def _legend(text: str, styles: Sequence[Style]) -> list[str]:
    lines = [f'<text x="{_LEFT}" y="0">{text}</text>']
    for i, (label, style) in enumerate(styles):
        x, y = _LEFT + _LABEL_WIDTH * (i % _LABELS), _LINE * (i // _LABELS)
        lines += [f'<path d="M{x} {y + 15}h24" {style}/>', f'<text x="{x + 30}" y="{y + 19}">{label}</text>']
    return lines


def draw(runs: Sequence[dict[str, Any]], baselines: dict[str, Baseline]) -> str:
    """Return an SVG of all runs, which are grouped by their game."""
    games = list(dict.fromkeys(run["game"] for run in runs))
    names = Counter(run["configuration"] for run in runs).most_common()
    colours = {name: COLOURS[i % len(COLOURS)] for i, (name, _) in enumerate(names)}
    panels = [_panel(game, [run for run in runs if run["game"] == game], baselines[game], colours) for game in games]
    text = f"training scores against agent steps: the mean of the last {LAST} episodes, and single episodes as dots"
    styles = [(name, f'stroke="{colour}" stroke-width="1.7"') for name, colour in colours.items()]
    return page(panels, _COLUMNS, _HEIGHT, text, [*styles, *baseline_styles()])


def _panel(game: str, runs: Sequence[dict[str, Any]], baseline: Baseline, colours: dict[str, str]) -> list[str]:
    scores: list[float] = [score for run in runs for _, score, _ in run["episodes"]]
    steps = max(run["agent_steps"] for run in runs)
    panel = fitted(steps, scores + levels(baseline), PAGE_WIDTH // _COLUMNS, _HEIGHT)
    lines = frame(panel, game.replace("_", " "), baseline)
    for run in runs:
        colour = colours[run["configuration"]]
        lines.append(f'<g fill="{colour}" fill-opacity="0.3">')
        lines += [
            f'<circle cx="{panel.x(step):.1f}" cy="{panel.y(score):.1f}" r="1.4"/>'
            for step, score, _ in few(run["episodes"])
        ]
        points = panel.points(few(_curve(run["episodes"])))
        lines += ["</g>", f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.7"/>']
    labels = "; ".join(f"{run['configuration']}, seed {run['seed']}" for run in runs)
    return [*lines, f"<title>{game}: {labels}</title>"]


def few(values: Sequence[T]) -> list[T]:
    """Return MOST values at most, evenly spread, the first and the last among them."""
    if len(values) <= MOST:
        return list(values)
    return [values[i * (len(values) - 1) // (MOST - 1)] for i in range(MOST)]


def _ticks(low: float, high: float) -> list[float]:
    """Two to seven round numbers from `low` to `high`, 0 among them."""
    size = 10.0 ** math.floor(math.log10(high - low))
    step = next(size * part for part in (0.2, 0.5, 1, 2) if (high - low) / (size * part) <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _curve(episodes: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The mean score of the last episodes, at each episode's end."""
    scores = [episode[1] for episode in episodes]
    return [(episodes[i][0], sum(scores[i + 1 - LAST : i + 1]) / LAST) for i in range(LAST - 1, len(scores))]
