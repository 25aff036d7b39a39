"""What actors cost Redis, the learner and themselves: throughput with more and more of them, and a fit.

Synthetic actors append chunks of random play that they have made before, so that a machine can run more of them than it
could play for: first as fast as they can, then at fixed rates, in different portions, so that none waits. To these
the processor time of Redis, the learner's end and the actors is fitted by a constant, one for each actor, one for each
commit (a script call with the actor's state) and one for each chunk of 64 transitions.
"""

import argparse
import resource
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.chunks import SPEC
from benchmarks.harness import Work, add_json
from benchmarks.processes import RedisServer, processor_s
from benchmarks.transport import System, Writers, empty_replay, running, take_in
from rainbow_iqn_apex.agents.networks.duelling import NetworkSpec, QuantileNetwork
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.environment_spec import Field

_WINDOW_S = 4.0
_TRANSFERS = 50  # of weights
_FREE = [Writers(number) for number in (1, 2, 4, 8)]
# Actors, chunks of a commit, chunks a second of each: so the costs of an actor, a commit and a chunk can be separated.
_PACES = (
    (1, 1, 200), (1, 8, 400), (2, 1, 100), (2, 2, 200), (4, 2, 50), (4, 6, 100), (8, 1, 25), (8, 4, 50), (16, 1, 5),
    (16, 6, 24), (32, 1, 3), (32, 6, 12),
)  # fmt: skip
_PACED = [Writers(number, chunks, rate) for number, chunks, rate in _PACES]


@dataclass(frozen=True)
class Point:
    """Holds one measurement."""

    actors: int
    chunks_each: int  # of a commit
    transitions: float  # a second, into the replay
    commits: float  # a second
    redis: float  # processor seconds a second
    learner: float
    actor: float  # all actors together


@dataclass(frozen=True)
class Fit:
    """Holds processor seconds."""

    second: float  # whatever comes
    actor_second: float
    commit: float
    chunk: float
    error: float  # root mean square, of what is explained


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quick", action="store_true", help="few actors, to see that it runs")
    add_json(parser)


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure and print."""
    most = 2 if args.quick else 32
    groups = [[writers for writers in group if writers.number <= most] for group in (_FREE, _PACED)]
    free, paced = ([_point(writers) for writers in group] for group in groups)
    fits = {process: _fit(paced, process) for process in ("redis", "learner", "actor")}
    weights = _weights()
    for process, fit in fits.items():
        costs = (fit.second, fit.actor_second, fit.commit, fit.chunk)
        text = "{:.0f} us a second, {:.0f} us an actor and second, {:.0f} us a commit, {:.0f} us a chunk"
        print(f"{process}: {text.format(*(1e6 * cost for cost in costs))}; root mean square error {fit.error:.1%}")
    print(", ".join(f"{name} {value:.4g}" for name, value in weights.items()))
    yield {
        "points": [asdict(point) for point in free + paced],
        "fits": {process: asdict(fit) for process, fit in fits.items()},
        "weights": weights,
    }


def _point(writers: Writers) -> Point:
    replay = empty_replay(200)
    with running(writers) as system:
        while min(system.inbox.read.values()) == 0:
            take_in(replay, system, 0.2)
        take_in(replay, system, 1.0)
        before, chunks, start = _processor_s(system), replay.inserted, time.monotonic()
        take_in(replay, system, _WINDOW_S)
        took, chunks = time.monotonic() - start, replay.inserted - chunks
        redis, learner, actor = ((b - a) / took for a, b in zip(before, _processor_s(system), strict=True))
    rate = chunks / took
    point = Point(writers.number, writers.chunks, rate * SPEC.period, rate / writers.chunks, redis, learner, actor)
    speed = f"{point.transitions:,.0f} transitions/s"
    use = f"Redis {redis:.0%}, learner {learner:.0%}, actors {actor:.0%}"
    print(f"{point.actors} actors, {point.chunks_each} chunks a commit: {speed}; processor: {use}", flush=True)
    return point


def _processor_s(system: System) -> tuple[float, float, float]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return processor_s(system.redis), own.ru_utime + own.ru_stime, sum(processor_s(pid) for pid in system.writers)


def _fit(points: list[Point], process: str) -> Fit:
    """Fit by least squares without negative costs."""
    causes = np.array([[1, p.actors, p.commits, p.commits * p.chunks_each] for p in points])
    seconds = np.array([getattr(p, process) for p in points])
    scale = 1 / np.maximum(seconds, 0.01)  # relative errors count
    costs, some = np.zeros(4), np.arange(4)
    while len(some):
        solved = np.linalg.lstsq(causes[:, some] * scale[:, None], seconds * scale, rcond=None)[0]
        if (solved >= 0).all():
            costs[some] = solved
            break
        some = np.delete(some, solved.argmin())
    error = float(np.sqrt(np.mean(((causes @ costs - seconds) * scale) ** 2)))
    return Fit(float(costs[0]), float(costs[1]), float(costs[2]), float(costs[3]), error)


def _weights() -> dict[str, float]:
    """Measure the bytes of the paper network's weights, and what it takes to publish and to fetch them."""
    network = QuantileNetwork(NetworkSpec(Field((84, 84), "uint8"), 4, 18, 512, 0.1), 64)
    packet = weights_packet.pack({n: p.detach().bfloat16() for n, p in network.named_parameters()}, 1)
    with RedisServer() as server:
        client = connect("127.0.0.1", server.port)
        works: dict[str, Work] = {
            "publish": lambda: client.set("weights", packet),
            "fetch": lambda: weights_packet.unpack(wire.decode(_bytes(client.get("weights")))),
        }
        found: dict[str, float] = {"bytes": len(packet)}
        for name, work in works.items():
            before = processor_s(server.process.pid)
            found[f"{name}_s"] = float(np.median([_took(work) for _ in range(_TRANSFERS)]))
            found[f"{name}_redis_s"] = (processor_s(server.process.pid) - before) / _TRANSFERS
    return found


def _bytes(reply: object) -> bytes:
    assert isinstance(reply, bytes)
    return reply


def _took(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
