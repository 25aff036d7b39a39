"""The plot `Reward_<game>.html`: statistics of the last 100 training episodes against agent steps.

Beside them it shows the mean of the last 100 episodes of evaluation actors, if the run has any, in a line of its own.
The plot is a pure function of the two logs, so a restart loses nothing. Writing it takes a fraction of a second,
also after 100 000 episodes. An open page brings itself up to date.
"""

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import FRAMES_PER_MINUTE
from rainbow_iqn_apex.saber.results.figure import (
    BLUE,
    MAGENTA,
    ORANGE,
    TEAL,
    ReferenceLines,
    band,
    reference_label,
    reference_lines,
    references,
)
from rainbow_iqn_apex.saber.results.page import render_page
from rainbow_iqn_apex.saber.results.summary import Moment, ScoreCurve, Summary
from rainbow_iqn_apex.saber.results.task import Task, format_points

_STYLE = """body { height: 100vh; display: flex; flex-direction: column; overflow: hidden; }
#plot { flex: 1; min-height: 0; }
.paper body { display: block; height: auto; overflow: visible; }
.paper #plot { height: 480px; }"""


def render_reward_plot(training: ScoreCurve, evaluations: ScoreCurve, task: Task, action_repeat: int = 4) -> str:
    """Return the page of training episodes and of those of evaluation actors; equal ones give equal pages.

    `action_repeat` is the number of frames per agent step.
    """
    moments, evaluated = training.moments, evaluations.moments
    title = f"{task.title}: training scores"
    sentences = [
        _describe(moments, training.episodes, task, action_repeat),
        _describe_evaluations(evaluated, evaluations.episodes),
        _describe_references(task),
    ]
    summary = " ".join(filter(None, sentences))
    body = f'<header><h1>{escape(title)}</h1><p id="summary">{escape(summary)}</p></header>\n<div id="plot"></div>'
    figure = reward_figure(moments, task, action_repeat, evaluated)
    return render_page(title, body, {"plot": figure}, _STYLE, live=True)


def reward_figure(
    moments: Sequence[Moment], task: Task, action_repeat: int, evaluated: Sequence[Moment] = ()
) -> dict[str, Any]:
    """Build plotly's figure, without the colours of text and grid: the page sets them for a light or a dark display."""
    summaries = [moment.summary for moment in moments]
    means = [summary.mean for summary in summaries]
    spreads = [summary.standard_deviation for summary in summaries]
    trace = partial(_trace, moments)
    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "legendgroup": "band"}
    upper = [None if spread is None else mean + spread for mean, spread in zip(means, spreads, strict=True)]
    lower = [None if spread is None else mean - spread for mean, spread in zip(means, spreads, strict=True)]
    minima = [summary.minimum for summary in summaries]
    maxima = [summary.maximum for summary in summaries]
    scores = [moment.summary.mean for moment in evaluated]
    values = (lower, upper, minima, maxima, scores)
    drawn = [value for part in values for value in part if value is not None] or [0.0]
    lines = reference_lines(task.scores if moments or evaluated else None, min(drawn), max(drawn))
    texts = [_hover_text(moment, task, action_repeat) for moment in moments]
    return {
        "data": [
            trace("mean + 1 standard deviation", upper, **edge, showlegend=False),
            trace("± 1 standard deviation", lower, **edge, fill="tonexty", fillcolor=band(BLUE.light), legendrank=2),
            trace("max", maxima, line={"width": 1, "color": ORANGE.light}, legendrank=3),
            trace(
                "mean", means, line={"width": 2.5, "color": BLUE.light}, hoverinfo="text", hovertext=texts, legendrank=1
            ),
            trace("min", minima, line={"width": 1, "color": TEAL.light}, legendrank=4),
            *([_evaluation_trace(evaluated, scores, task, action_repeat)] if evaluated else []),
        ],
        "layout": _layout(task, lines, empty=not moments and not evaluated),
    }


