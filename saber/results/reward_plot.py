"""The plot `Reward_<game>.html`: statistics of the last 100 training episodes against agent steps.

Beside them it shows the mean of the last 100 episodes of evaluation actors, if the run has any, in a line of its own.
The plot is a pure function of the two logs, so a restart loses nothing. Writing it takes a fraction of a second,
also after 100 000 episodes. An open page brings itself up to date.
"""

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import FRAMES_PER_MINUTE
from rainbow_iqn_apex.saber.results.figure import (
    BLUE,
    MAGENTA,
    ORANGE,
    TEAL,
    Axis,
    Figure,
    Series,
    Stroke,
    reference_label,
    reference_lines,
    references,
)
from rainbow_iqn_apex.saber.results.page import render_page
from rainbow_iqn_apex.saber.results.summary import Moment, ScoreCurve, Summary
from rainbow_iqn_apex.saber.results.task import Task, format_points

_DOTTED = 30  # at most so many points of a line are marked: a single point has no line
_STYLE = """body { height: 100vh; display: flex; flex-direction: column; overflow: hidden; }
#plot { flex: 1; min-height: 0; }
.paper body { display: block; height: auto; overflow: visible; }
.paper #plot { height: 480px; }"""


def render_reward_plot(training: ScoreCurve, evaluations: ScoreCurve, task: Task, action_repeat: int = 4) -> str:
    """Return the page of training episodes and of those of evaluation actors; equal ones give equal pages.

    `action_repeat` is the number of frames per agent step.
    """
    moments = training.moments
    evaluated = evaluations.moments
    title = f"{task.title}: training scores"
    known = [reference_label(name, value) for name, value in references(task.scores).items()]
    sentences = [
        _describe(moments, training.episodes, task, action_repeat),
        _describe_evaluations(evaluated, evaluations.episodes),
        f"To compare: {', '.join(known)}." if known else "",  # all of them, as those far from its scores have no line
    ]
    summary = " ".join(filter(None, sentences))
    body = f'<header><h1>{escape(title)}</h1><p id="summary">{escape(summary)}</p></header>\n<div id="plot"></div>'
    figure = reward_figure(moments, task, action_repeat, evaluated)
    return render_page(title, body, {"plot": figure}, _STYLE, live=True)


def reward_figure(
    moments: Sequence[Moment], task: Task, action_repeat: int, evaluated: Sequence[Moment] = ()
) -> Figure:
    """Describe the figure of the page."""
    steps = [moment.newest.T_actors for moment in moments]
    summaries = [moment.summary for moment in moments]
    means = [summary.mean for summary in summaries]
    spreads = [summary.standard_deviation for summary in summaries]
    upper = [None if spread is None else mean + spread for mean, spread in zip(means, spreads, strict=True)]
    lower = [None if spread is None else mean - spread for mean, spread in zip(means, spreads, strict=True)]
    minima = [summary.minimum for summary in summaries]
    maxima = [summary.maximum for summary in summaries]
    scores = [moment.summary.mean for moment in evaluated]
    values = (lower, upper, minima, maxima, scores)
    drawn = [value for part in values for value in part if value is not None] or [0.0]
    empty = not moments and not evaluated
    lines = reference_lines(None if empty else task.scores, min(drawn), max(drawn))
    texts = [_hover_text(moment, task, action_repeat) for moment in moments]
    dots = len(moments) <= _DOTTED
    thick = Stroke(BLUE.light, 2.5)
    band = "± 1 standard deviation"
    series = [
        Series("mean", steps, means, thick, dots=dots, band=(lower, upper), band_name=band, hover=texts),
        Series("max", steps, maxima, Stroke(ORANGE.light, 1), dots=dots),
        Series("min", steps, minima, Stroke(TEAL.light, 1), dots=dots),
    ]
    if evaluated:
        ends = [moment.newest.T_actors for moment in evaluated]
        texts = [f"<b>evaluation</b><br>{_hover_text(moment, task, action_repeat)}" for moment in evaluated]
        line = Stroke(MAGENTA.light, 2.5)
        series.append(Series("evaluation", ends, scores, line, dots=len(ends) <= _DOTTED, hover=texts))
    axis = Axis(most_ticks=8, blank=empty, limits=(0, 1) if empty else None)
    score = "SABER score per episode" if task.is_atari else "score per episode"
    return Figure(
        series,
        x=replace(axis, title="agent steps (all actors together)", from_zero=True),
        y=replace(axis, title=score, limits=lines.limits or axis.limits),
        references=lines.lines,
        zoom=True,
    )


def _hover_text(moment: Moment, task: Task, action_repeat: int) -> str:
    summary = moment.summary
    longest = moment.longest
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
    summary = moments[-1].summary
    steps = moments[-1].newest.T_actors
    which = f"the last {summary.episodes} of {total:,} training episodes"
    if summary.episodes == total:
        which = f"the {counted(total, 'episode')} so far"
    frames = f" ({steps * action_repeat:,} frames)" if task.is_atari else ""
    return f"Mean {_mean_and_spread(summary)} over {which}, at {steps:,} agent steps{frames}."


def _describe_evaluations(evaluated: Sequence[Moment], total: int) -> str:
    if not evaluated:
        return ""
    summary = evaluated[-1].summary
    steps = evaluated[-1].newest.T_actors
    which = f"the last {summary.episodes} of " if summary.episodes < total else ""
    which += counted(total, "episode")
    return f"Evaluation: mean {_mean_and_spread(summary)} over {which}, of weights up to {steps:,} agent steps."


def _episode(score: float) -> str:
    """Write the score of one episode, which is whole in most games."""
    return f"{score:,.0f}" if float(score).is_integer() else format_points(score)


def _mean_and_spread(summary: Summary) -> str:
    spread = "" if summary.standard_deviation is None else f" ± {format_points(summary.standard_deviation)}"
    return f"{format_points(summary.mean)}{spread}"
