"""The machine-readable report `saber.json`: every number of the page, and those that it leaves out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from saber.atari_scores import BASELINES, COLUMNS, REFERENCES
from saber.report.aggregates import CONFIDENCE, RESAMPLES, TRIMMED, Aggregate, Profile
from saber.report.marks import LIMITS
from saber.report.results import THRESHOLDS, Game, Profiles, Results, plain
from saber.report.runs import Run
from saber.report.settings import notes
from saber.run_record import commit
from saber.scores import MARKS, SCORE_EPISODES

FORMAT = 1  # of the file; changes when the meaning of a key does
SCORE = (
    f"mean over the last {SCORE_EPISODES} consecutive training episodes that had ended at the mark; null where the "
    f"run has not made the mark's frames, or has ended fewer than {SCORE_EPISODES} episodes by then"
)
CURVES = (
    f"mean score of whole episodes over the last {SCORE_EPISODES} that had ended, or over all so far while there are "
    "fewer; null before the first and after the last end of a run"
)


def contents(results: Results, left_out: Sequence[str]) -> dict[str, Any]:
    """The report as JSON takes it; frames, not agent steps, are counted everywhere."""
    return {
        "format": FORMAT,
        "method": {
            "score": SCORE,
            "marks_frames": list(MARKS),
            "limits": {limit: results.protocols.limit_name(limit) for limit in LIMITS},
            "normalised": "(score - random) / (reference - random)",
            "confidence": CONFIDENCE,
            "resamples": RESAMPLES,
            "trimmed_at_either_end": TRIMMED,
            "curves": CURVES,
            "profiles": "mean over games of the fraction of runs whose normalised score exceeds a threshold",
            "reported_by_commit": commit(),
        },
        "protocol": {"label": results.protocols.label, **asdict(results.protocols)},
        "runs": [_run(run) for run in results.runs],
        "notes": notes(results.runs),
        "left_out": list(left_out),
        "games": {game.name: _game(game) for game in results.games},
        "aggregates": _nested(results.aggregates),
        "profiles": {
            "mark_frames": results.mark,
            "thresholds": plain(THRESHOLDS),
            "references": {reference: _profiles(found) for reference, found in results.profiles.items()},
        },
        "baselines": dict(BASELINES),
        "published": {column: asdict(about) for column, about in COLUMNS.items()},
        "published_on_the_same_games": _nested(results.published_aggregates),
    }


def _nested(aggregates: Mapping[tuple[int, str, str], Aggregate | None]) -> dict[str, Any]:
    """Objects in objects, as JSON has no keys of several parts."""
    nested: dict[str, Any] = {}
    for (mark, name, reference), found in aggregates.items():
        nested.setdefault(str(mark), {}).setdefault(name, {})[reference] = asdict(found) if found else None
    return nested


def _profiles(found: Profiles) -> dict[str, Any]:
    return {
        "this_report": {limit: _profile(one) for limit, one in found.ours.items()},
        "published": {column: _profile(one) for column, one in found.published.items()},
    }


def _profile(found: Profile) -> dict[str, list[float | None] | None]:
    return {name: None if values is None else plain(values) for name, values in found._asdict().items()}


def _run(run: Run) -> dict[str, Any]:
    return {
        "game": run.game,
        "file": run.name,
        "seed": run.settings.get("seed"),
        "frames": run.reached,
        "episodes": len(run.frames),
        "changed": run.changed,
        "starts": [asdict(start) for start in run.record.starts] if run.record else None,
    }


def _game(game: Game) -> dict[str, Any]:
    return {
        "table": asdict(game.table) if game.table else None,
        "runs": len(game.runs),
        "published_normalised": {
            column: {reference: game.published(column, reference) for reference in REFERENCES} for column in COLUMNS
        },
        "curves": {"frames": game.curves.frames.tolist(), "runs": [plain(run) for run in game.curves.runs]},
        "marks": {str(mark): {limit: _scores(game, mark, limit) for limit in LIMITS} for mark in MARKS},
    }


def _scores(game: Game, mark: int, limit: str) -> dict[str, Any]:
    column = LIMITS.index(limit)
    normalised = {reference: game.normalised(mark, limit, reference) for reference in REFERENCES}
    return {
        "runs": [scores[column] if scores else None for scores in game.at_marks[mark]],
        "mean": game.mean(mark, limit),
        "normalised": {name: None if found is None else float(found.mean()) for name, found in normalised.items()},
    }