def _trace(moments: Sequence[Moment], name: str, values: Sequence[float | None], **style: Any) -> dict[str, Any]:
    steps = [moment.newest.T_actors for moment in moments]
    mode = "lines" if len(moments) > 30 else "lines+markers"  # a single point has no line
    return {"type": "scatter", "name": name, "x": steps, "y": values, "mode": mode, "hoverinfo": "skip", **style}


def _evaluation_trace(
    evaluated: Sequence[Moment], scores: Sequence[float], task: Task, action_repeat: int
) -> dict[str, Any]:
    texts = [f"<b>evaluation</b><br>{_hover_text(moment, task, action_repeat)}" for moment in evaluated]
    stroke = {"width": 2.5, "color": MAGENTA.light}
    return _trace(evaluated, "evaluation", scores, line=stroke, hoverinfo="text", hovertext=texts, legendrank=5)


def _layout(task: Task, lines: ReferenceLines, *, empty: bool) -> dict[str, Any]:
    axis = {"zeroline": False, "automargin": True, "showline": True, "ticks": "outside", "nticks": 8}
    layout: dict[str, Any] = {
        "xaxis": {
            **axis,
            "title": {"text": "agent steps (all actors together)"},
            "rangemode": "tozero",
            "spikethickness": 1,
            "spikedash": "solid",
        },
        "yaxis": {
            **axis,
            **lines.y_axis,
            "title": {"text": "SABER score per episode" if task.is_atari else "score per episode"},
        },
        "hovermode": "x",
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},  # above the data, never over it
        "margin": {"l": 20, "r": 20, "t": 40, "b": 20},
        "shapes": lines.shapes,
    }
    if empty:
        for name in ("xaxis", "yaxis"):
            layout[name] |= {"range": [0, 1], "showticklabels": False, "showgrid": False, "ticks": ""}
    return layout


def _hover_text(moment: Moment, task: Task, action_repeat: int) -> str:
    summary, longest = moment.summary, moment.longest
    minutes = f" ({longest.length * action_repeat / FRAMES_PER_MINUTE:,.1f} min)" if task.is_atari else ""
    return "<br>".join(
        [
            f"<b>mean {_mean_and_spread(summary)}</b>",
            f"min {_episode(summary.minimum)}, max {_episode(summary.maximum)}",
            f"{counted(summary.episodes, 'episode')}, mean length {summary.mean_length:,.0f} agent steps",
            f"longest {longest.length:,} agent steps{minutes}",
            f"score of the longest {_episode(longest.score_saber)}",
            f"agent step {moment.newest.T_actors:,}",
            f"learner's step {moment.newest.T_learner:,}",
        ]
    )


def _describe(moments: Sequence[Moment], total: int, task: Task, action_repeat: int) -> str:
    if not moments:
        return "No training episode has ended yet."
    summary, steps = moments[-1].summary, moments[-1].newest.T_actors
    which = f"the last {summary.episodes} of {total:,} training episodes"
    if summary.episodes == total:
        which = f"the {counted(total, 'episode')} so far"
    frames = f" ({steps * action_repeat:,} frames)" if task.is_atari else ""
    return f"Mean {_mean_and_spread(summary)} over {which}, at {steps:,} agent steps{frames}."


def _describe_evaluations(evaluated: Sequence[Moment], total: int) -> str:
    if not evaluated:
        return ""
    summary, steps = evaluated[-1].summary, evaluated[-1].newest.T_actors
    which = f"the last {summary.episodes} of " if summary.episodes < total else ""
    which += counted(total, "episode")
    return f"Evaluation: mean {_mean_and_spread(summary)} over {which}, of weights up to {steps:,} agent steps."


def _describe_references(task: Task) -> str:
    """Name all references of a game, as those far from its scores have no line."""
    known = [reference_label(name, value) for name, value in references(task.scores).items()]
    return f"To compare: {', '.join(known)}." if known else ""


def _episode(score: float) -> str:
    """Write the score of one episode, which is whole in most games."""
    return f"{score:,.0f}" if float(score).is_integer() else format_points(score)


def _mean_and_spread(summary: Summary) -> str:
    spread = "" if summary.standard_deviation is None else f" ± {format_points(summary.standard_deviation)}"
    return f"{format_points(summary.mean)}{spread}"
