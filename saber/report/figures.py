"""The figures of a report: normalised scores of each game, performance profiles, and training curves."""

from collections.abc import Sequence
from itertools import cycle
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import Profile
from rainbow_iqn_apex.saber.report.results import (
    CUT,
    FLOOR,
    THRESHOLDS,
    WHOLE,
    Agent,
    Game,
    Results,
    published_normalised,
)
from rainbow_iqn_apex.saber.results.figure import (
    AGENTS,
    PUBLISHED,
    Axis,
    Figure,
    Marker,
    Series,
    Stroke,
    reference_lines,
)
from rainbow_iqn_apex.saber.results.task import COLUMNS, REFERENCES, Task, format_frames

_TICKS = ((0.001, "0.1 %"), (0.01, "1 %"), (0.1, "10 %"), (1, "100 %"), (10, "10³ %"), (100, "10⁴ %"))
_SYMBOLS = ("diamond", "square", "cross", "x", "triangle-up", "star", "pentagon", "hexagon", "triangle-down")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_TURNS = (("solid", "circle"), ("dash", "square"), ("dot", "diamond"))  # of ours, each with all colours
_LEGEND_LINE = 19  # pixels
_LEGEND_WIDTH = 56  # characters that fit beside a line's sample on a telephone


class Style(NamedTuple):
    """How a published agent is drawn."""

    marker: Marker
    line: Stroke


def published_styles(count: int) -> list[Style]:
    """Neighbours differ in colour, symbol and dashes; with more agents than colours, in one of them at least."""
    looks = zip(range(count), cycle(PUBLISHED), cycle(_SYMBOLS), cycle(_DASHES), strict=False)
    return [
        Style(Marker(symbol, 7, colour.light, number >= len(_SYMBOLS)), Stroke(colour.light, 1.5, dash, steps=True))
        for number, colour, symbol, dash in looks
    ]


def agent_line(number: int, *, steps: bool = False) -> Stroke:
    """The line of our agent of this number."""
    return Stroke(_agent_colour(number), 2.5, _turn(number)[0], steps)


def _agent_colour(number: int) -> str:
    return AGENTS[number % len(AGENTS)].light


