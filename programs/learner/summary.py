"""One log line about what a person asks of a run first: how good it is, how fast it is, how long it will take."""

import math
import time
from collections.abc import Callable

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.monitoring.rate import Rate
from rainbow_iqn_apex.monitoring.terminal import scores
from rainbow_iqn_apex.programs.learner.gauges import RATE_S, REMAINING_S
from rainbow_iqn_apex.programs.learner.progress import Progress
from rainbow_iqn_apex.saber.results.recent_scores import recent_score
from rainbow_iqn_apex.saber.results.training_log import TrainingLog


class Summary:
    """Measures a learner over the last minutes of lines, as its experience comes in rounds."""

    def __init__(
        self, args: Args, progress: Progress, log: TrainingLog, action_repeat: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._args = args
        self._progress = progress
        self._log = log
        self._action_repeat = action_repeat
        self._played, self._trained = Rate(RATE_S, clock), Rate(REMAINING_S, clock)
        self._measure()

    def line(self) -> str:
        """Return the line of this moment."""
        played, trained = self._measure()
        left = (self._args.T_max - self._progress.T_learner) / trained if trained else math.inf
        steps, frames = formats.rate(played), formats.rate(played * self._action_repeat)
        score = self.score()
        return f"{score[0].upper()}{score[1:]}, {steps} steps/s, {frames} frames/s, {formats.duration(left)} left"

    def _measure(self) -> tuple[float, float]:
        """Return the agent steps per second that are played, and those that are trained on."""
        progress = self._progress
        return self._played.per_second(progress.T_actors) or 0.0, self._trained.per_second(progress.T_learner) or 0.0

    def score(self) -> str:
        """Return the score of the newest training episodes, and its trend."""
        newest = recent_score(self._log.records)
        if newest is None:
            return "no episode yet"
        last = counted(newest.episodes, "episode")
        return f"score {scores.score(newest.score, newest.before)}, mean of the last {last}"
