"""The learner's metrics, by the names of `monitoring.metrics`, and its log lines.

Metrics are read from another thread while the learner works. A log line holds what a person asks of a run first: how
good it is, how fast it is, how long it will take.
"""

import math
import re
import shlex
import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.files import caller_path, short_path
from rainbow_iqn_apex.common.loop_clock import LoopClock, Shares
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.monitoring.metrics import MOST_TAGS, PRIORITY_BOUNDS, Rate, Tags
from rainbow_iqn_apex.monitoring.report import Reading
from rainbow_iqn_apex.monitoring.view_model import score as describe_score
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.evaluation.settings import RULES
from rainbow_iqn_apex.programs.learner.ingest import Ingest
from rainbow_iqn_apex.programs.learner.trainers import LARGEST_LAG, Metrics
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress, Run
from rainbow_iqn_apex.programs.process import RESULT
from rainbow_iqn_apex.saber.results.summary import RecentScore, recent_score
from rainbow_iqn_apex.saber.results.training_log import TrainingLog

PARTS = ("other", "take_in", "sample", "update", "publish", "save", "wait")  # of the learner's clock
RATE_S = 60.0  # over which speeds are averaged; a round of a slow run takes ten seconds
REMAINING_S = 600.0
_SLOW_S = 10.0  # between looks at what costs milliseconds
_PRIORITIES = 10_000


def summary(metrics: Iterable[Metrics], tags: Tags) -> dict[str, float]:
    """Return the means of updates' metrics, of a largest lag the largest, by their `tags`; waits for the device."""
    found: dict[str, list[torch.Tensor]] = {}
    for made in metrics:
        for name, value in made.items():
            found.setdefault(name, []).append(value)
    stacked = {name: torch.stack(values).float() for name, values in found.items()}
    means = {name: (each.max() if name == LARGEST_LAG else each.mean()) for name, each in stacked.items()}
    return {tag: mean.item() for name, mean in means.items() if (tag := tags.of(name))}


