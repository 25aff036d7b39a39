"""The numbers of a report, each computed once: scores at the marks, normalised scores, their statistics, and curves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memory.rows import Array
from saber.atari_scores import COLUMNS, REFERENCES, GameScores, read_scores
from saber.report.aggregates import Aggregate, Profile, aggregate, profile
from saber.report.marks import LIMITS, Curves, curves, score_at
from saber.report.protocol import protocols_of
from saber.report.runs import Run
from saber.scores import MARKS

FLOOR = 0.001  # smallest normalised score that a logarithmic axis shows
THRESHOLDS = np.geomspace(FLOOR, 100, 101)  # of performance profiles
WHOLE, CUT = "saber", "30min"  # limits of the plots: our own score, and what compares with episodes that were cut


@dataclass(frozen=True)
class Game:
    """The runs of a game; `table` is None for what is not in `saber/atari_scores.csv`, such as other environments."""

    name: str
    runs: Sequence[Run]
    table: GameScores | None

    @cached_property
    def at_marks(self) -> dict[int, list[list[float] | None]]:
        """For every mark and run the scores [LIMITS], None where the run has none."""
        return {mark: [score_at(run, mark) for run in self.runs] for mark in MARKS}

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
        scores = [self.table.normalised(score, reference) for score in self.scores(mark, limit)] if self.table else []
        return np.array(scores, np.float64) if scores and None not in scores else None

    def published(self, column: str, reference: str) -> float | None:
        """A published agent's normalised score; None if there is none, or no such reference."""
        score = self.table.published.get(column) if self.table else None
        return self.table.normalised(score, reference) if self.table and score is not None else None


@dataclass(frozen=True)
class Profiles:
    """Performance profiles [THRESHOLDS] over games at the mark of the plots, normalised by one reference."""

    ours: dict[str, Profile]  # by limit, at WHOLE and CUT
    published: dict[str, Profile]  # by column, on the games that we have a score of


class Results:
    """All games of a report."""

    def __init__(self, runs: Sequence[Run]) -> None:
        names = sorted({run.game for run in runs})
        table = read_scores()
        self.runs = runs
        self.protocols = protocols_of(runs)
        self.games = [Game(name, [run for run in runs if run.game == name], table.get(name)) for name in names]

    @cached_property
    def mark(self) -> int | None:
        """The mark of the plots: of those that most games have a score at the last; None if no game has any."""
        counts = {mark: sum(game.mean(mark, WHOLE) is not None for game in self.games) for mark in MARKS}
        return max((mark for mark in MARKS if counts[mark]), key=lambda mark: (counts[mark], mark), default=None)

    def normalised(self, mark: int, limit: str, reference: str) -> dict[str, Array]:
        """Normalised scores [runs] by game, of the games that have them."""
        found = {game.name: game.normalised(mark, limit, reference) for game in self.games}
        return {name: scores for name, scores in found.items() if scores is not None}

    def published(self, column: str, mark: int, reference: str) -> dict[str, float]:
        """A published agent's normalised scores by game, of the games that we have a score of at this mark."""
        having = [game for game in self.games if game.mean(mark, WHOLE) is not None]
        found = {game.name: game.published(column, reference) for game in having}
        return {name: score for name, score in found.items() if score is not None}

    @cached_property
    def aggregates(self) -> dict[tuple[int, str, str], Aggregate | None]:
        """Ours over games by mark, limit and reference; None if there is none."""
        return {
            (mark, limit, reference): aggregate(list(self.normalised(mark, limit, reference).values()))
            for mark in MARKS
            for limit in LIMITS
            for reference in REFERENCES
        }

    @cached_property
    def published_aggregates(self) -> dict[tuple[int, str, str], Aggregate | None]:
        """Published agents' over the same games, as far as they have them, by mark, column and reference."""
        return {
            (mark, column, reference): aggregate(_single(self.published(column, mark, reference).values()))
            for mark in MARKS
            for column in COLUMNS
            for reference in REFERENCES
        }

    @cached_property
    def profiles(self) -> dict[str, Profiles]:
        """Performance profiles by reference, of those that a game has a score by."""
        return {
            reference: self._profiles(self.mark, reference)
            for reference in REFERENCES
            if self.mark is not None and self.normalised(self.mark, WHOLE, reference)
        }

    def _profiles(self, mark: int, reference: str) -> Profiles:
        ours = {limit: list(self.normalised(mark, limit, reference).values()) for limit in (WHOLE, CUT)}
        published = {column: _single(self.published(column, mark, reference).values()) for column in COLUMNS}
        return Profiles(
            {limit: profile(scores, THRESHOLDS) for limit, scores in ours.items()},
            {column: profile(scores, THRESHOLDS) for column, scores in published.items() if scores},
        )


def _single(scores: Iterable[float]) -> list[Array]:
    """A published agent has one score [1] for each game."""
    return [np.array([score]) for score in scores]


def plain(values: Array) -> list[float | None]:
    """Numbers [n] as JSON takes them, to six digits; None for nan."""
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in values]
