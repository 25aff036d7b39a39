"""What each cause costs Redis, the learner's threads and an actor: the numbers that `simulation.py` needs.

Processes commit as actors do, so slowly that each commit is read by itself. The processor time of these processes, of
the reader, of the loop and of Redis is divided by the commits. There are several processes: one alone that
commits often finds its memory in the caches, which an actor among many does not. Two sizes of a commit and two numbers
of streams tell what a commit, a chunk, a read and a stream cost. What an actor costs by being there is measured call by
call.
"""

import math
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.chunks import GAMES, random_chunks
from benchmarks.processes import processor_s, reader_s
from benchmarks.simulation import Costs, Each
from benchmarks.transport import Writers, await_writers, empty_replay, led_run, running, take_in
from benchmarks.transport_writer import NAME, RUN, STATE_BYTES
from rainbow_iqn_apex.agents.networks.duelling import NetworkSpec, QuantileNetwork
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.transport import Scripts
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.messages import encode_message

_FEW, _MANY = 8, 512  # streams
_SMALL, _LARGE = 1, 8  # chunks of a commit
_RATE = 96.0  # commits a second, of all writers: few enough that nearly each is read by itself
_KEPT = 0.1  # how far the commits may be from that rate, as a share, without a line about it
_WRITERS = _FEW
_REPORT_BYTES = 2000
_RENEWALS = 0.4  # of a lease, each second
_LOOKS = 1.0  # of a reader, each second, for messages that are gone


def measure_costs(*, seconds: float = 3.0, repeats: int = 5) -> Costs:
    """Measure everything; each figure is the median of some repeats, of so many seconds for each kind of read."""
    small, large, many = (
        _median([_read(*case, seconds) for _ in range(repeats)])
        for case in ((_FEW, _SMALL), (_FEW, _LARGE), (_MANY, _SMALL))
    )
    unread = {n: statistics.median(_written(n, int(_RATE * seconds)) for _ in range(repeats)) for n in (_SMALL, _LARGE)}
    chunk, stream = _each(large, small, _LARGE - _SMALL), _each(many, small, _MANY - _FEW)
    written = max(0.0, unread[_LARGE] - unread[_SMALL]) / (_LARGE - _SMALL)  # of a chunk
    first = Each(
        redis=small.redis - unread[_SMALL] - _FEW * stream.redis - _SMALL * (chunk.redis - written),
        reader=small.reader - _FEW * stream.reader - _SMALL * chunk.reader,
        loop=small.loop - _SMALL * chunk.loop,
    )
    commit = Each(redis=unread[_SMALL] - _SMALL * written, actor=small.actor - _SMALL * chunk.actor)
    return Costs(
        commit=_not_below_0(commit),
        chunk=chunk,
        read=_not_below_0(first),
        stream=Each(redis=stream.redis, reader=stream.reader),
        **_calls(repeats),
        chunk_bytes=statistics.mean(len(encode_message(chunk)) for chunk in _made()),
        state_bytes=STATE_BYTES,
    )


def _not_below_0(each: Each) -> Each:
    return Each(*(max(0.0, seconds) for seconds in each))


def _each(more: Each, less: Each, count: int) -> Each:
    return Each(*(max(0.0, a - b) / count for a, b in zip(more, less, strict=True)))


def _median(points: list[Each]) -> Each:
    return Each(*(statistics.median(column) for column in zip(*points, strict=True)))


def _made() -> list[Chunk]:
    return [chunk for game in GAMES for chunk in random_chunks(game, _LARGE)]


def _read(streams: int, chunks: int, seconds: float) -> Each:
    """Let processes commit, and read so many streams; return what a commit costs."""
    replay = empty_replay(200)
    with running(Writers(_WRITERS, chunks, chunks * _RATE / _WRITERS), streams) as system:

        def clocks() -> Each:
            redis, *actors = (processor_s(pid) for pid in (system.redis, *system.writers))
            return Each(redis, reader_s(), time.thread_time(), sum(actors))

        await_writers(replay, system)
        take_in(replay, system, 0.5, math.inf)
        before, inserted = clocks(), replay.inserted
        take_in(replay, system, seconds, math.inf)
        commits, due = max(1, (replay.inserted - inserted) / chunks), _RATE * seconds
        if abs(commits / due - 1) > _KEPT:  # then writers and Redis have done more, or less, than was read
            print(f"{commits:.0f} commits were read in the place of {due:.0f}: the machine is too busy for these costs")
        return Each(*((now - then) / commits for now, then in zip(clocks(), before, strict=True)))


def _written(chunks: int, commits: int) -> float:
    """Return what a commit costs Redis if nothing reads it."""
    made, state = _made(), np.random.default_rng(0).bytes(STATE_BYTES)
    with led_run(1) as run, ActorClient(run.connect(), NAME, RUN, 0, threading.Event()) as actor:
        before = 0.0
        for at in range(commits + 1):
            if at == 1:  # before is the registration of the script
                before = processor_s(run.redis)
            actor.commit([made[(at * chunks + i) % len(made)] for i in range(chunks)], state)
            actor.record(), actor.unread()  # as each round does
        return (processor_s(run.redis) - before) / commits


def _calls(repeats: int) -> dict[str, Any]:
    """Measure what an actor costs by being there, and what weights cost."""
    network = QuantileNetwork(NetworkSpec(Field((84, 84), "uint8"), 4, 18, 512, 0.1), 64)
    packet = weights_packet.pack({n: p.detach().bfloat16() for n, p in network.named_parameters()}, 1)
    with led_run(_MANY) as run:
        client, learner = run.connect(), run.learner
        scripts, keys = Scripts(client), learner.keys
        positions = {keys.log(actor): b"0-0" for actor in range(_MANY)}
        read, report = dict.fromkeys(range(_MANY), 1), bytes(_REPORT_BYTES)

        def fetch() -> None:
            data = client.get("weights")
            assert isinstance(data, bytes)
            weights_packet.unpack(wire.decode(data))

        def cost(work: Callable[[], object], calls: int) -> tuple[float, float]:
            """Return the processor seconds of Redis and of the caller, of one call."""
            work()
            found = []
            for _ in range(repeats):
                before = processor_s(run.redis), time.thread_time()
                for _ in range(calls):
                    work()
                found.append((processor_s(run.redis) - before[0], time.thread_time() - before[1]))
            redis, own = (statistics.median(column) / calls for column in zip(*found, strict=True))
            return redis, own

        renewed = cost(lambda: scripts.renew("lease", b"token", 10_000), 200)
        looked = [seconds / _MANY for seconds in cost(lambda: scripts.passed(positions), 20)]
        announced = cost(lambda: learner.write_progress("running", 0, 0, read), 20)
        alone = cost(lambda: learner.write_progress("running", 0, 0, {}), 20)
        written = cost(lambda: client.set("report", report, ex=60), 200)
        published = cost(lambda: client.set("weights", packet), 10)
        fetched = cost(fetch, 10)
    redis, loop = (max(0.0, a - b) / _MANY for a, b in zip(announced, alone, strict=True))
    return {
        "present": Each(
            redis=_RENEWALS * renewed[0] + _LOOKS * looked[0], reader=_LOOKS * looked[1], actor=_RENEWALS * renewed[1]
        ),
        "announced": Each(redis=redis, loop=loop),
        "report": Each(redis=written[0], actor=written[1]),
        "fetch": Each(redis=fetched[0], actor=fetched[1]),
        "publish": Each(redis=published[0], loop=published[1]),
        "weights_bytes": float(len(packet)),
    }
