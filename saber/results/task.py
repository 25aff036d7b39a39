"""What a run plays, as readers meet it: its title, and the scores to compare with if it is an Atari game."""

import re
from dataclasses import dataclass

from saber.results.atari_scores import GameScores, read_scores

_SNAKE_CASE = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True, order=True)
class Task:
    """A game of the emulator, or another environment."""

    name: str  # as in the names of files
    env: str = "atari"  # as `--env` names it; what follows a colon is the environment's own id

    @property
    def is_atari(self) -> bool:
        """Whether it is a game of the emulator: SABER's rules and the table of scores are for no others."""
        return self.env == "atari"

    @property
    def title(self) -> str:
        """Write a game as in "Ms Pacman", and the id of another environment as it is."""
        if self.is_atari:
            return self.name.replace("_", " ").title()
        return self.env.partition(":")[2] or self.name

    @property
    def key(self) -> str:
        """Name it for programs, no two tasks alike: a game as in the names of files, other environments as `--env`."""
        if self.is_atari:
            return self.name
        return self.env if ":" in self.env else f"{self.env}:{self.name}"

    @property
    def scores(self) -> GameScores | None:
        """The game's row of `saber/results/atari_scores.csv`, None if it has none."""
        return read_scores().get(self.name) if self.is_atari else None


def task_without_record(name: str) -> Task:
    """Return what a log without a record is of: programs that wrote none named games in snake_case."""
    return Task(name) if _SNAKE_CASE.fullmatch(name) else Task(name, "unknown")
