"""The tables of the page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from saber.atari_scores import BASELINES, COLUMNS, REFERENCES, format_frames
from saber.page import game_title
from saber.report.aggregates import Aggregate, Estimate
from saber.report.marks import LIMITS
from saber.report.results import WHOLE, Game, Results
from saber.report.runs import ACTION_REPEAT
from saber.report.settings import format_changes, format_values, value_counts
from saber.scores import MARKS

GAP = "–"


def aggregate_table(results: Results) -> str:
    """Our normalised scores over games at each mark and limit; below, published agents on the same games."""
    rows = [[f"this report ({escape(results.protocols.label)})"]]
    for mark in MARKS:
        having = sum(len(game.scores(mark, WHOLE)) for game in results.games)
        note = f" <small>{having} of {len(results.runs)} runs</small>" if 0 < having < len(results.runs) else ""
        for limit in LIMITS:
            found = [results.aggregates[mark, limit, reference] for reference in REFERENCES]
            name = f"{format_frames(mark)}, {results.protocols.limit_name(limit)}{note}"
            rows.append([name, *_aggregate_cells(found)])
    if results.mark is not None:
        rows.append([f"published, of the games with a score of ours at {format_frames(results.mark)}"])
        for column, about in COLUMNS.items():
            published = [results.published_aggregates[results.mark, column, reference] for reference in REFERENCES]
            if any(published):
                rows.append([about.label, *_aggregate_cells(published)])
    parts = ("games,", "median,", "mean,", "IQM,", "above")
    return _table(["", *(f"{part} {label}" for label in REFERENCES.values() for part in parts)], rows)


def _aggregate_cells(found: Iterable[Aggregate | None]) -> list[str]:
    cells = []
    for one in found:
        if one is None:
            cells += [GAP] * 5
        else:
            cells += [str(one.games), *map(_percent, (one.median, one.mean, one.iqm)), str(one.above)]
    return cells


def _percent(estimate: Estimate) -> str:
    text = f"{100 * estimate.value:,.1f} %"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} <small>[{100 * estimate.low:,.1f}, {100 * estimate.high:,.1f}]</small>"


def game_table(results: Results) -> str:
    """Each game's references and our scores at all marks and limits, with a gap where no run has one."""
    head = ["game", "runs", "random", *REFERENCES.values()]
    head += [f"{format_frames(mark)}, {results.protocols.limit_name(limit)}" for mark in MARKS for limit in LIMITS]
    head += [f"% of {label}" for label in REFERENCES.values()] if results.mark else []
    return _table(head, [_game_row(game, results.mark) for game in results.games])


def _game_row(game: Game, chosen: int | None) -> list[str]:
    table = game.table
    references = [table.random, table.human, table.world_record] if table else [None] * 3
    cells = [escape(game_title(game.name)), str(len(game.runs)), *map(_points, references)]
    for mark in MARKS:
        having = len(game.scores(mark, WHOLE))
        note = f" <small>{having} of {len(game.runs)}</small>" if 0 < having < len(game.runs) else ""
        cells += [_points(game.mean(mark, limit)) + note for limit in LIMITS]
    if chosen:
        for reference in REFERENCES:
            found = game.normalised(chosen, WHOLE, reference)
            cells.append(GAP if found is None else f"{100 * found.mean():,.1f} %")
    return cells


def _points(score: float | None) -> str:
    return GAP if score is None else f"{score:,.1f}"


def published_table(results: Results) -> str:
    """The published scores of our games, in points, each with its protocol."""
    games = [game for game in results.games if game.table]
    head = ["game", *(about.label for about in COLUMNS.values())]
    rows = [
        [escape(game_title(game.name)), *(_points(game.table.published.get(column)) for column in COLUMNS)]
        for game in games
        if game.table
    ]
    return _table(head, rows)


def source_table() -> str:
    """Where every number that is not ours is from."""
    rows = [[escape(name.replace("_", " ")), "", "", escape(source)] for name, source in BASELINES.items()]
    rows += [[about.agent, about.protocol, format_frames(about.frames), about.source] for about in COLUMNS.values()]
    return _table(["column", "protocol", "frames", "source"], rows, "words")


def run_table(results: Results) -> str:
    """How each run was made."""
    changed = any(run.changed for run in results.runs)
    rows = []
    for run in results.runs:
        starts = run.record.starts if run.record else ()
        cells = [
            escape(game_title(run.game)),
            escape(str(run.settings.get("seed", "unknown"))),
            f"{run.reached:,}",
            f"{len(run.frames):,}",
            str(run.record.action_repeat) if run.record else f"{ACTION_REPEAT} (assumed)",
            escape(", ".join(dict.fromkeys(start.commit for start in starts)) or "unknown"),
            *([escape(format_changes(run)) or GAP] if changed else []),
            escape(run.name),
        ]
        rows.append(cells)
    head = ["game", "seed", "frames", "episodes", "action repeat", "commit", *(["changed"] if changed else []), "log"]
    return _table(head, rows, "words")


def version_table(results: Results) -> str:
    """Versions of what the runs were made with, and in how many runs each; ale-py is the emulator."""
    counts: Counter[tuple[str, str]] = Counter()
    for run in results.runs:
        starts = run.record.starts if run.record else ()
        counts.update({item for start in starts for item in start.versions.items()})
    rows = [
        [escape(name), escape(text), f"{count} of {len(results.runs)}"]
        for (name, text), count in sorted(counts.items())
    ]
    return _table(["package", "version", "runs"], rows or [["unknown", GAP, GAP]])


def setting_table(results: Results) -> str:
    """All settings that a run records but for its seed and game: with one value, or with how many runs have each."""
    rows = [
        [escape(name), escape(format_values(counts, len(results.runs)))]
        for name, counts in value_counts(results.runs).items()
    ]
    return _table(["setting", "value"], rows or [["unknown", GAP]], "words")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """Cells are HTML; the first row names the columns, the first column the rows; a row of one cell heads a group."""
    lines = ["".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)]
    for name, *cells in rows:
        kept = "".join(f"<td>{cell}</td>" for cell in cells)
        scope = 'scope="row"' if cells else f'scope="rowgroup" colspan="{len(head)}"'
        lines.append(f"<th {scope}>{name}</th>{kept}")
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="table {kind}" tabindex="0"><table>\n{body}\n</table></div>'