def _turn(number: int) -> tuple[str, str]:
    return _TURNS[number // len(AGENTS) % len(_TURNS)]


def all_figures(results: Results) -> dict[str, Figure]:
    """Every figure by the id of its element in the page."""
    curves = {f"curve-{number}": curve_figure(results, task) for number, task in enumerate(results.tasks)}
    return normalised_figures(results) | curves


def normalised_figures(results: Results) -> dict[str, Figure]:
    """Figures of normalised scores, by the ids of their elements, if games have a score in common at a mark."""
    figures: dict[str, Figure] = {}
    if results.mark is not None:
        for reference in results.profiles:
            figures[f"bars-{reference}"] = _bar_figure(results, results.mark, reference)
            figures[f"profile-{reference}"] = _profile_figure(results, results.mark, reference)
    return figures


def _bar_figure(results: Results, mark: int, reference: str) -> Figure:
    """Normalised score of each game on a logarithmic axis, highest first.

    One agent of ours has bars, several have points. Markers show what compares with published agents: ours at 30
    minutes, where most of their episodes were cut, and those agents.
    """
    agents = results.compared(mark)
    ours = {agent.name: _means(agent, mark, WHOLE, reference) for agent in agents}
    best = {task: max(scores.get(task, -np.inf) for scores in ours.values()) for one in ours.values() for task in one}
    tasks = sorted(best, key=lambda task: best[task])  # upwards
    series: list[Series] = []
    for agent in agents:
        number = results.agents.index(agent)
        colour = _agent_colour(number)
        symbol = _turn(number)[1]
        name = score_name(results, agent, mark, WHOLE)
        scores = ours[agent.name]
        if len(agents) == 1:
            shown = [max(FLOOR, scores[task]) for task in tasks]
            texts = [f"{task.title}: {100 * scores[task]:,.1f} %" for task in tasks]
            series.append(Series(name, shown, [task.title for task in tasks], bars=colour, hover=texts))
        else:
            series.append(_points(name, tasks, scores, Marker(symbol, 11, colour)))
        cut = _means(agent, mark, CUT, reference)
        cut_name = score_name(results, agent, mark, CUT)
        series.append(_points(cut_name, tasks, cut, Marker(symbol, 8, colour, is_open=True)))
    for column, style in zip(COLUMNS, published_styles(len(COLUMNS)), strict=True):
        found = {task: published_normalised(task, column, reference) for task in tasks}
        scores = {task: score for task, score in found.items() if score is not None}
        hidden = _is_hidden(results, mark, column)
        series.append(_points(COLUMNS[column].label, tasks, scores, style.marker, hidden=hidden))
    series = [one for one in series if one.x]
    reach = max([1.0, *(max(one.x) for one in series)])
    y_axis = Axis(limits=(-0.6, len(tasks) - 0.4), categories=tuple(task.title for task in tasks))
    return _comparison(series, reference, reach * 1.25, y_axis, 130 + 17 * max(4, len(tasks)))


def _means(agent: Agent, mark: int, limit: str, reference: str) -> dict[Task, float]:
    return {task: float(scores.mean()) for task, scores in agent.normalised(mark, limit, reference).items()}


def _points(name: str, tasks: list[Task], scores: dict[Task, float], marker: Marker, *, hidden: bool = False) -> Series:
    """A score for each of the games that have one which the axis shows."""
    shown = [task for task in tasks if scores.get(task, 0) >= FLOOR]
    x = [float(f"{scores[task]:.6g}") for task in shown]
    template = "%{y}: %{x:.1%}<extra>%{fullData.name}</extra>"
    return Series(name, x, [task.title for task in shown], marker=marker, hidden=hidden, hover=template)


def _profile_figure(results: Results, mark: int, reference: str) -> Figure:
    """Fraction of games and runs above each normalised score (Agarwal et al. 2021), with the bootstrap's band; ours at
    30 minutes, too, to compare with published agents.
    """
    profiles = results.profiles[reference]
    series: list[Series] = []
    for agent in results.compared(mark):
        number = results.agents.index(agent)
        whole, cut = (profiles.ours[agent.name][limit] for limit in (WHOLE, CUT))
        line = agent_line(number, steps=True)
        series.append(_profile(score_name(results, agent, mark, WHOLE), whole, line, banded=True))
        thin = Stroke(_agent_colour(number), 1.5, "dashdot", steps=True)
        series.append(_profile(score_name(results, agent, mark, CUT), cut, thin))
    for column, style in zip(COLUMNS, published_styles(len(COLUMNS)), strict=True):
        if published := profiles.published.get(column):
            hidden = _is_hidden(results, mark, column)
            series.append(_profile(COLUMNS[column].label, published, style.line, hidden=hidden))
    y_axis = Axis("fraction above", limits=(-0.02, 1.02), percent=True)
    return _comparison(series, reference, 110, y_axis, 400)


def _profile(name: str, found: Profile, line: Stroke, *, hidden: bool = False, banded: bool = False) -> Series:
    template = "%{x:.1%}: %{y:.1%}<extra>%{fullData.name}</extra>"
    band = None
    if banded and found.low is not None and found.high is not None:
        band = (rounded(found.low), rounded(found.high))
    return Series(name, _exact(THRESHOLDS), rounded(found.fraction), line, band=band, hidden=hidden, hover=template)


def score_name(results: Results, agent: Agent, mark: int, limit: str) -> str:
    """Return the name of an agent's scores at a mark and a limit where published ones stand beside them."""
    rules = f"({agent.protocols.label}, {format_frames(mark)})"
    return _legend_text(f"{agent.name}, {results.protocols.limit_name(limit)}", rules)


def _is_hidden(results: Results, mark: int, column: str) -> bool:
    """Return whether a published agent is drawn only when its name in the legend is clicked.

    It is unless it compares with our runs: it has played the same task, for as many frames.
    """
    published = COLUMNS[column]
    return not (results.protocols.equal(published.protocol) and published.frames == mark)


def _comparison(series: Sequence[Series], reference: str, reach: float, y_axis: Axis, height: int) -> Figure:
    """A wide plot against normalised scores up to `reach`; `height` is in pixels, without the legend."""
    limits = (float(np.log10(FLOOR)), float(np.log10(reach)))
    x_axis = Axis(f"score, 100 % = {REFERENCES[reference]}", limits, log=True, ticks=_TICKS)
    lines = sum(1 + one.name.count("\n") for one in series)
    return Figure(series, x_axis, y_axis, par=1, height=height + _LEGEND_LINE * lines)


def curve_figure(results: Results, task: Task) -> Figure:
    """The curves of all agents that have played a game, with lines of the random agent, the human and the record."""
    series: list[Series] = []
    for number, agent in enumerate(results.agents):
        if game := agent.games.get(task):
            series += _agent_curves(game, f"{agent.name}:" if len(results.agents) > 1 else "", number)
    scores = [value for one in series for value in one.y if isinstance(value, float)]
    lines = reference_lines(task.scores, min(scores), max(scores))
    return Figure(
        series,
        Axis("frames" if task.is_atari else "agent steps", from_zero=True, most_ticks=5),
        Axis("score", lines.limits, most_ticks=6),
        title=task.title,
        caption=lines.caption,
        references=lines.lines,
        legend=False,
    )


def _agent_curves(game: Game, agent: str, number: int) -> list[Series]:
    """Every run as a thin line; where two or more have one, their mean and a band from the lowest to the highest."""
    having = (~np.isnan(game.curves.runs)).sum(0)  # [points]
    runs = game.curves.runs
    mean = np.where(having >= min(2, len(runs)), np.nansum(runs, 0) / np.maximum(1, having), np.nan)
    frames = _exact(game.curves.frames)
    colour = _agent_colour(number)
    series: list[Series] = []
    name = _run_name(game, 0)
    band = None
    if len(runs) > 1:
        name = f"mean of {'up to ' * (len(runs) > 2)}{len(runs)} runs"
        high, low = (np.where(np.isnan(mean), np.nan, bound) for bound in (np.fmax.reduce(runs), np.fmin.reduce(runs)))
        band = (rounded(low), rounded(high))
        thin = Stroke(colour, 1)
        series += [
            Series(
                _legend_text(agent, _run_name(game, index)), frames, rounded(run), thin, opacity=0.45, in_legend=False
            )
            for index, run in enumerate(runs)
        ]
    unit = "frames" if game.task.is_atari else "steps"
    template = f"%{{fullData.name}}<br>%{{x:.4s}} {unit}<br>score %{{y:,.1f}}<extra></extra>"
    dots = len(frames) <= 30
    name = _legend_text(agent, name)
    mean_line = agent_line(number)
    return [*series, Series(name, frames, rounded(mean), mean_line, dots=dots, band=band, hover=template)]


def _run_name(game: Game, number: int) -> str:
    seed = game.runs[number].settings.get("seed")
    return f"run {number + 1}" if seed is None else f"seed {seed}"


def _legend_text(*parts: str) -> str:
    """Write the series as one line of a legend, or each in lines of its own if they are too long for one."""
    whole = " ".join(filter(None, parts))
    if len(whole) <= _LEGEND_WIDTH:
        return whole
    return "\n".join(line for part in parts for line in wrap(part, _LEGEND_WIDTH, break_on_hyphens=False))


def _exact(values: Array) -> list[float]:
    return [float(f"{value:.9g}") for value in values]


def rounded(values: Array) -> list[float | None]:
    """Numbers [n] as JSON takes them, to six digits; None for nan."""
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in values]
