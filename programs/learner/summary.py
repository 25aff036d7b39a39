"""One log line about what a person asks of a run first: how good it is, how fast it is, how long it will take."""

import math
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.files import caller_path, short_path
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES
from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.monitoring.rate import Rate
from rainbow_iqn_apex.monitoring.terminal import scores
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.evaluation.settings import RULES
from rainbow_iqn_apex.programs.learner.gauges import RATE_S, REMAINING_S
from rainbow_iqn_apex.programs.learner.progress import Progress
from rainbow_iqn_apex.programs.output_lines import RESULT
from rainbow_iqn_apex.saber.results.recent_scores import RecentScore, recent_score
from rainbow_iqn_apex.saber.results.training_log import TrainingLog

_SHOWN = 4  # games in a line


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
        self._is_measured = False

    def measure(self) -> None:
        """Let speeds be those from here on; lines have none before."""
        self._is_measured = True
        self._speeds()

    def line(self) -> str:
        """Return the line of this moment."""
        score = self.score()
        return f"{score[0].upper()}{score[1:]}{self._pace() if self._is_measured else ''}"

    def _pace(self) -> str:
        played, trained = self._speeds()
        left = (self._args.T_max - self._progress.T_learner) / trained if trained else math.inf
        steps, frames = formats.rate(played), formats.rate(played * self._action_repeat)
        return f", {steps} steps/s, {frames} frames/s, {formats.duration(left)} left"

    def _speeds(self) -> tuple[float, float]:
        """Return the agent steps per second that are played, and those that are trained on."""
        progress = self._progress
        return self._played.per_second(progress.T_actors) or 0.0, self._trained.per_second(progress.T_learner) or 0.0

    def result(self) -> str:
        """Return the line with which a learner ends: the score, where its plot is, and how to evaluate the agent."""
        args, folder = self._args, caller_path(self._args.path_to_results)
        named = {name for name in ("agent",) if ":" in args.agent} | (args.given & {"env", "game", *RULES})
        command = command_line.compose(
            "test_multiple_seed.py",
            {name: args.get(name) for name in sorted(named)} | {"model": folder, "path_to_results": folder},
        )
        python = short_path(Path(sys.executable))  # of an environment that may not be active where the line is read
        command = re.sub("^python ", lambda _: f"{shlex.quote(python)} ", command)
        plot = f"Reward_{args.task}{'_*' if len(args.entries) > 1 else ''}.html"
        return f"{RESULT}{self.score()}; plot: {folder}/{plot}; evaluate the agent with: {command}"

    def score(self) -> str:
        """Return the score of the newest training episodes, and its trend."""
        tasks = [played.task for played in map(self._args.entry, range(len(self._args.entries)))]
        newest = list(map(recent_score, self._log.recent))
        if len(tasks) > 1:
            return _by_game(tasks, newest)
        return _described(newest[0]) if newest[0] else "no episode yet"


def _described(newest: RecentScore) -> str:
    last = counted(newest.episodes, "episode")
    return f"score {scores.score(newest.score, newest.before)}, mean of the last {last}"


def _by_game(tasks: Sequence[str], newest: Sequence[RecentScore | None]) -> str:
    """Write the scores of the first games; their plots show those of all."""
    found = [
        f"{task} {scores.score(score.score, score.before)}" if score else f"{task} no episode yet"
        for task, score in zip(tasks, newest, strict=True)
    ]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return f"scores {', '.join([*found[:_SHOWN], *more])}, means of up to {SCORE_EPISODES} episodes of each"
