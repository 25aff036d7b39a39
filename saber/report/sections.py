"""The page `saber.html`: sections of text, tables and places for plots.

A report without a game of the emulator has no word about SABER, Atari's references or frames.
"""

from collections.abc import Sequence
from html import escape
from itertools import count
from pathlib import Path

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import MARKS, SCORE_EPISODES
from rainbow_iqn_apex.saber.report import tables
from rainbow_iqn_apex.saber.report.exports import SCORE
from rainbow_iqn_apex.saber.report.figures import agent_line, all_figures
from rainbow_iqn_apex.saber.report.results import WHOLE, Agent, Results
from rainbow_iqn_apex.saber.report.table import GAP, to_html
from rainbow_iqn_apex.saber.report.tables import describe_agent, notes
from rainbow_iqn_apex.saber.results.figure import Figure
from rainbow_iqn_apex.saber.results.page import SHADES, render_page
from rainbow_iqn_apex.saber.results.task import REFERENCES, format_frames

_STYLE = Path(__file__).with_name("report.css").read_text("utf-8").rstrip()

_SWATCHES = {"solid": "solid", "dash": "dashed", "dot": "dotted"}  # of CSS, by the dash of a line


def render_report(results: Results) -> str:
    """Write the page."""
    figures = all_figures(results)
    title = "SABER report" if results.atari else "Training report"
    parts = [_header(title, results), "<main>"]
    if results.atari:
        parts += _normalised_section(results, figures)
    parts += _curve_section(results, figures) + _game_section(results) + _evaluation_section(results)
    parts += [*_method_section(results), "</main>"]
    return render_page(title, "\n".join(parts), figures, _STYLE)


def extent(results: Results) -> str:
    """How much there is, in a few words."""
    what = "game" if not results.others else "environment"
    texts = [counted(len(results.tasks), what), counted(len(results.runs), "run")]
    texts += [f"{len(results.agents)} agents"] * (len(results.agents) > 1)
    texts += [counted(len(results.evaluations), "evaluation")] * bool(results.evaluations)
    return ", ".join(texts)


def _header(title: str, results: Results) -> str:
    lines = [extent(results)]
    if results.atari:
        found = sum(task.scores is not None and task.scores.in_atari57 for task in results.atari)
        lines[0] += f"; {found} of the 57 games that most papers report. {_reach(results)}"
    for agent in results.agents:
        name = f"<strong>{escape(agent.name)}</strong>: " if len(results.agents) > 1 else ""
        lines.append(f"{name}{escape(describe_agent(agent))} {escape(agent.protocols.sentence)}")
    return f"<header><h1>{title}</h1>{''.join(f'<p>{line}</p>' for line in lines)}</header>"


def _reach(results: Results) -> str:
    if results.mark is None:
        longest = max(run.reached for run in results.runs if run.task.is_atari)
        return (
            f"No run has a score at a mark yet: that takes {format_frames(MARKS[0])} frames, of which the longest run "
            f"has made {longest:,}, and {SCORE_EPISODES} episodes by then."
        )
    if not results.profiles:
        return (
            f"At {format_frames(results.mark)} frames no game has known references and a score of every agent, so "
            "there is no plot over games."
        )
    games = {task for agent in results.agents for task in agent.scored(results.mark)}
    text = f"Plots of normalised scores are at {format_frames(results.mark)} frames; games with a score there: "
    missing = [format_frames(mark) for mark in MARKS if mark not in results.marks]
    return f"{text}{len(games)}." + (f" No run has a score at {', '.join(missing)} frames." if missing else "")


def _normalised_section(results: Results, figures: dict[str, Figure]) -> list[str]:
    if results.mark is None or not any(results.aggregates.values()):
        return []
    limit = results.protocols.limit_name(WHOLE)
    at = format_frames(results.mark)
    parts = [
        "<h2>Over games</h2>",
        "<p>0 % is the random agent, 100 % the reference. Brackets: 95 % stratified bootstrap interval over runs, "
        "where every game has two or more; with few runs it is too narrow. “Above” counts the games above 100 %. "
        "Agents are compared over the games that all of them have a score of at that mark, and over no others. "
        "Published agents count on these games as far as they have a score; the last column counts them.</p>",
        "<p>Sticky actions and no-op starts are different tasks, and scores rise with the frames of training: "
        "published agents that are not known to have played with the sticky actions of our runs, and those of other "
        f"lengths than {at} frames, are drawn when their name in a legend is clicked. Most published episodes were "
        "cut at 30 minutes (those of Dopamine after 27 000 agent steps), though the table of their scores does not "
        "tell which: ours at 30 minutes compare with them, ours at other lengths do not.</p>",
        to_html(tables.aggregate_table(results)),
    ]
    for reference, label in REFERENCES.items():
        if f"bars-{reference}" in figures:
            games = tables.describe_games(results, results.mark, reference)
            drawn = "Bars" if len(results.compared(results.mark)) == 1 else "Large markers"
            parts += [
                f'<section class="plot"><h2>Normalised by {label}</h2>',
                f"<p>{drawn}: our scores, {limit}. Other markers compare with each other: open ones for ours at 30 "
                "minutes, small filled ones for published agents. What is at or below 0.1 % is not drawn.</p>",
                _tall_plot(f"bars-{reference}", figures),
                f'</section><section class="plot"><h3>Performance profile, normalised by {label}</h3>',
                f"<p>At {at} frames, {escape(games)}. Thick, with the interval: "
                f"our scores, {limit}. Thin and dash-dotted in the same colour: ours at 30 minutes, to compare with "
                "published agents.</p>",
                _tall_plot(f"profile-{reference}", figures),
                "</section>",
            ]
    return parts


