"""The numbers of a report for other programs: `saber.json` has every number of the page, and those that it leaves out.

In the CSV files each line has what its numbers are of. Scores are in points and rounded to ten digits, normalised
scores are fractions; a missing number is an empty cell.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from typing import Any

from msgspec import to_builtins

from rainbow_iqn_apex.common.checkout import commit
from rainbow_iqn_apex.environments.scores import MARKS, SCORE_EPISODES, round_score
from rainbow_iqn_apex.saber.report.aggregates import CONFIDENCE, RESAMPLES, TRIMMED, Aggregate, Estimate, Profile
from rainbow_iqn_apex.saber.report.figures import rounded
from rainbow_iqn_apex.saber.report.inputs import LIMITS, Evaluation, Run
from rainbow_iqn_apex.saber.report.results import (
    THRESHOLDS,
    Agent,
    Game,
    Profiles,
    Results,
    differences,
    published_normalised,
)
from rainbow_iqn_apex.saber.report.table import inert
from rainbow_iqn_apex.saber.report.tables import notes
from rainbow_iqn_apex.saber.results.task import BASELINES, COLUMNS, REFERENCES, Task

FORMAT = 3  # of the file; changes when the meaning of a key does
SCORE = (
    f"mean over the last {SCORE_EPISODES} consecutive training episodes that had ended at the mark; null where the "
    f"run has not made the mark's frames, or has ended fewer than {SCORE_EPISODES} episodes by then"
)
CURVES = (
    f"mean score of whole episodes over the last {SCORE_EPISODES} that had ended, or over all so far while there are "
    "fewer; null before the first and after the last end of a run"
)


def contents(results: Results) -> dict[str, Any]:
    """The report as JSON takes it; frames are counted everywhere, of other environments than Atari agent steps."""
    agents = [agent.name for agent in results.agents]
    return {
        "format": FORMAT,
        "method": _method(results),
        "agents": {
            agent.name: {
                "settings": agent.settings,
                "protocol": {"label": agent.protocols.label, **asdict(agent.protocols)},
                **({"dmlab30": agent.dmlab30._asdict()} if agent.dmlab30 else {}),
            }
            for agent in results.agents
        },
        "differences": {
            name: dict(zip(agents, values, strict=True)) for name, values in differences(results.agents).items()
        },
        "runs": [_run(agent, run) for agent in results.agents for run in agent.runs],
        "evaluations": [_evaluation(results, evaluation) for evaluation in results.evaluations],
        "notes": notes(results.agents),
        "left_out": list(results.left_out),
        "games": {task.key: _task(results, task) for task in results.tasks},
        "games_in_common": {
            str(mark): {reference: [task.key for task in results.common(mark, reference)] for reference in REFERENCES}
            for mark in MARKS
        },
        "aggregates": _nested(results.aggregates),
        "profiles": {
            "mark_frames": results.mark,
            "thresholds": rounded(THRESHOLDS),
            "references": {reference: _profiles(found) for reference, found in results.profiles.items()},
        },
        "baselines": dict(BASELINES),
        "published": {column: asdict(about) for column, about in COLUMNS.items()},
        "published_on_the_same_games": _nested(results.published_aggregates),
    }


def _method(results: Results) -> dict[str, Any]:
    return {
        "score": SCORE,
        "marks_frames": list(MARKS),
        "limits": {limit: results.protocols.limit_name(limit) for limit in LIMITS},
        "now": f"mean over the last {SCORE_EPISODES} episodes, or all so far, of a run that has no score at a mark",
        "normalised": "(score - random) / (reference - random)",
        "aggregates": "over the games of which all agents with a score at the mark have a normalised score there",
        "confidence": CONFIDENCE,
        "resamples": RESAMPLES,
        "trimmed_at_either_end": TRIMMED,
        "curves": CURVES,
        "profiles": "mean over games of the fraction of runs whose normalised score exceeds a threshold",
        "evaluations": "mean over episodes of one snapshot, with Student's 95 % interval",
        "reported_by_commit": commit(),
    }


def _run(agent: Agent, run: Run) -> dict[str, Any]:
    return {
        "agent": agent.name,
        "game": run.task.key,
        "file": run.name,
        "seed": run.settings.get("seed"),
        "frames": run.reached,
        "episodes": len(run.frames),
        "changed": run.changed,
        "starts": [to_builtins(start) for start in run.record.starts] if run.record else None,
    }


def _evaluation(results: Results, evaluation: Evaluation) -> dict[str, Any]:
    record = evaluation.record
    return {
        "game": evaluation.task.key,
        "file": evaluation.name,
        "snapshot": evaluation.snapshot,
        "weights": record.weights,
        "agent": results.agent_of(evaluation),
        "frames": evaluation.frames,
        "seed": record.seed,
        "protocol": evaluation.protocol,
        "episodes": len(evaluation.scores),
        "episodes_asked_for": record.episodes,
        "means": {limit: asdict(estimate) for limit, estimate in evaluation.estimates.items()},
    }


def _nested(aggregates: Mapping[tuple[Any, ...], Aggregate | None]) -> dict[str, Any]:
    """Objects in objects, as JSON has no keys of several parts."""
    nested: dict[str, Any] = {}
    for (*path, last), found in aggregates.items():
        place = nested
        for key in path:
            place = place.setdefault(str(key), {})
        place[last] = asdict(found) if found else None
    return nested


def _profiles(found: Profiles) -> dict[str, Any]:
    ours = {agent: {limit: _profile(one) for limit, one in limits.items()} for agent, limits in found.ours.items()}
    return {"agents": ours, "published": {column: _profile(one) for column, one in found.published.items()}}


def _profile(found: Profile) -> dict[str, list[float | None] | None]:
    return {name: None if values is None else rounded(values) for name, values in found._asdict().items()}


def _task(results: Results, task: Task) -> dict[str, Any]:
    published = {
        column: {reference: published_normalised(task, column, reference) for reference in REFERENCES}
        for column in COLUMNS
    }
    agents = {agent.name: _game(agent.games[task]) for agent in results.agents if task in agent.games}
    return {"table": asdict(task.scores) if task.scores else None, "published_normalised": published, "agents": agents}


def _game(game: Game) -> dict[str, Any]:
    curves = {"frames": game.curves.frames.tolist(), "runs": [rounded(run) for run in game.curves.runs]}
    marks: dict[str, Any] = {}
    for mark in MARKS:
        marks[str(mark)] = {
            limit: {
                "runs": [scores[column] if scores else None for scores in game.at_marks[mark]],
                "mean": game.mean(mark, limit),
                "normalised": _shares(game, mark, limit),
            }
            for column, limit in enumerate(LIMITS)
        }
    return {"runs": len(game.runs), "now": [now._asdict() for now in game.now], "curves": curves, "marks": marks}


def _shares(game: Game, mark: int, limit: str) -> dict[str, float | None]:
    found = {reference: game.normalised(mark, limit, reference) for reference in REFERENCES}
    return {reference: None if shares is None else float(shares.mean()) for reference, shares in found.items()}


def all_exports(results: Results) -> dict[str, str]:
    """Text of every CSV by its name; those without a line are left out."""
    runs = [_run(agent, run) for agent in results.agents for run in agent.runs]
    names = ("agent", "game", "seed", "frames", "episodes")
    rows = {
        "games": list(_game_rows(results)),
        "now": list(_now_rows(results)),
        "aggregates": list(_aggregate_rows(results)),
        "published": list(_published_rows(results)),
        "evaluations": [_evaluation_row(_evaluation(results, one)) for one in results.evaluations],
        "runs": [{name: run[name] for name in names} | {"log": run["file"]} for run in runs],
    }
    return {f"{name}.csv": _csv(found) for name, found in rows.items() if found}


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return file.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return inert(value)
    return round_score(value) if isinstance(value, float) else value


def _game_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Means over runs at the marks that an agent has a score at."""
    for agent in results.agents:
        for task, game in agent.games.items():
            for mark, limit in product(MARKS, LIMITS):
                if (mean := game.mean(mark, limit)) is not None:
                    row = {"agent": agent.name, "game": task.key, "frames": mark, "limit": limit}
                    row |= {"runs": len(game.scores(mark, limit)), "mean": mean}
                    yield row | {f"of_{name}": share for name, share in _shares(game, mark, limit).items()}


