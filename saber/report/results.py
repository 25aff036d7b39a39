"""The numbers of a report, each computed once: scores at the marks, normalised scores, their statistics, and curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.environments.scores import MARKS
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import Aggregate, Profile, aggregate, profile
from rainbow_iqn_apex.saber.report.evaluations import Evaluation
from rainbow_iqn_apex.saber.report.groups import Group, group_runs
from rainbow_iqn_apex.saber.report.inputs import Inputs
from rainbow_iqn_apex.saber.report.marks import LIMITS, Curves, Now, curves, newest_scores, score_at, score_now
from rainbow_iqn_apex.saber.report.protocol import protocols_of
from rainbow_iqn_apex.saber.report.runs import Run
from rainbow_iqn_apex.saber.report.settings import AgentOptions
from rainbow_iqn_apex.saber.results.atari_scores import COLUMNS, REFERENCES
from rainbow_iqn_apex.saber.results.task import Task

FLOOR = 0.001  # smallest normalised score that a logarithmic axis shows
THRESHOLDS = np.geomspace(FLOOR, 100, 101)  # of performance profiles
WHOLE, CUT = "saber", "30min"  # limits of the plots: our own score, and what compares with episodes that were cut


@dataclass(frozen=True)
class Game:
    """The runs of a game by one agent."""

    task: Task
    runs: Sequence[Run]

    @cached_property
    def at_marks(self) -> dict[int, list[list[float] | None]]:
        """For every mark and run the scores [LIMITS], None where the run has none."""
        return {mark: [score_at(run, mark) for run in self.runs] for mark in MARKS}

    @cached_property
    def now(self) -> list[Now]:
        """Of the runs that have no score at a mark."""
        return [now for run in self.runs if (now := score_now(run))]

    def now_mean(self, limit: str) -> float:
        """Mean over the runs that have no score at a mark, of which there is one at least."""
        return float(np.mean([now.scores[LIMITS.index(limit)] for now in self.now]))

    @property
    def human_share(self) -> float | None:
        """The newest score of a level of DMLab-30, 0 being the random agent and 1 the human; None for other tasks.

        It is the mean of the runs' last 100 episodes, also behind the latest mark.
        """
        if not (scores := self.task.level_scores):
            return None
        column = LIMITS.index(WHOLE)
        return scores.normalised(float(np.mean([newest_scores(run)[column] for run in self.runs])))

    @cached_property
    def curves(self) -> Curves:
        """Of all runs."""
        return curves(self.runs)

    def scores(self, mark: int, limit: str) -> Array:
        """Scores at a mark [runs that have one]."""
        column = LIMITS.index(limit)
        return np.array([scores[column] for scores in self.at_marks[mark] if scores], np.float64)

    def mean(self, mark: int, limit: str) -> float | None:
        """Mean over the runs that have a score at the mark."""
        scores = self.scores(mark, limit)
        return float(scores.mean()) if len(scores) else None

    def normalised(self, mark: int, limit: str, reference: str) -> Array | None:
        """Normalised scores at a mark [runs that have one]; None if there is no such run, or no such reference."""
        table = self.task.scores
        scores = [table.normalised(score, reference) for score in self.scores(mark, limit)] if table else []
        return np.array(scores, np.float64) if scores and None not in scores else None


def published_normalised(task: Task, column: str, reference: str) -> float | None:
    """A published agent's normalised score of a game; None if there is none, or no such reference."""
    table = task.scores
    score = table.published.get(column) if table else None
    return table.normalised(score, reference) if table and score is not None else None


class DmLab30(NamedTuple):
    """The mean capped human-normalised score (Espeholt et al. 2018): none counts for more than 1."""

    capped_mean: float
    levels: int  # that have been played, of 30


class Agent:
    """The games of one agent of the report."""

    def __init__(self, group: Group) -> None:
        self.group = group
        tasks = sorted({run.task for run in group.runs})
        self.games = {task: Game(task, [run for run in group.runs if run.task == task]) for task in tasks}

    @property
    def name(self) -> str:
        """That of its group."""
        return self.group.name

    def scored(self, mark: int) -> list[Task]:
        """The games of the emulator of which a run has a score at the mark."""
        return [task for task, game in self.games.items() if task.is_atari and game.mean(mark, WHOLE) is not None]

    @property
    def dmlab30(self) -> DmLab30 | None:
        """The mean over the levels of DMLab-30 that it has played; None without any."""
        shares = [share for game in self.games.values() if (share := game.human_share) is not None]
        return DmLab30(float(np.mean(np.minimum(shares, 1))), len(shares)) if shares else None

    def normalised(self, mark: int, limit: str, reference: str) -> dict[Task, Array]:
        """Normalised scores [runs] by game, of the games that have them."""
        found = {task: game.normalised(mark, limit, reference) for task, game in self.games.items()}
        return {task: scores for task, scores in found.items() if scores is not None}


