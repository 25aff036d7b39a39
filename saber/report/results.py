"""The numbers of a report, each computed once: scores at the marks, normalised scores, their statistics, and curves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.environments.scores import MARKS, SCORE_EPISODES
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import Aggregate, Profile, aggregate, profile
from rainbow_iqn_apex.saber.report.inputs import LIMITS, Evaluation, Inputs, Run
from rainbow_iqn_apex.saber.report.settings import (
    UNUSED,
    AgentOptions,
    agent_name,
    agree,
    format_value,
    protocols_of,
)
from rainbow_iqn_apex.saber.results.task import COLUMNS, REFERENCES, Task

FLOOR = 0.001  # smallest normalised score that a logarithmic axis shows
THRESHOLDS = np.geomspace(FLOOR, 100, 101)  # of performance profiles
WHOLE = "saber"  # limits of the plots: our own score,
CUT = "30min"  # and what compares with episodes that were cut
_NAMED = 2  # differing settings in a name; the table of differences has all of them
_POINTS = 120  # of a curve


def score_at(run: Run, mark: int) -> list[float] | None:
    """Mean scores of a run [LIMITS] at `mark` frames, as SABER reports them (Toromanoff et al. 2019, arXiv 1908.04683).

    It is the mean over the last 100 consecutive training episodes that had ended by then; an episode that ends after
    the mark is not among them, whenever it began. None if the run has not made the mark's frames, or has not ended 100
    episodes by then.
    """
    ended = int(np.searchsorted(run.frames, mark, side="right"))
    if run.reached < mark or ended < SCORE_EPISODES:
        return None
    means: list[float] = run.scores[ended - SCORE_EPISODES : ended].mean(0).tolist()
    return means


class Now(NamedTuple):
    """Score and frames that a run without a score at a mark has reached."""

    seed: Any  # as its record has it; None if it is not known
    log: str  # path for readers
    frames: int
    episodes: int  # newest ones that the scores are the mean of
    scores: list[float]  # [LIMITS]


def score_now(run: Run) -> Now | None:
    """Mean scores over the last 100 episodes, or all so far, of a run that has no score at a mark; None if it has."""
    if any(score_at(run, mark) for mark in MARKS):
        return None
    episodes = min(SCORE_EPISODES, len(run.scores))
    return Now(run.settings.get("seed"), run.name, run.reached, episodes, _newest_scores(run))


def _newest_scores(run: Run) -> list[float]:
    means: list[float] = run.scores[-SCORE_EPISODES:].mean(0).tolist()
    return means


class Curves(NamedTuple):
    """The training curves of a game's runs."""

    frames: Array  # [points]
    runs: Array  # [runs, points] see `curve`


def curve_frames(runs: Sequence[Run]) -> Array:
    """Frames [points] at which a game's curves are drawn: even, and the ends of all runs."""
    ends = [run.frames[-1] for run in runs]
    return np.unique(np.concatenate([np.linspace(0, max(ends), _POINTS + 1)[1:].astype(np.int64), ends]))


def curve(run: Run, frames: Array) -> Array:
    """Mean score of whole episodes [points] of the last 100 episodes, or of those so far; nan before the first end and
    after the last.
    """
    sums = np.concatenate([[0.0], np.cumsum(run.scores[:, -1])])  # [episodes + 1]
    ended = np.searchsorted(run.frames, frames, side="right")
    first = np.maximum(0, ended - SCORE_EPISODES)
    means: Array = (sums[ended] - sums[first]) / np.maximum(1, ended - first)
    means[(ended == 0) | (frames > run.frames[-1])] = np.nan
    return means


