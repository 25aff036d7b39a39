"""Draws the runs with mixed replay: a panel for each game and its rules, with one colour for each variant.

A variant is what a batch replays. Its curve is the mean over its seeds, its band reaches from the lowest seed to the
highest; a variant with a single seed has a dashed curve and no band.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from benchmarks.learning_plot import (
    COLOURS,
    LAST,
    PAGE_WIDTH,
    Baseline,
    Panel,
    Style,
    baseline_styles,
    fitted,
    frame,
    levels,
    page,
)

SMOOTHED = 100  # episodes that a point of a curve, and a score, is the mean of
PREFIX = "clear-"  # of these runs' configurations
BASE = "uniform"  # the variant that others are compared with
RULES, PLAIN_RULES = "SABER's rules", "without sticky actions"

_GRID = 150  # points of a curve
_COLUMNS, _HEIGHT = 2, 260  # of panels
_SUFFIX, _PLAIN = "-cpu", "-plain"
_VARIANTS = (BASE, "elite1", "elite3", "attentive")  # in this order, before all others
_DASHES = ' stroke-dasharray="5 3"'  # of a single seed

Run = dict[str, Any]


class Setting(NamedTuple):
    """Names what a panel shows."""

    game: str
    rules: str


class Point(NamedTuple):
    """Holds the scores of a variant's seeds at some agent steps."""

    step: float
    low: float
    mean: float
    high: float


Variants = dict[str, list[Run]]  # runs of several seeds by variant


def is_mixed(run: Run) -> bool:
    """Return whether a run belongs here."""
    return str(run["configuration"]).startswith(PREFIX)


def grouped(runs: Sequence[Run]) -> dict[Setting, Variants]:
    """Return the runs with mixed replay by game and rules, then by variant; the runs of a variant by seed."""
    found: dict[Setting, Variants] = {}
    for run in sorted(filter(is_mixed, runs), key=_order):
        setting = Setting(run["game"], rules_of(run))
        found.setdefault(setting, {}).setdefault(variant_of(run), []).append(run)
    return found


def rules_of(run: Run) -> str:
    """Return the rules that a run was played by."""
    return PLAIN_RULES if run["configuration"].removesuffix(_SUFFIX).endswith(_PLAIN) else RULES


def variant_of(run: Run) -> str:
    """Return what a run replays, as its configuration names it."""
    name: str = run["configuration"].removeprefix(PREFIX).removesuffix(_SUFFIX)
    return name.removesuffix(_PLAIN)


def _order(run: Run) -> tuple[Any, ...]:
    variant = variant_of(run)
    rank = _VARIANTS.index(variant) if variant in _VARIANTS else len(_VARIANTS)
    return run["game"], rules_of(run) != RULES, rank, variant, run["seed"]


def last_scores(run: Run, step: float) -> list[float]:
    """Return the scores of the last SMOOTHED episodes that had ended by some agent steps."""
    ended = bisect_right(run["episodes"], step, key=itemgetter(0))
    return [score for _, score, _ in run["episodes"][max(0, ended - SMOOTHED) : ended]]


def curve(runs: Sequence[Run]) -> list[Point]:
    """Return the smoothed scores of one variant's seeds, from where each seed has ended LAST episodes."""
    steps = min(run["agent_steps"] for run in runs)
    points = []
    for i in range(1, _GRID + 1):
        step = steps * i / _GRID
        scores = [last_scores(run, step) for run in runs]
        if all(len(of) >= LAST for of in scores):
            means = [statistics.fmean(of) for of in scores]
            points.append(Point(step, min(means), statistics.fmean(means), max(means)))
    return points


def draw_mixed(runs: Sequence[Run], baselines: dict[str, Baseline]) -> str:
    """Return an SVG of the runs with mixed replay; baselines are those of SABER's rules, by game."""
    settings = grouped(runs)
    variants = sorted(
        {variant for found in settings.values() for variant in found},
        key=lambda variant: (_VARIANTS.index(variant) if variant in _VARIANTS else math.inf, variant),
    )
    colours = {variant: COLOURS[i % len(COLOURS)] for i, variant in enumerate(variants)}
    shown = {setting: baselines.get(setting.game) if setting.rules == RULES else None for setting in settings}
    panels = [_panel(setting, found, shown[setting], colours) for setting, found in settings.items()]
    text = (
        f"training scores against agent steps: the mean of the last {SMOOTHED} episodes, averaged over seeds, "
        "with a band from the lowest seed to the highest"
    )
    styles = [_style(variant, colours[variant], settings) for variant in variants]
    return page(panels, _COLUMNS, _HEIGHT, text, styles + (baseline_styles() if any(shown.values()) else []))


def _style(variant: str, colour: str, settings: dict[Setting, Variants]) -> Style:
    """Return a variant's line in the legend, which tells where there is a single seed."""
    seeds = {len(found[variant]) for found in settings.values() if variant in found}
    label = variant if 1 not in seeds else f"{variant}, one seed" if seeds == {1} else f"{variant} (dashed: 1 seed)"
    return label, f'stroke="{colour}" stroke-width="2"{_DASHES if seeds == {1} else ""}'


def _panel(setting: Setting, variants: Variants, baseline: Baseline | None, colours: dict[str, str]) -> list[str]:
    curves = {variant: curve(runs) for variant, runs in variants.items()}
    scores = [score for points in curves.values() for point in points for score in (point.low, point.high)]
    steps = max(run["agent_steps"] for runs in variants.values() for run in runs)
    panel = fitted(steps, [*scores, *levels(baseline)], PAGE_WIDTH // _COLUMNS, _HEIGHT)
    lines = frame(panel, f"{setting.game.replace('_', ' ')}, {setting.rules}", baseline)
    many = {variant: points for variant, points in curves.items() if len(variants[variant]) > 1}
    lines += [_band(panel, points, colours[variant]) for variant, points in many.items()]
    for variant, points in curves.items():
        style = f'stroke="{colours[variant]}" stroke-width="2"{"" if variant in many else _DASHES}'
        means = panel.points([(point.step, point.mean) for point in points])
        lines.append(f'<polyline points="{means}" fill="none" {style}/>')
    seeds = "; ".join(f"{name}, seeds {' '.join(str(run['seed']) for run in of)}" for name, of in variants.items())
    return [*lines, f"<title>{setting.game}, {setting.rules}: {seeds}</title>"]


def _band(panel: Panel, points: Sequence[Point], colour: str) -> str:
    """Draw the area between the lowest seed and the highest: along the one, and back along the other."""
    edge = [(point.step, point.low) for point in points] + [(point.step, point.high) for point in reversed(points)]
    return f'<polygon points="{panel.points(edge)}" fill="{colour}" fill-opacity="0.15"/>'