class LearnerGauges:
    """Holds what is measured of the updates, and reads the rest where it is.

    `note` belongs to the learner's thread, `read` to another. `received` has, by actor, the last message that one of
    several learners had read a moment ago.
    """

    def __init__(self, run: Run, buffer: Buffer, store: ReportStore, ingest: Ingest, clock: LoopClock) -> None:
        self._args = args = run.args
        self._buffer = buffer
        self._store = store
        assert run.results, "rank 0 reads the gauges"
        self._results = run.results
        self._progress = progress = run.progress
        self._ingest = ingest
        self._learners = run.world.size
        self.received: dict[int, int] = {}
        self._shares = Shares(clock)
        self._tags = Tags()
        self._has_printed = False  # whether a line was printed about metrics that are left out
        self._metrics: deque[Metrics] = deque(maxlen=max(1, args.evaluation_size // args.batch_size))
        self._updates = 0
        self._first = progress.T_actors
        self._updated = Rate(RATE_S)
        self.measure_anew()
        self._slow: Reading = Reading({})
        self._next_slow = 0.0

    def note(self, metrics: list[Metrics]) -> None:
        """Count updates and keep their metrics; print a line if the agent has more of them than are kept."""
        left_out = next((name for made in metrics for name in made if self._tags.of(name) is None), None)
        if left_out is not None and not self._has_printed:
            self._has_printed = True
            named = textwrap.shorten(ascii(left_out), 60)
            print(f"Metrics are left out: the agent's updates have more than {MOST_TAGS}, {named} is one", flush=True)
        self._metrics += metrics
        self._updates += len(metrics) * self._args.own.optimiser_steps

    def measure_anew(self) -> None:
        """Let speeds be those from here on."""
        self._played = Rate(RATE_S)
        self._learned = Rate(REMAINING_S)

    def means(self) -> dict[str, float]:
        """Return `summary` of the newest updates' metrics."""
        return summary(list(self._metrics), self._tags)

    def read_anew(self) -> None:
        """Let the next reading have no value of an earlier one: the last report of a run has how it ended."""
        self._next_slow = 0.0

    def read(self) -> Reading:
        """Return all metrics of this moment; ages, priorities and Redis may be some seconds old."""
        if time.monotonic() >= self._next_slow:
            self._next_slow = time.monotonic() + _SLOW_S
            self._slow = self._read_slowly()
        shares = {f"share/{part}": share for part, share in self._shares.read().items()}
        values = self._speeds() | self._scores() | self.means() | shares | self._slow.values | self._buffered()
        return Reading(values, self._slow.histograms)

    def _speeds(self) -> dict[str, float]:
        repeat = self._results.action_repeat
        played = self._progress.T_actors
        trained = self._progress.T_learner
        values = {
            "time/total_timesteps": played,
            "time/frames": played * repeat,
            "time/progress": min(1.0, trained / self._args.T_max),
            "train/timesteps": trained,
            "train/n_updates": self._updates,
            "train/version": self._progress.round,
        }
        if (steps := self._played.per_second(played)) is not None:
            values |= {"time/steps_per_second": steps, "time/fps": steps * repeat}
        if (updates := self._updated.per_second(self._updates)) is not None:
            values["train/updates_per_second"] = updates
        if trained and (speed := self._learned.per_second(trained)):
            values["time/remaining"] = max(0, self._args.T_max - trained) / speed
        return values

    def _buffered(self) -> dict[str, float]:
        buffer = self._buffer
        if not self._args.own.MAX_POLICY_LAG:  # a round passes through, and nothing is held
            return {}
        held = buffer.chunks * buffer.spec.period
        values = {"buffer/rows": buffer.steps * self._learners, "buffer/fill": min(1.0, held / buffer.capacity)}
        if inserted := self._progress.T_actors - self._first:
            batch = self._args.batch_size * buffer.spec.sample_length
            values["buffer/samples_per_insert"] = self._updates * batch / inserted
        return values

    def _read_slowly(self) -> Reading:
        """Return what changes slowly and costs milliseconds: ages, priorities, Redis."""
        values = self._redis()
        if (age := self._buffer.sampled_age()) is not None:
            values["buffer/sampled_age"] = age * self._buffer.steps / max(1, self._buffer.chunks) * self._learners
        priorities = self._buffer.priorities(_PRIORITIES)
        if priorities is None:
            return Reading(values)
        bins = np.searchsorted(PRIORITY_BOUNDS, priorities.numpy())
        counts = np.bincount(bins, minlength=len(PRIORITY_BOUNDS) + 1)
        return Reading(values, {"buffer/priorities": counts.astype(float).tolist()})

    def _redis(self) -> dict[str, float]:
        values: dict[str, float] = {"redis/quarantined": self._ingest.reader.unreadable}
        with suppress(BrokerError):  # it is away, or this user may not ask
            use = self._store.server(self.received | self._ingest.reader.received)
            values |= {"redis/used_memory": use.used, "redis/max_memory": use.limit}
            values |= {"redis/entries": use.entries, "redis/unread": use.unread}
        return values

    def _scores(self) -> dict[str, float]:
        names = ("rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/episodes")
        evaluated = ("eval/mean_reward", "eval/mean_ep_length", "eval/episodes")
        values: dict[str, float] = {}
        for log, (score, length, count) in zip(self._results.logs, (names, evaluated), strict=False):
            values[count] = log.episodes
            if newest := recent_score(log.records):
                values |= {score: newest.score, length: newest.length}
                if log is self._results.log and newest.before is not None:
                    values["rollout/ep_rew_before"] = newest.before
        return values


_SHOWN = 4  # games in a line


class Summary:
    """Measures a learner over the last minutes of lines, as its experience comes in rounds."""

    def __init__(
        self,
        args: Args,
        progress: Progress,
        log: TrainingLog,
        action_repeat: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._args = args
        self._progress = progress
        self._log = log
        self._action_repeat = action_repeat
        self._played = Rate(RATE_S, clock)
        self._trained = Rate(REMAINING_S, clock)
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
        frames = formats.rate(played * self._action_repeat)
        return f", {formats.rate(played)} steps/s, {frames} frames/s, {formats.duration(left)} left"

    def _speeds(self) -> tuple[float, float]:
        """Return the agent steps per second that are played, and those that are trained on."""
        progress = self._progress
        return self._played.per_second(progress.T_actors) or 0.0, self._trained.per_second(progress.T_learner) or 0.0

    def result(self) -> str:
        """Return the line with which a learner ends: the score, where its plot is, and how to evaluate the agent."""
        args = self._args
        folder = caller_path(args.path_to_results)
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
    return f"score {describe_score(newest.score, newest.before)}, mean of the last {last}"


def _by_game(tasks: Sequence[str], newest: Sequence[RecentScore | None]) -> str:
    """Write the scores of the first games; their plots show those of all."""
    found = [
        f"{task} {describe_score(score.score, score.before)}" if score else f"{task} no episode yet"
        for task, score in zip(tasks, newest, strict=True)
    ]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return f"scores {', '.join([*found[:_SHOWN], *more])}, means of up to {SCORE_EPISODES} episodes of each"
