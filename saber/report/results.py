"""The numbers of a report: runs by game, their scores at the marks, and all of these normalised."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from memory.rows import Array
from saber.atari_scores import GameScores, read_scores
from saber.report.aggregates import Aggregate, aggregate
from saber.report.marks import LIMITS, MARKS, score_at
from saber.report.protocol import protocols_of
from saber.report.runs import Run


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
        counts = {mark: sum(game.mean(mark, "saber") is not None for game in self.games) for mark in MARKS}
        return max((mark for mark in MARKS if counts[mark]), key=lambda mark: (counts[mark], mark), default=None)

    def normalised(self, mark: int, limit: str, reference: str) -> dict[str, Array]:
        """Normalised scores [runs] by game, of the games that have them."""
        found = {game.name: game.normalised(mark, limit, reference) for game in self.games}
        return {name: scores for name, scores in found.items() if scores is not None}

    def published(self, column: str, mark: int, reference: str) -> dict[str, Array]:
        """A published agent's normalised scores [1] by game, of the games that we have a score of at this mark."""
        found = {}
        for game in self.games:
            if game.table and game.mean(mark, "saber") is not None and column in game.table.published:
                score = game.table.normalised(game.table.published[column], reference)
                if score is not None:
                    found[game.name] = np.array([score])
        return found

    def aggregate(self, mark: int, limit: str, reference: str) -> Aggregate | None:
        """Ours over games; None if there is none."""
        return aggregate(list(self.normalised(mark, limit, reference).values()))

    def published_aggregate(self, column: str, mark: int, reference: str) -> Aggregate | None:
        """A published agent's over the same games, as far as it has them."""
        return aggregate(list(self.published(column, mark, reference).values()))
