"""Scores to compare with, from `atari_scores.csv` beside this file: random play, a human, the human world record."""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

_TABLE = Path(__file__).with_name("atari_scores.csv")


class Reference(NamedTuple):
    """Scores of one game; None where the table has an empty cell."""

    random: float | None
    human: float | None
    world_record: float | None


def reference_scores(game: str) -> Reference | None:
    """The scores to normalise by; None for a game that the table does not hold."""
    return _references().get(game)


@cache
def _references() -> dict[str, Reference]:
    with _TABLE.open(newline="", encoding="utf-8") as file:
        return {
            row["game"]: Reference(*(float(row[name]) if row[name] else None for name in Reference._fields))
            for row in csv.DictReader(file)
        }
