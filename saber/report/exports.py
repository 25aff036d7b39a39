"""The numbers of a report as CSV files, each line with what its numbers are of, to be read by other programs.

Scores are in points and rounded to ten digits, normalised scores are fractions; a missing number is an empty cell.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import to_builtins

from rainbow_iqn_apex.common.checkout import commit
from rainbow_iqn_apex.environments.scores import MARKS, SCORE_EPISODES, round_score
from rainbow_iqn_apex.saber.report.aggregates import CONFIDENCE, RESAMPLES, TRIMMED, Aggregate, Profile
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
        "agents": {agent.name: _agent(agent) for agent in results.agents},
        "differences": {
            name: dict(zip(agents, values, strict=True)) for name, values in differences(results.groups).items()
        },
        "runs": [_run(agent, run) for agent in results.agents for run in agent.group.runs],
        "evaluations": [_evaluation(results, evaluation) for evaluation in results.evaluations],
        "notes": notes(results.groups),
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


def _agent(agent: Agent) -> dict[str, Any]:
    protocols = agent.group.protocols
    found = {"settings": agent.group.settings, "protocol": {"label": protocols.label, **asdict(protocols)}}
    return found | ({"dmlab30": agent.dmlab30._asdict()} if agent.dmlab30 else {})


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
    return {
        "agents": {
            agent: {limit: _profile(one) for limit, one in limits.items()} for agent, limits in found.ours.items()
        },
        "published": {column: _profile(one) for column, one in found.published.items()},
    }


def _profile(found: Profile) -> dict[str, list[float | None] | None]:
    return {name: None if values is None else rounded(values) for name, values in found._asdict().items()}


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


def _task(results: Results, task: Task) -> dict[str, Any]:
    return {
        "table": asdict(task.scores) if task.scores else None,
        "published_normalised": {
            column: {reference: published_normalised(task, column, reference) for reference in REFERENCES}
            for column in COLUMNS
        },
        "agents": {agent.name: _game(agent.games[task]) for agent in results.agents if task in agent.games},
    }


def _game(game: Game) -> dict[str, Any]:
    return {
        "runs": len(game.runs),
        "now": [now._asdict() for now in game.now],
        "curves": {"frames": game.curves.frames.tolist(), "runs": [rounded(run) for run in game.curves.runs]},
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


_Rows = Iterable[dict[str, Any]]


def all_exports(results: Results) -> dict[str, str]:
    """Text of every CSV by its name; those without a line are left out."""
    rows = {
        "games": _games(results),
        "now": _now(results),
        "aggregates": _aggregates(results),
        "published": _published(results),
        "evaluations": _evaluations(results),
        "runs": _runs(results),
    }
    texts = {f"{name}.csv": _csv(list(found)) for name, found in rows.items()}
    return {name: text for name, text in texts.items() if text}


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
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


def _games(results: Results) -> _Rows:
    """Means over runs at the marks that an agent has a score at."""
    for agent in results.agents:
        for task, game in agent.games.items():
            for mark in MARKS:
                for limit in LIMITS:
                    if (mean := game.mean(mark, limit)) is not None:
                        shares = {name: game.normalised(mark, limit, name) for name in REFERENCES}
                        yield {"agent": agent.name, "game": task.key, "frames": mark, "limit": limit} | {
                            "runs": len(game.scores(mark, limit)),
                            "mean": mean,
                            **{f"of_{name}": "" if s is None else float(s.mean()) for name, s in shares.items()},
                        }


def _now(results: Results) -> _Rows:
    """Each run that has no score at a mark."""
    for agent in results.agents:
        for task, game in agent.games.items():
            for now in game.now:
                yield {"agent": agent.name, "game": task.key, "seed": now.seed, "frames": now.frames} | {
                    "episodes": now.episodes, **dict(zip(LIMITS, now.scores, strict=True)), "log": now.log,
                }  # fmt: skip


def _aggregates(results: Results) -> _Rows:
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
        estimate = asdict(getattr(found, name))
        numbers |= {name: estimate["value"], f"{name}_low": estimate["low"], f"{name}_high": estimate["high"]}
    return numbers


def _published(results: Results) -> _Rows:
    """References and published scores of the games, in points."""
    for task in results.atari:
        if table := task.scores:
            known = {name: getattr(table, name) for name in BASELINES}
            yield {"game": task.key, **known, **{column: table.published.get(column) for column in COLUMNS}}


def _evaluations(results: Results) -> _Rows:
    for one in results.evaluations:
        row: dict[str, Any] = {
            "game": one.task.key,
            "snapshot": one.snapshot,
            "agent": results.agent_of(one),
            "frames": one.frames,
            "rules": one.protocol,
            "seed": one.record.seed,
            "episodes": len(one.scores),
            "episodes_asked_for": one.record.episodes,
        }
        for limit, estimate in one.estimates.items():
            row |= {f"mean_{limit}": estimate.value, f"low_{limit}": estimate.low, f"high_{limit}": estimate.high}
        yield row | {"file": one.name}


def _runs(results: Results) -> _Rows:
    for agent in results.agents:
        for run in agent.group.runs:
            yield {"agent": agent.name, "game": run.task.key, "seed": run.settings.get("seed")} | {
                "frames": run.reached, "episodes": len(run.frames), "log": run.name,
            }  # fmt: skip
