"""One log line about what a person asks of a run first: how good it is, how fast it is, how long it will take."""

import time
from itertools import islice
from statistics import fmean

from args import Args
from monitoring import formats
from programs.learner.progress import Progress
from saber.plural import counted
from saber.results.training_log import TrainingLog
from saber.scores import SCORE_EPISODES


class Summary:
    """Measures a learner from one line to the next."""

    def __init__(self, args: Args, progress: Progress, log: TrainingLog, action_repeat: int) -> None:
        self._args = args
        self._progress = progress
        self._log = log
        self._action_repeat = action_repeat
        self._time = time.monotonic()
        self._played, self._trained = progress.T_actors, progress.T_learner

    def line(self) -> str:
        """Return the line about the time since the line before."""
        now, progress = time.monotonic(), self._progress
        seconds = max(1e-3, now - self._time)
        played, trained = progress.T_actors - self._played, progress.T_learner - self._trained
        self._time, self._played, self._trained = now, progress.T_actors, progress.T_learner
        left = (self._args.T_max - progress.T_learner) * seconds / max(1, trained)
        steps, frames = formats.rate(played / seconds), formats.rate(played * self._action_repeat / seconds)
        return f"{self._score()}, {steps} steps/s, {frames} frames/s, {formats.duration(left)} left"

    def _score(self) -> str:
        newest = [record.score_saber for record in islice(reversed(self._log.records), SCORE_EPISODES)]
        if not newest:
            return "No episode yet"
        return f"Score {fmean(newest):.2f} in the last {counted(len(newest), 'episode')}"