@dataclass(frozen=True)
class Profiles:
    """Performance profiles [THRESHOLDS] over games at the mark of the plots, normalised by one reference."""

    ours: dict[str, dict[str, Profile]]  # by agent and limit, at WHOLE and CUT
    published: dict[str, Profile]  # by column, on the same games


class Results:
    """All agents and games of a report."""

    def __init__(self, inputs: Inputs, options: AgentOptions | None = None) -> None:
        """`options` are those that agents are known to have."""
        self.runs: Sequence[Run] = inputs.runs
        self.evaluations: Sequence[Evaluation] = inputs.evaluations
        self.left_out: Sequence[str] = inputs.left_out
        self.groups = group_runs(self.runs, options)
        self.agents = [Agent(group) for group in self.groups]
        self.tasks = sorted({run.task for run in self.runs})
        self.atari = [task for task in self.tasks if task.is_atari]
        self.others = [task for task in self.tasks if not task.is_atari]
        self.protocols = protocols_of([run for run in self.runs if run.task.is_atari])

    @cached_property
    def marks(self) -> list[int]:
        """Marks at which a game of the emulator has a score, the latest first."""
        return [mark for mark in reversed(MARKS) if self.compared(mark)]

    @cached_property
    def mark(self) -> int | None:
        """The mark of the plots: of those that most games of all agents have a score at the last; None without any."""
        counts = {mark: sum(len(agent.scored(mark)) for agent in self.agents) for mark in self.marks}
        return max(self.marks, key=lambda mark: (counts[mark], mark), default=None)

    def compared(self, mark: int) -> list[Agent]:
        """The agents that have a score at the mark."""
        return [agent for agent in self.agents if agent.scored(mark)]

    def common(self, mark: int, reference: str) -> list[Task]:
        """The games of which all agents compared at the mark have a normalised score there."""
        found = [agent.normalised(mark, WHOLE, reference).keys() for agent in self.compared(mark)]
        return sorted(set.intersection(*map(set, found))) if found else []

    def normalised(self, agent: Agent, mark: int, limit: str, reference: str) -> list[Array]:
        """An agent's normalised scores [runs] of each game that all have in common."""
        scores = agent.normalised(mark, limit, reference)
        return [scores[task] for task in self.common(mark, reference) if task in scores]

    def published(self, column: str, mark: int, reference: str) -> list[Array]:
        """A published agent's normalised scores [1] of the games in common, as far as it has them."""
        found = [published_normalised(task, column, reference) for task in self.common(mark, reference)]
        return [np.array([score]) for score in found if score is not None]

    @cached_property
    def aggregates(self) -> dict[tuple[str, int, str, str], Aggregate | None]:
        """Ours over the games in common by agent, mark, limit and reference; None if there is none."""
        return {
            (agent.name, mark, limit, reference): aggregate(self.normalised(agent, mark, limit, reference))
            for agent in self.agents
            for mark in MARKS
            for limit in LIMITS
            for reference in REFERENCES
        }

    @cached_property
    def published_aggregates(self) -> dict[tuple[int, str, str], Aggregate | None]:
        """Published agents' over the same games, as far as they have them, by mark, column and reference."""
        return {
            (mark, column, reference): aggregate(self.published(column, mark, reference))
            for mark in MARKS
            for column in COLUMNS
            for reference in REFERENCES
        }

    @cached_property
    def profiles(self) -> dict[str, Profiles]:
        """Performance profiles by reference, of those that games in common have a score by."""
        return {
            reference: self._profiles(self.mark, reference)
            for reference in REFERENCES
            if self.mark is not None and self.common(self.mark, reference)
        }

    def _profiles(self, mark: int, reference: str) -> Profiles:
        ours = {
            agent.name: {
                limit: profile(self.normalised(agent, mark, limit, reference), THRESHOLDS) for limit in (WHOLE, CUT)
            }
            for agent in self.compared(mark)
        }
        published = {column: self.published(column, mark, reference) for column in COLUMNS}
        return Profiles(ours, {column: profile(scores, THRESHOLDS) for column, scores in published.items() if scores})