class Game:
    """The runs of a game by one agent."""

    def __init__(self, task: Task, runs: Sequence[Run]) -> None:
        frames = curve_frames(runs)
        self.task = task
        self.runs = runs
        # For every mark and run the scores [LIMITS], None where the run has none.
        self.at_marks = {mark: [score_at(run, mark) for run in runs] for mark in MARKS}
        self.now = [now for run in runs if (now := score_now(run))]  # of the runs that have no score at a mark
        self.curves = Curves(frames, np.array([curve(run, frames) for run in runs]))  # of all runs, at the same frames

    @property
    def human_share(self) -> float | None:
        """The newest score of a level of DMLab-30, 0 being the random agent and 1 the human; None for other tasks.

        It is the mean of the runs' last 100 episodes, also behind the latest mark.
        """
        if not (scores := self.task.level_scores):
            return None
        column = LIMITS.index(WHOLE)
        return scores.normalised(float(np.mean([_newest_scores(run)[column] for run in self.runs])))

    def now_mean(self, limit: str) -> float:
        """Mean over the runs that have no score at a mark, of which there is one at least."""
        return float(np.mean([now.scores[LIMITS.index(limit)] for now in self.now]))

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
    """One agent of the report: its runs agree in all settings that take part in learning; games and seeds differ."""

    def __init__(self, name: str, runs: Sequence[Run], settings: dict[str, Any], options: AgentOptions) -> None:
        """`settings` are those in which the runs agree, as far as they are recorded; `options` those of all agents."""
        self.name = name  # no other agent of the report has it
        self.runs = runs
        self.settings = settings
        self.options = options
        self.protocols = protocols_of([run.record for run in runs])
        tasks = sorted({run.task for run in runs})
        self.games = {task: Game(task, [run for run in runs if run.task == task]) for task in tasks}
        shares = [share for game in self.games.values() if (share := game.human_share) is not None]
        # Over the levels of DMLab-30 that it has played; None without any.
        self.dmlab30 = DmLab30(float(np.mean(np.minimum(shares, 1))), len(shares)) if shares else None

    def scored(self, mark: int) -> list[Task]:
        """The games of the emulator of which a run has a score at the mark."""
        return [task for task, game in self.games.items() if task.is_atari and game.mean(mark, WHOLE) is not None]

    def normalised(self, mark: int, limit: str, reference: str) -> dict[Task, Array]:
        """Normalised scores [runs] by game, of the games that have them."""
        found = {task: game.normalised(mark, limit, reference) for task, game in self.games.items()}
        return {task: scores for task, scores in found.items() if scores is not None}


@dataclass
class _Cluster:
    label: str | None
    settings: dict[str, Any]
    runs: list[Run]


def group_runs(runs: Sequence[Run], options: AgentOptions | None = None) -> list[Agent]:
    """Part the runs into agents, in the order of the command line; `options` are those that agents may have.

    An agent has the name that the command line gives, or else that of its algorithm and preset.
    """
    known = options or {}
    clusters: list[_Cluster] = []
    for run in sorted(runs, key=lambda run: -len(run.comparable)):  # those with most settings decide what there is
        cluster = _place(run, [cluster for cluster in clusters if cluster.label == run.label])
        if cluster is None:
            clusters.append(cluster := _Cluster(run.label, {}, []))
        cluster.runs.append(run)
        cluster.settings |= run.comparable
    clusters.sort(key=lambda cluster: min((run.order, run.name) for run in cluster.runs))
    return [
        Agent(name, sorted(cluster.runs, key=lambda run: (run.task.name, run.name)), cluster.settings, known)
        for name, cluster in zip(_names(clusters, known), clusters, strict=True)
    ]


def _place(run: Run, clusters: Sequence[_Cluster]) -> _Cluster | None:
    """Find the cluster of a run; None if there is none, or if too little is recorded to find it."""
    for cluster in clusters:
        if any(other.comparable == run.comparable for other in cluster.runs):
            return cluster
    fitting = [cluster for cluster in clusters if agree(cluster.settings, run.comparable)]
    return fitting[0] if len(fitting) == 1 else None


def _names(clusters: Sequence[_Cluster], options: AgentOptions) -> list[str]:
    """The label, or algorithm and preset; where these are the same, with settings that differ."""
    plain = []
    for cluster in clusters:
        agents = {name for run in cluster.runs if (name := agent_name(run.settings))}
        presets = {str(run.settings["preset"]) for run in cluster.runs if "preset" in run.settings}
        default = [*agents, *(presets if len(presets) == 1 else [])] or ["agent not recorded"]
        plain.append(cluster.label or ", ".join(default))
    named = []
    for name, cluster in zip(plain, clusters, strict=True):
        alike = [other.settings for other, theirs in zip(clusters, plain, strict=True) if theirs == name]
        telling = [setting for setting, values in _differing(alike, options).items() if UNUSED not in values]
        texts = [f"{setting} {format_value(setting, cluster.settings, options)}" for setting in telling]
        more = [f"and {len(texts) - _NAMED} more"] if len(texts) > _NAMED else []
        named.append(f"{name} ({', '.join([*texts[:_NAMED], *more])})" if texts else name)
    seen = Counter(named)
    return [
        f"{name} #{1 + named[:number].count(name)}" if seen[name] > 1 else name for number, name in enumerate(named)
    ]


