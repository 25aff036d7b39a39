"""What a run plays, as a report shows it: the title, and the scores to compare with if the task is an Atari game."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rainbow_iqn_apex.environments.dmlab.levels import LevelScores, scores_of
from rainbow_iqn_apex.environments.entries import MOST_ENTRIES, entries, task_name
from rainbow_iqn_apex.saber.results.atari_scores import GameScores, read_scores

_SNAKE_CASE = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True, order=True)
class Task:
    """A game of the emulator, or another environment."""

    name: str  # as in the names of files
    env: str = "atari"  # as `--env` names it; what follows a colon is the environment's own id

    @property
    def is_atari(self) -> bool:
        """Whether the task is a game of the emulator: SABER's rules and the table of scores are for such games only."""
        return self.env == "atari"

    @property
    def title(self) -> str:
        """Write a game as in "Ms Pacman", the id of a Gymnasium environment, or what `--env` names elsewhere."""
        if self.is_atari:
            return self.name.replace("_", " ").title()
        return self.env.removeprefix("gymnasium:") if ":" in self.env else self.name

    @property
    def key(self) -> str:
        """Unique name for programs: a game as in the names of files, another environment as in `--env`."""
        if self.is_atari:
            return self.name
        return self.env if ":" in self.env else f"{self.env}:{self.name}"

    @property
    def scores(self) -> GameScores | None:
        """The game's row of `saber/results/atari_scores.csv`, None if there is none."""
        return read_scores().get(self.name) if self.is_atari else None

    @property
    def level_scores(self) -> LevelScores | None:
        """Scores to compare with of a level of DMLab-30, None if the task is no such level."""
        kind, _, level = self.env.partition(":")
        return scores_of(level) if kind == "dmlab" else None

    def human_share(self, score: float) -> float | None:
        """Return a score as a share, 0 for the random agent and 1 for the human; None if no human's is known."""
        if self.scores:
            return self.scores.normalised(score, "human")
        return self.level_scores.normalised(score) if self.level_scores else None


def tasks_of(name: str, settings: Mapping[str, Any]) -> tuple[Task, ...]:
    """Return what a run of these settings plays, one task or several; `name` is the run's in the names of files."""
    env, game = (str(settings.get(option, default)) for option, default in (("env", "atari"), ("game", name)))
    if not 1 < len(played := entries(env, game)) <= MOST_ENTRIES:
        return (Task(name, env),)
    return tuple(Task(task_name(*one), one.env) for one in played)


def mean_over(scores: Sequence[tuple[Task, float]]) -> float:
    """Return the mean over tasks of their scores: of several that all have a human's, of the human-normalised ones."""
    normalised = [task.human_share(score) for task, score in scores]
    if len(scores) > 1 and (known := [one for one in normalised if one is not None]) and len(known) == len(scores):
        return fmean(known)
    return fmean(score for _, score in scores)


def task_without_record(name: str) -> Task:
    """Return the task of a log without a record: programs that wrote no records named games in snake_case."""
    return Task(name) if _SNAKE_CASE.fullmatch(name) else Task(name, "unknown")
