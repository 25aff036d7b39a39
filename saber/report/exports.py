"""The numbers of a report as CSV files, each line with what its numbers are of, to be read by other programs.

Scores are in points and rounded to ten digits, normalised scores are fractions; a missing number is an empty cell.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rainbow_iqn_apex.environments.scores import MARKS, round_score
from rainbow_iqn_apex.saber.report.aggregates import Aggregate
from rainbow_iqn_apex.saber.report.marks import LIMITS
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.table import inert
from rainbow_iqn_apex.saber.results.atari_scores import BASELINES, COLUMNS, REFERENCES

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
            "agent": one.agent(results.groups),
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
