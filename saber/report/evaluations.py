"""Evaluations of snapshots by `test_multiple_seed.py`, which stand apart from scores of training.

They are another measurement: weights no longer change, and rules and numbers of episodes are their own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rainbow_iqn_apex.common.text import encodable
from rainbow_iqn_apex.environments.entries import task_name
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import Estimate
from rainbow_iqn_apex.saber.report.groups import Group
from rainbow_iqn_apex.saber.report.marks import LIMITS
from rainbow_iqn_apex.saber.report.protocol import protocol_of
from rainbow_iqn_apex.saber.report.runs import ACTION_REPEAT, score_array
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluationRecord, read_evaluation, read_evaluation_record
from rainbow_iqn_apex.saber.results.evaluation_summary import student_interval
from rainbow_iqn_apex.saber.results.task import Task


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The episodes that one snapshot has played."""

    path: Path  # of its CSV
    record: EvaluationRecord
    scores: Array  # [episodes, 3] float64: at 5 minutes, at 30 minutes, without limit

    @property
    def name(self) -> str:
        """The path for readers."""
        return encodable(str(self.path))

    @property
    def task(self) -> Task:
        """Return the task that was played."""
        env = str(self.record.settings.get("env", "atari"))
        name = str(self.record.settings.get("game", self.path.stem)) if env == "atari" else task_name(env, "")
        return Task(name, env)

    @property
    def protocol(self) -> str:
        """The rules, as they stand beside scores."""
        found = protocol_of(self.record.settings)
        return found.label if found else "protocol unknown"

    @property
    def snapshot(self) -> str:
        """The snapshot's file for readers."""
        return encodable(Path(self.record.model).name)

    @property
    def frames(self) -> int | None:
        """Frames that the snapshot was trained for: by the record, or by the name of its file; None if unknown.

        Of other environments than Atari they are agent steps, as in `Run`.
        """
        repeat = self.record.settings.get("action_repeat", ACTION_REPEAT) if self.task.is_atari else 1
        steps = self.record.trained_steps
        if steps is None and (named := re.search(r"_(\d{1,18})\.pth$", self.snapshot)):
            steps = int(named[1])
        return None if steps is None or type(repeat) is not int else steps * repeat

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Mean of the episodes by limit, with Student's 95 % interval, which needs two episodes."""
        found = {}
        for column, limit in enumerate(LIMITS):
            values = self.scores[:, column].tolist()
            low, high = student_interval(values) or (None, None)
            found[limit] = Estimate(float(self.scores[:, column].mean()), low, high)
        return found

    def begins(self, other: "Evaluation") -> bool:
        """Whether it is a copy of the other or of its first episodes: of the same weights, seed, rules and scores."""
        first = other.scores[: len(self.scores)]
        return self.record.decisive == other.record.decisive and np.array_equal(self.scores, first)

    def agent(self, groups: Sequence[Group]) -> str | None:
        """Name the agent of whose run the snapshot is; None unless the snapshot was in the folder of such a run."""
        folder = (self.path.parent / self.record.model).resolve().parent
        for group in groups:
            for run in group.runs:
                if run.task.title == self.task.title and run.path.resolve().parent == folder:
                    return group.name
        return None


def read_one_evaluation(path: Path, folder: Path) -> Evaluation | None:
    """Read a CSV of an evaluation with its record, both in `folder` or below; None if no episode has ended.

    Raises OSError if one of the files is missing, ValueError if one is damaged.
    """
    record = read_evaluation_record(path.with_suffix(".json"), folder)
    episodes = [episode.record for episode in read_evaluation(path, folder)]
    return Evaluation(path, record, score_array(episodes)) if episodes else None