def _tall_plot(name: str, figures: dict[str, Figure]) -> str:
    return f'<div id="{name}" style="height: {figures[name].height}px"></div>'


def _curve_section(results: Results, figures: dict[str, Figure]) -> list[str]:
    plots = []
    for name in (f"curve-{number}" for number in range(len(results.tasks))):
        title = escape(figures[name].title)
        plots += [
            f"<figure><figcaption>{title}<small>{escape(figures[name].caption)}</small></figcaption>"
            f'<div id="{name}" role="img" aria-label="Training curve of {title}"></div></figure>'
        ]
    lines = " The random agent, the human and the world record are named below the title; those that are near have a "
    lines = f"{lines}line." if results.atari else ""
    return [
        "<h2>Training curves</h2>",
        "<p>Score of whole episodes, mean of the last 100 training episodes (of all so far while there are fewer). "
        "Thin: each run. Thick, with a band from the lowest to the highest run: mean of the runs that have come so "
        f"far, while two or more have.{lines}</p>",
        _agent_legend(results),
        '<div class="curves">',
        *plots,
        "</div>",
    ]


def _agent_legend(results: Results) -> str:
    if len(results.agents) == 1:
        return ""
    names = [
        f'<span><i style="border-color: light-dark({stroke.colour}, {SHADES[stroke.colour]}); '
        f'border-top-style: {_SWATCHES[stroke.dash]}"></i>{escape(agent.name)}</span>'
        for stroke, agent in zip(map(agent_line, count()), results.agents, strict=False)
    ]
    return f'<p class="agents">{"".join(names)}</p>'


def _game_section(results: Results) -> list[str]:
    parts = ["<h2>Game by game</h2>"] if results.atari else []
    if results.marks:
        score = escape(SCORE.replace("null", f"“{GAP}”"))
        parts.append(f"<p>In points: {score}. Means over runs; “2 of 3” says how many have a score.</p>")
        parts.append(to_html(tables.game_table(results)))
    if (now := tables.now_table(results)).rows:
        parts.append(
            f"<p>Runs without a score at a mark, now: mean over their last {SCORE_EPISODES} training "
            "episodes, or over all so far. Runs of other lengths do not compare.</p>"
        )
        parts.append(to_html(now))
    if results.atari:
        table = to_html(tables.reference_table(results))
        parts.append(f"<details><summary>References and published scores of these games</summary>{table}</details>")
    if results.others:
        parts.append(f"<h2>{'Other environments' if results.atari else 'Environments'}</h2>")
        parts.append(
            f"<p>Mean score of whole episodes, over the last {SCORE_EPISODES} training episodes or over all so far.</p>"
        )
        parts.append(to_html(tables.other_table(results)))
    return [*parts, *map(_dmlab30, results.agents)]


def _dmlab30(agent: Agent) -> str:
    if not (found := agent.dmlab30):
        return ""
    return (
        f"<p>{escape(agent.name)}: mean capped human-normalised score {100 * found.capped_mean:.1f} % over "
        f"{found.levels} of the 30 levels of DMLab-30 (Espeholt et al. 2018): 0 % is the random agent, 100 % the "
        "human; no level counts for more. These are training scores, and none of levels that are held out.</p>"
    )


def _evaluation_section(results: Results) -> list[str]:
    if not results.evaluations:
        return []
    parts = [
        "<h2>Evaluations of snapshots</h2>",
        "<p>By test_multiple_seed.py: a snapshot, whose weights no longer change, plays episodes by the rules in its "
        "row, each from a seed of its own. Mean, in points, with Student's 95 % interval over the episodes of this one "
        "snapshot; other training seeds vary more. These are no scores of training, and do not compare with those "
        "above. A best_model was chosen for its training scores, so its score is biased upwards.</p>",
    ]
    for atari in (True, False):
        table = tables.evaluation_table(results, atari=atari)
        parts += [to_html(table)] if table.rows else []
    return parts


def _method_section(results: Results) -> list[str]:
    parts = ["<h2>How it was measured</h2>"]
    if len(results.agents) > 1:
        parts += [
            "<h3>Differences of the agents</h3>",
            "<p>Settings that take part in learning and are not the same; what only tells runs and machines apart, as "
            "seeds and numbers of actors, is none. Nor is the length of a run, T_max, though the importance-sampling "
            "exponent rises over it. T_max counts as a difference for agents whose learning rate falls to 0 there.</p>",
            to_html(tables.difference_table(results, shared=True)),
            *_own_settings(results),
        ]
    parts += ["<h3>Runs</h3>", to_html(tables.run_table(results))]
    parts += _lines("Note", notes(results.agents)) + _lines("Left out", results.left_out)
    emulator = "<p>ale-py is the emulator, with its games.</p>" if results.atari else ""
    parts += [f"<h3>Versions</h3>{emulator}", to_html(tables.version_table(results))]
    settings = to_html(tables.setting_table(results))
    parts.append(f"<details><summary>Settings of all runs</summary>{settings}</details>")
    if results.atari:
        parts += ["<h3>Sources</h3>", to_html(tables.source_table())]
    return parts


def _own_settings(results: Results) -> list[str]:
    table = tables.difference_table(results, shared=False)
    if not (count := sum(bool(row.cells) for row in table.rows)):
        return []
    about = f"{counted(count, 'setting')} that some of the agents do not have (“{GAP}”), by who has them"
    return [f"<details><summary>{escape(about)}</summary>{to_html(table)}</details>"]


def _lines(title: str, lines: Sequence[str]) -> list[str]:
    return [f"<p>{title}: " + "; ".join(map(escape, lines)) + ".</p>"] if lines else []
