"""Draws measured runs: a panel for each game, with a curve for each run and lines for the baselines."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

LAST = 20  # episodes that a point of a curve, and a score, is the mean of

_WIDTH, _HEIGHT, _COLUMNS = 300, 210, 3  # of a panel
_LEFT, _TOP, _RIGHT, _BOTTOM = 54, 30, 18, 30
_COLOURS = ("#2563eb", "#ea580c", "#059669", "#7c3aed", "#db2777", "#0891b2", "#ca8a04", "#4b5563")
_LEGEND = 66
_LABELS = 5  # in a line of the legend


def draw(runs: Sequence[dict[str, Any]], baselines: dict[str, dict[str, Any]]) -> str:
    """An SVG of all runs, which are grouped by their game."""
    games = list(dict.fromkeys(run["game"] for run in runs))
    labels = Counter(_label(run) for run in runs).most_common()
    colours = {label: _COLOURS[i % len(_COLOURS)] for i, (label, _) in enumerate(labels)}
    width, height = _WIDTH * _COLUMNS, _HEIGHT * -(-len(games) // _COLUMNS) + _LEGEND
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, game in enumerate(games):
        lines.append(f'<g transform="translate({i % _COLUMNS * _WIDTH} {i // _COLUMNS * _HEIGHT})">')
        lines += _panel(game, [run for run in runs if run["game"] == game], baselines[game], colours)
        lines.append("</g>")
    lines += [*_legend(height - _LEGEND + 14, colours), "</svg>"]
    return "\n".join(lines) + "\n"


def _panel(game: str, runs: Sequence[dict[str, Any]], baseline: dict[str, Any], colours: dict[str, str]) -> list[str]:
    curves = [_curve(run["episodes"]) for run in runs]
    levels: list[float] = [baseline[name]["mean"] for name in ("random", "best_constant_action")]
    steps: int = max(run["agent_steps"] for run in runs)
    scores: list[float] = [score for run in runs for _, score, _ in run["episodes"]] + levels
    low, high = min(0.0, *scores), max(0.0, *scores)
    margin = 0.03 * (high - low or 1.0)
    low, high = low - margin * (low < 0), high + margin

    def x(step: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * step / steps

    def y(score: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (score - low) / (high - low)

    lines = [f'<text x="{_LEFT}" y="{_TOP - 10}" font-weight="bold">{game.replace("_", " ")}</text>']
    for score in _ticks(low, high):
        lines.append(f'<path d="M{_LEFT} {y(score):.1f}H{_WIDTH - _RIGHT}" stroke="#e4e7ec"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y(score) + 4:.1f}" text-anchor="end">{score:,.0f}</text>')
    lines += [
        f'<text x="{x(step):.1f}" y="{_HEIGHT - 14}" text-anchor="middle">{step / 1000:.0f}k</text>'
        for step in _ticks(0, steps)
    ]
    for level, dashes in zip(levels, ("6 4", "1 4"), strict=True):
        lines.append(
            f'<path d="M{_LEFT} {y(level):.1f}H{_WIDTH - _RIGHT}" stroke="#475467" stroke-width="1.4" '
            f'stroke-dasharray="{dashes}"/>'
        )
    for run, curve in zip(runs, curves, strict=True):
        colour = colours[_label(run)]
        lines += [
            f'<circle cx="{x(step):.1f}" cy="{y(score):.1f}" r="1.4" fill="{colour}" fill-opacity="0.3"/>'
            for step, score, _ in run["episodes"]
        ]
        points = " ".join(f"{x(step):.1f},{y(score):.1f}" for step, score in curve)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.7"/>')
    labels = "; ".join(_label(run) for run in runs)
    return [*lines, f"<title>{game}: {labels}</title>"]


def _ticks(low: float, high: float) -> list[float]:
    """Two to seven round numbers from `low` to `high`, 0 among them."""
    size = 10.0 ** math.floor(math.log10(high - low))
    step = next(size * part for part in (0.2, 0.5, 1, 2) if (high - low) / (size * part) <= 6)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _curve(episodes: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """The mean score of the last episodes, at each episode's end."""
    scores = [episode[1] for episode in episodes]
    return [(episodes[i][0], sum(scores[i + 1 - LAST : i + 1]) / LAST) for i in range(LAST - 1, len(scores))]


def _label(run: dict[str, Any]) -> str:
    return f"{run['configuration']}, seed {run['seed']}"


def _legend(y: float, colours: dict[str, str]) -> list[str]:
    text = f"training scores against agent steps: the mean of the last {LAST} episodes, and each episode as a dot"
    lines = [f'<text x="{_LEFT}" y="{y}">{text}</text>']
    styles = [(label, f'stroke="{colour}" stroke-width="1.7"') for label, colour in colours.items()]
    for name, dashes in (("random policy", "6 4"), ("best constant action", "1 4")):
        styles.append((name, f'stroke="#475467" stroke-width="1.4" stroke-dasharray="{dashes}"'))
    for i, (name, style) in enumerate(styles):
        x, line = _LEFT + 160 * (i % _LABELS), y + 20 * (i // _LABELS)
        lines += [f'<path d="M{x} {line + 15}h24" {style}/>', f'<text x="{x + 30}" y="{line + 19}">{name}</text>']
    return lines
