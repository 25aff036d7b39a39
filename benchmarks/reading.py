"""How many transitions a second a learner takes out of a log that is full: alone, and beside updates.

No actor runs meanwhile, so learner and Redis have the machine for themselves. The processor time that a chunk takes is
told for each part of the learner: its readers, one thread a shard, decode, and the loop adds to the replay. A second
shard on the same server tells what a second decoding thread gives. Updates are those of the `cpu` preset; the loop
makes one, takes in what has arrived, and makes the next one, as the learner does.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.chunks import ATARI, GAMES, random_chunks
from benchmarks.processes import processor_s, reader_s
from benchmarks.transport import LedRun, led_run
from benchmarks.works import CPU, learner
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.stream_validator import UNBOUNDED
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.messages import encode_message
from rainbow_iqn_apex.programs.learner.buffers import make_buffer
from rainbow_iqn_apex.programs.learner.decoder import MessageDecoder
from rainbow_iqn_apex.programs.learner.trainer import make_trainer
from rainbow_iqn_apex.programs.learner.trainer_base import Turn

_SETTINGS = ["--preset", "cpu", "--memory-capacity", "64000", "--learn-start", "64"]
_EACH = 12  # chunks of each game
_AT_ONCE = 500  # messages that are appended together


@dataclass(frozen=True)
class Drained:
    """Holds one measurement, the median of each figure."""

    actors: int
    shards: int  # and readers
    updates: float  # a second
    transitions: float  # a second
    reader_us: float  # of processor time a chunk, of all readers
    loop_us: float
    redis_us: float


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure and print."""
    count = 400 if args.quick else 20_000
    agent = learner(_settings())
    games = GAMES[:1] if args.quick else GAMES
    messages = [encode_message(chunk) for game in games for chunk in random_chunks(game, _EACH, agent.spec)]
    found = []
    for actors, shards, updates in ((8, 1, False), (8, 1, True), (8, 2, False), (8, 2, True), (360, 1, False)):
        points = [_drain(actors, shards, messages, count, agent, updates=updates) for _ in range(args.repeats)]
        drained = _median(points)
        found.append(asdict(drained))
        print(
            f"{actors} actors, shards: {shards}: {drained.transitions:,.0f} transitions/s "
            f"beside {drained.updates:.1f} updates/s; "
            f"a chunk takes {drained.reader_us:.0f} us of the readers, {drained.loop_us:.0f} us of the loop, "
            f"{drained.redis_us:.0f} us of Redis; fastest {max(point.transitions for point in points):,.0f}",
            flush=True,
        )
    yield {"drained": found}


def _settings() -> Args:
    return options.parse(_SETTINGS, "launch_learner.py", "")


def _median(points: list[Drained]) -> Drained:
    columns = zip(*(asdict(point).values() for point in points), strict=True)
    actors, shards, *figures = (statistics.median(column) for column in columns)
    return Drained(int(actors), int(shards), *figures)


def _drain(actors: int, shards: int, messages: list[bytes], count: int, agent: Agent, *, updates: bool) -> Drained:
    settings, spec = _settings(), agent.spec
    buffer = make_buffer(settings, agent, ATARI, torch.Generator().manual_seed(1))
    for number in range(buffer.room):  # so that all memory is in use
        buffer.add(ChunkId(0, number), random_chunks(GAMES[0], 1, spec)[0])
    trainer = make_trainer(agent, buffer, settings.update_size, CPU)
    decode = MessageDecoder(spec, ATARI, nb_env=1)
    taken = made = 0
    with led_run(actors, shards) as run:
        _fill(run, actors, messages, count)
        redis, start, loop = processor_s(run.redis), time.perf_counter(), time.thread_time()
        with closing(run.learner.inbox(decode, threading.Event(), lambda: UNBOUNDED)) as inbox:
            while taken < count:
                if updates:
                    trainer([Turn(0.4, 1)])
                    made += 1
                inbox.wait(WaitReporter("the log"))
                for chunk_id, message, _ in inbox.take_all(buffer.room):
                    assert isinstance(message, Chunk)
                    buffer.add(chunk_id, message)
                    taken += 1
            took, loop, reader = time.perf_counter() - start, time.thread_time() - loop, reader_s()
        redis = processor_s(run.redis) - redis
    each = [1e6 * seconds / count for seconds in (reader, loop, redis)]
    return Drained(actors, shards, made / took, count * spec.period / took, *each)


def _fill(run: LedRun, actors: int, messages: list[bytes], count: int) -> None:
    """Append so many messages, in turn to each actor's log."""
    connection, keys = run.connect(), run.learner.keys
    for first in range(0, count, _AT_ONCE):
        pipeline = connection.pipeline(transaction=False)
        for number in range(first, min(count, first + _AT_ONCE)):
            entry: dict[Any, Any] = {"m": messages[number % len(messages)]}
            pipeline.xadd(keys.log(number % actors), entry, id=f"{number // actors + 1}-0")
        pipeline.execute()
