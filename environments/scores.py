"""Scores of an episode: raw, unclipped, at 5 minutes, at 30 minutes and without a limit, side by side."""

import math
import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from rainbow_iqn_apex.common.schema import MOST_COUNTED, Counted, Word
from rainbow_iqn_apex.memory.rows import Arrays

FRAMES_PER_SECOND = 60  # NTSC; "minutes" are game time, however fast the emulator runs
FRAMES_PER_MINUTE = 60 * FRAMES_PER_SECOND
MARKS = (10_000_000, 50_000_000, 100_000_000, 200_000_000)  # frames over all actors at which SABER reports scores
Score = Annotated[float, Meta(gt=-MOST_COUNTED, lt=MOST_COUNTED)]  # finite, and so are means and spreads
_DIGITS = 10  # of a score that is no whole number
SCORE_EPISODES = 100  # consecutive training episodes whose mean is a score (Toromanoff et al. 2019)


def steps_in(seconds: float, action_repeat: int) -> float:
    """Return the agent steps of `action_repeat` frames in `seconds` of game time; not always a whole number."""
    return seconds * FRAMES_PER_SECOND / action_repeat


def round_score(score: float) -> float:
    """Return a sum of rewards, or a mean of sums, without the error of adding floats: 0.8 for 0.7999999999999999."""
    return score if score.is_integer() or not math.isfinite(score) else float(f"{score:.{_DIGITS}g}")


@dataclass(frozen=True, slots=True)  # a learner holds the records of its whole run
class EpisodeRecord:
    """One finished episode; `T_actors`, `T_learner` and `actor` stay 0 where they are not known."""

    T_actors: Counted = 0  # agent steps over all actors when the episode ended
    T_learner: Counted = 0  # agent steps of the learner when it logged the episode
    actor: Counted = 0
    env: Counted = 0  # index within its actor
    episode: Counted = 0  # counted from 0 in each environment
    score_5min: Score = 0.0  # sum of raw rewards in the first 5 minutes of game time
    score_30min: Score = 0.0
    score_saber: Score = 0.0  # of the whole episode, as long as SABER lets it last
    length: Counted = 0  # agent steps
    end: Word = ""  # why it ended: "game_over", "stuck" or "time_limit"

    def __post_init__(self) -> None:
        object.__setattr__(self, "end", sys.intern(str(self.end)))  # a few words, repeated in every record


@dataclass(frozen=True, slots=True)
class VersionedRecord(EpisodeRecord):
    """One finished episode of an evaluation actor; `T_actors` and `T_learner` are those of the run when it began."""

    version: Counted = 0  # of the weights that played all of it


class EpisodeScore:
    """Adds up the raw rewards of one episode (5 and 30 minutes: Toromanoff et al. 2019; Machado et al. 2018).

        score = EpisodeScore(action_repeat=4)
        score.add(reward)                           # per agent step
        record = score.record(env, episode, end)    # after the last one

    A step belongs to the first 5 minutes if all its frames do.
    """

    def __init__(self, action_repeat: int) -> None:
        self._steps_5min, self._steps_30min = steps_in(5 * 60, action_repeat), steps_in(30 * 60, action_repeat)
        self.score_5min = self.score_30min = self.total = 0.0
        self.length = 0  # agent steps

    def add(self, reward: float) -> None:
        """Count one agent step and its raw reward."""
        self.length += 1
        self.total += reward
        if self.length <= self._steps_5min:
            self.score_5min = self.total
        if self.length <= self._steps_30min:
            self.score_30min = self.total

    def record(self, env: int, episode: int, end: str) -> EpisodeRecord:
        """Sum up the episode that has just ended."""
        return EpisodeRecord(
            env=env,
            episode=episode,
            score_5min=round_score(self.score_5min),
            score_30min=round_score(self.score_30min),
            score_saber=round_score(self.total),
            length=self.length,
            end=end,
        )

    def snapshot(self) -> Arrays:
        """Return the arrays that `restore` needs within an episode: `scores` [3] float64 and `length` int64."""
        return {
            "scores": np.array([self.score_5min, self.score_30min, self.total], np.float64),
            "length": np.array(self.length, np.int64),
        }

    def restore(self, arrays: Arrays) -> None:
        """Go on counting where `snapshot` was called."""
        self.score_5min, self.score_30min, self.total = arrays["scores"].tolist()
        self.length = int(arrays["length"])