def _now_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Each run that has no score at a mark."""
    for agent in results.agents:
        for task, game in agent.games.items():
            for now in game.now:
                row = {"agent": agent.name, "game": task.key, "seed": now.seed, "frames": now.frames}
                scores = dict(zip(LIMITS, now.scores, strict=True))
                yield row | {"episodes": now.episodes, **scores, "log": now.log}


def _aggregate_rows(results: Results) -> Iterator[dict[str, Any]]:
    for (agent, mark, limit, reference), found in results.aggregates.items():
        if found:
            yield {"agent": agent, "frames": mark, "limit": limit, "reference": reference} | _numbers(found)
    for (mark, column, reference), found in results.published_aggregates.items():
        if found:
            label = COLUMNS[column].label
            yield {"agent": label, "frames": mark, "limit": "as published", "reference": reference} | _numbers(found)


def _numbers(found: Aggregate) -> dict[str, Any]:
    numbers: dict[str, Any] = {"games": found.games, "above": found.above}
    for name in ("median", "mean", "iqm"):
        estimate: Estimate = getattr(found, name)
        numbers |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return numbers


def _published_rows(results: Results) -> Iterator[dict[str, Any]]:
    """References and published scores of the games, in points."""
    for task in results.atari:
        if table := task.scores:
            known = {name: getattr(table, name) for name in BASELINES}
            yield {"game": task.key, **known, **{column: table.published.get(column) for column in COLUMNS}}


def _evaluation_row(found: dict[str, Any]) -> dict[str, Any]:
    row = {name: found[name] for name in ("game", "snapshot", "agent", "frames")} | {"rules": found["protocol"]}
    row |= {name: found[name] for name in ("seed", "episodes", "episodes_asked_for")}
    for limit, estimate in found["means"].items():
        row |= {f"mean_{limit}": estimate["value"], f"low_{limit}": estimate["low"], f"high_{limit}": estimate["high"]}
    return row | {"file": found["file"]}
