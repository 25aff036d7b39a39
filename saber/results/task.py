"""What a run plays, as a report shows it: the title, and the scores to compare with if the task is an Atari game."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from rainbow_iqn_apex.environments.dmlab.options import LevelScores, scores_of
from rainbow_iqn_apex.environments.registry import MOST_ENTRIES, entries, task_name

PATH = Path(__file__).with_name("atari_scores.csv")

STICKY = "sticky actions"
NO_OP = "no-op starts"
UNSTATED = "start not stated"  # the table's column names the frames only


@dataclass(frozen=True)
class Column:
    """A published agent's column of the table."""

    agent: str
    protocol: str  # STICKY, NO_OP or UNSTATED
    frames: int  # of training, four per agent step
    source: str

    @property
    def label(self) -> str:
        """Agent, protocol and frames: no score of the column should be shown without them."""
        return f"{self.agent} ({self.protocol}, {format_frames(self.frames)})"


BASELINES = {
    "random": "uniformly random actions; Wang et al. 2016, arXiv 1511.06581 (no-op starts); of the five games outside "
    "of the 57 the source is not known",
    "human": "professional tester; Wang et al. 2016, arXiv 1511.06581 (no-op starts)",
    "world_record": "human world record; Toromanoff et al. 2019, arXiv 1908.04683",
}
REFERENCES = {"human": "human", "world_record": "world record"}  # baselines that are 100 %, as readers know them
_DOPAMINE = "baselines of Dopamine; Castro et al. 2018, arXiv 1812.06110"
COLUMNS = {
    "rainbow_noop_200m": Column("Rainbow", NO_OP, 200_000_000, "Hessel et al. 2018, arXiv 1710.02298"),
    "iqn_noop_200m": Column("IQN", NO_OP, 200_000_000, "Dabney et al. 2018, arXiv 1806.06923"),
    "apex_noop_22800m": Column("Ape-X", NO_OP, 22_800_000_000, "Horgan et al. 2018, arXiv 1803.00933"),
    "dqn_sticky_200m_dopamine": Column("DQN, Dopamine", STICKY, 200_000_000, _DOPAMINE),
    "rainbow_sticky_200m_dopamine": Column("Rainbow, Dopamine", STICKY, 200_000_000, _DOPAMINE),
    "iqn_sticky_200m_dopamine": Column("IQN, Dopamine", STICKY, 200_000_000, _DOPAMINE),
    "r2d2_10b": Column("R2D2", UNSTATED, 10_000_000_000, "Kapturowski et al. 2019, ICLR"),
    "seed_r2d2_40b": Column("SEED R2D2", UNSTATED, 40_000_000_000, "Espeholt et al. 2020, arXiv 1910.06591"),
    "agent57_100b": Column("Agent57", UNSTATED, 100_000_000_000, "Badia et al. 2020, arXiv 2003.13350"),
}


@dataclass(frozen=True)
class GameScores:
    """One game's row, in the game's points; None where the table has no number."""

    in_atari57: bool  # one of the 57 games that most papers report
    random: float
    human: float | None
    world_record: float | None
    published: dict[str, float]  # by column; those without a number are left out

    def normalised(self, score: float, reference: str) -> float | None:
        """(score - random) / (reference - random), for one of REFERENCES: human (Mnih et al. 2015), record (SABER).

        0 is the random agent and 1 the reference; None if the game has no such reference.
        """
        best = {"human": self.human, "world_record": self.world_record}[reference]
        return None if best is None else (score - self.random) / (best - self.random)


@cache
def read_scores() -> dict[str, GameScores]:
    """Read the table, by game in ALE's snake_case; raises ValueError if the file is not as described here."""
    with PATH.open(encoding="ascii", newline="") as file:
        reader = csv.DictReader(file)
        if (found := list(reader.fieldnames or [])) != (expected := ["game", "in_atari57", *BASELINES, *COLUMNS]):
            raise ValueError(f"{PATH}: expected the columns {expected}, found {found}")
        return {row["game"]: _game_scores(row) for row in reader}


def _game_scores(row: dict[str, str]) -> GameScores:
    values = {name: float(row[name]) for name in (*BASELINES, *COLUMNS) if row[name]}
    if not all(map(math.isfinite, values.values())):
        raise ValueError(f"{PATH}: {row['game']}: a score is no finite number")
    references = [values[name] for name in REFERENCES if name in values]
    if any(reference <= values["random"] for reference in references):
        raise ValueError(f"{PATH}: {row['game']}: the random agent is not below its references")
    return GameScores(
        in_atari57=row["in_atari57"] == "1",
        random=values["random"],
        human=values.get("human"),
        world_record=values.get("world_record"),
        published={name: values[name] for name in COLUMNS if name in values},
    )


def format_frames(frames: int) -> str:
    """Write a number of frames as papers do: 200 M, 22.8 B."""
    return f"{frames / 1e6:g} M" if frames < 10**9 else f"{frames / 1e9:g} B"


def format_points(score: float) -> str:
    """Write a score with as many digits as are worth reading, as in 0.93, 21.3, 12,345; a half is rounded up."""
    if (size := abs(score)) >= 1000:
        return f"{math.copysign(math.floor(size + 0.5), score):,.0f}"
    return f"{score:,.2f}" if 0 < size < 1 else f"{score:,.1f}"


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
