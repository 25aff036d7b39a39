"""Writes `saber.html` and `saber.json`; `saber_report.py` is its command line."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path

from memory.errors import UserError
from saber.atari_scores import REFERENCES, format_frames
from saber.files import replace_file
from saber.page import game_title, render_page
from saber.report import tables
from saber.report.contents import SCORE, contents
from saber.report.figures import Figure, all_figures
from saber.report.results import WHOLE, Results
from saber.report.runs import printable, read_runs
from saber.report.settings import describe_agent, notes
from saber.scores import MARKS, SCORE_EPISODES

_STYLE = """main { padding: 0 20px 40px; }
main, header { max-width: 1280px; margin: auto; box-sizing: border-box; }
h2 { font-size: 18px; margin: 32px 0 4px; }
h3 { font-size: 15px; margin: 20px 0 4px; }
summary { cursor: pointer; margin-top: 14px; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 290px), 1fr)); gap: 8px; }
.curves > div { height: 230px; min-width: 0; }
.table { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; font-size: 12px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 6px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th { font-weight: 600; }
th[scope=col] { white-space: normal; vertical-align: bottom; min-width: 52px; }
th[scope=rowgroup] { padding-top: 12px; }
th:first-child, .words td, .words th { text-align: left; }
th[scope=row] { position: sticky; left: 0; background: var(--paper); text-align: left; font-weight: 400; }
small { color: var(--soft); }
@media (max-width: 700px) { main, header { padding-left: 12px; padding-right: 12px; }
  th[scope=row] { white-space: normal; min-width: 130px; } }"""


def write_report(paths: Sequence[Path], folder: Path) -> list[str]:
    """Write the report of these folders and logs into `folder`; returns what to tell about it, line by line.

    Raises UserError for paths that cannot be reported, OSError if the files cannot be written.
    """
    runs, notes_of_files = read_runs(paths)
    left_out = [printable(line) for line in notes_of_files]
    results = Results(runs)
    pages = {
        "saber.json": (json.dumps(contents(results, left_out), indent=1, allow_nan=False) + "\n").encode(),
        "saber.html": printable(render_report(results, left_out)).encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UserError(f"--output: {folder} is a file; name a folder") from error
    for name, page in pages.items():
        with replace_file(folder / name) as file:
            file.write(page)
    lines = [*(f"note: {line}" for line in notes(runs)), *(f"left out: {line}" for line in left_out)]
    lines.append(f"{_counted(results)}: {', '.join(str(folder / name) for name in sorted(pages))}")
    return [printable(line) for line in lines]


def render_report(results: Results, left_out: Sequence[str]) -> str:
    """Write the page."""
    figures = all_figures(results)
    body = "\n".join(
        [
            f"<header><h1>SABER report</h1><p>{escape(_counted(results))}; {_of_atari57(results)}. "
            f"{escape(_reach(results))}</p><p>{escape(describe_agent(results.runs))} "
            f"{escape(results.protocols.sentence)}</p></header>",
            "<main>",
            _normalised_section(results, figures),
            _curve_section(results),
            _game_section(results),
            _method_section(results, left_out),
            "</main>",
        ]
    )
    return render_page("SABER report", body, figures, _STYLE)


def _counted(results: Results) -> str:
    games, runs = len(results.games), len(results.runs)
    return f"{games} game{'s' * (games > 1)}, {runs} run{'s' * (runs > 1)}"


def _of_atari57(results: Results) -> str:
    found = sum(game.table is not None and game.table.in_atari57 for game in results.games)
    return f"{found} of the 57 games that most papers report"


def _reach(results: Results) -> str:
    if results.mark is None:
        longest = max(run.reached for run in results.runs)
        return (
            f"No run has a score at a mark yet: that takes {format_frames(MARKS[0])} frames, of which the longest run "
            f"has made {longest:,}, and {SCORE_EPISODES} episodes by then."
        )
    having = sum(game.mean(results.mark, WHOLE) is not None for game in results.games)
    return (
        f"Plots of normalised scores are at {format_frames(results.mark)} frames; games with a score there: {having}."
    )


def _normalised_section(results: Results, figures: dict[str, Figure]) -> str:
    if results.mark is None or not results.profiles:
        return ""
    mark, limit = format_frames(results.mark), results.protocols.limit_name(WHOLE)
    parts = [
        "<h2>Over games</h2>",
        "<p>0 % is the random agent, 100 % the reference. Brackets: 95 % stratified bootstrap interval over runs, "
        "where every game has two or more; with few runs it is too narrow. Published agents count on the games that "
        f"this report has a score of at {mark} frames, as far as they have one.</p>",
        "<p>Sticky actions and no-op starts are different tasks: agents that are not known to have played with the "
        "sticky actions of our runs are drawn when their name in a legend is clicked. Most published episodes were "
        "cut at 30 minutes (those of Dopamine after 27 000 agent steps), though the table of their scores does not "
        "tell which: ours at 30 minutes compare with them, ours at other lengths do not.</p>",
        tables.aggregate_table(results),
    ]
    for reference, label in REFERENCES.items():
        if f"bars-{reference}" in figures:
            parts += [
                f"<h2>Normalised by {label}</h2>",
                f"<p>Bars: our scores, {limit}. Markers compare with each other: white for ours at 30 minutes, "
                "coloured for published agents. What is at or below 0.1 % is not drawn.</p>",
                _tall_plot(f"bars-{reference}", figures),
                f"<h3>Performance profile, normalised by {label}</h3>",
                f"<p>Thick, with the interval: our scores, {limit}. Dashed in the same colour: ours at 30 minutes, to "
                "compare with published agents.</p>",
                _tall_plot(f"profile-{reference}", figures),
            ]
    return "\n".join(parts)


def _tall_plot(name: str, figures: dict[str, Figure]) -> str:
    return f'<div id="{name}" style="height: {figures[name]["layout"]["height"]}px"></div>'


def _curve_section(results: Results) -> str:
    plots = [
        f'<div id="curve-{number}" role="img" aria-label="Training curve of {escape(game_title(game.name))}"></div>'
        for number, game in enumerate(results.games)
    ]
    return "\n".join(
        [
            "<h2>Training curves</h2>",
            "<p>Score of whole episodes, mean of the last 100 training episodes (of all so far while there are fewer). "
            "Thin: each run. Thick, with a band from the lowest to the highest run: mean of all runs, as far as all of "
            "them reach.</p>",
            '<div class="curves">',
            *plots,
            "</div>",
        ]
    )


def _game_section(results: Results) -> str:
    return "\n".join(
        [
            "<h2>Game by game</h2>",
            f"<p>In points: {escape(SCORE.replace('null', GAP_TEXT))}. "
            "Means over runs; “2 of 3” says how many have a score.</p>",
            tables.game_table(results),
            "<details><summary>Published scores of these games</summary>",
            tables.published_table(results),
            "</details>",
        ]
    )


GAP_TEXT = f"“{tables.GAP}”"


def _method_section(results: Results, left_out: Sequence[str]) -> str:
    parts = ["<h2>How it was measured</h2>", tables.run_table(results)]
    if noted := notes(results.runs):
        parts.append("<p>Note: " + "; ".join(map(escape, noted)) + ".</p>")
    if left_out:
        parts.append("<p>Left out: " + "; ".join(map(escape, left_out)) + ".</p>")
    parts += ["<h3>Versions</h3><p>ale-py is the emulator, with its games.</p>", tables.version_table(results)]
    parts += ["<details><summary>Settings of all runs</summary>", tables.setting_table(results), "</details>"]
    parts += ["<h3>Sources</h3>", tables.source_table()]
    return "\n".join(parts)