def differences(agents: Sequence[Agent]) -> dict[str, list[str]]:
    """Settings in which agents differ, with the value of each agent."""
    return _differing([agent.settings for agent in agents], agents[0].options)


def _differing(settings: Sequence[dict[str, Any]], options: AgentOptions) -> dict[str, list[str]]:
    names = sorted({name for one in settings for name in one})
    values = {name: [format_value(name, one, options) for one in settings] for name in names}
    return {name: texts for name, texts in values.items() if len(set(texts)) > 1}


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
        self.agents = group_runs(self.runs, options)
        self.tasks = sorted({run.task for run in self.runs})
        self.atari = [task for task in self.tasks if task.is_atari]
        self.others = [task for task in self.tasks if not task.is_atari]
        self.protocols = protocols_of([run.record for run in self.runs if run.task.is_atari])
        # Marks at which a game of the emulator has a score, the latest first.
        self.marks = [mark for mark in reversed(MARKS) if self.compared(mark)]
        counts = {mark: sum(len(agent.scored(mark)) for agent in self.agents) for mark in self.marks}
        # The mark of the plots: of those that most games of all agents have a score at the last; None without any.
        self.mark = max(self.marks, key=lambda mark: (counts[mark], mark), default=None)

    def agent_of(self, evaluation: Evaluation) -> str | None:
        """Name the agent of whose run the snapshot is; None unless the snapshot was in the folder of such a run."""
        folder = (evaluation.path.parent / evaluation.record.model).resolve().parent
        title = evaluation.task.title
        names = (
            agent.name
            for agent in self.agents
            for run in agent.runs
            if run.task.title == title and run.path.resolve().parent == folder
        )
        return next(names, None)

    def compared(self, mark: int) -> list[Agent]:
        """The agents that have a score at the mark."""
        return [agent for agent in self.agents if agent.scored(mark)]

    def common(self, mark: int, reference: str) -> list[Task]:
        """The games of which all agents compared at the mark have a normalised score there."""
        found = [agent.normalised(mark, WHOLE, reference).keys() for agent in self.compared(mark)]
        return sorted(set.intersection(*map(set, found))) if found else []

    def _normalised(self, agent: Agent, mark: int, limit: str, reference: str) -> list[Array]:
        """An agent's normalised scores [runs] of each game that all have in common."""
        scores = agent.normalised(mark, limit, reference)
        return [scores[task] for task in self.common(mark, reference) if task in scores]

    def _published(self, column: str, mark: int, reference: str) -> list[Array]:
        """A published agent's normalised scores [1] of the games in common, as far as it has them."""
        found = [published_normalised(task, column, reference) for task in self.common(mark, reference)]
        return [np.array([score]) for score in found if score is not None]

    @cached_property
    def aggregates(self) -> dict[tuple[str, int, str, str], Aggregate | None]:
        """Ours over the games in common by agent, mark, limit and reference; None if there is none."""
        return {
            (agent.name, mark, limit, reference): aggregate(self._normalised(agent, mark, limit, reference))
            for agent in self.agents
            for mark in MARKS
            for limit in LIMITS
            for reference in REFERENCES
        }

    @cached_property
    def published_aggregates(self) -> dict[tuple[int, str, str], Aggregate | None]:
        """Published agents' over the same games, as far as they have them, by mark, column and reference."""
        return {
            (mark, column, reference): aggregate(self._published(column, mark, reference))
            for mark in MARKS
            for column in COLUMNS
            for reference in REFERENCES
        }

    @cached_property
    def profiles(self) -> dict[str, Profiles]:
        """Performance profiles by reference, of those that games in common have a score by."""
        mark = self.mark
        found = {}
        for reference in REFERENCES if mark is not None else ():
            if mark is None or not self.common(mark, reference):
                continue
            ours = {
                agent.name: {
                    limit: profile(self._normalised(agent, mark, limit, reference), THRESHOLDS)
                    for limit in (WHOLE, CUT)
                }
                for agent in self.compared(mark)
            }
            published = {column: self._published(column, mark, reference) for column in COLUMNS}
            theirs = {column: profile(scores, THRESHOLDS) for column, scores in published.items() if scores}
            found[reference] = Profiles(ours, theirs)
        return found
