"""Transitions a second through one Redis server, and through one and three masters of a cluster, side by side.

Three processes append what actors would, to a shard each, as fast as this process takes it in. What each way costs the
servers is told, too: where all share few cores, rates do not grow with the masters, and these costs say why.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import redis

from benchmarks.chunks import GAMES, SPEC
from benchmarks.harness import Comparison, beside_first
from benchmarks.processes import RedisServer, processor_s
from benchmarks.transport import Writers, await_writers, led_run, take_in, written_to
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.broker.slots import SLOTS

_WRITERS = _SHARDS = 3
_BUS = 10_000  # a node's port for other nodes is its own and this
_LONGEST_WAIT_S = 60.0  # for a cluster to be ready


class Way(NamedTuple):
    """Servers, and the shards of a run on them."""

    masters: int
    is_cluster: bool
    shards: int


WAYS = {
    "one server": Way(1, is_cluster=False, shards=1),
    "one server, 3 shards": Way(1, is_cluster=False, shards=_SHARDS),
    "cluster of 1 master, 3 shards": Way(1, is_cluster=True, shards=_SHARDS),
    "cluster of 3 masters, 3 shards": Way(3, is_cluster=True, shards=_SHARDS),
}


class Flow(NamedTuple):
    """Hold what was measured of a way."""

    rates: list[float]  # transitions a second
    server_us: list[float]  # processor time of each server, microseconds a chunk


def measure(args: argparse.Namespace) -> Iterator[Comparison | dict[str, Any]]:
    """Measure each way."""
    flows = {name: _flow(way, args) for name, way in WAYS.items()}
    rates = {name: flow.rates for name, flow in flows.items()}
    yield beside_first("three writers, Redis, learner", "transitions/s", rates)
    for name, flow in flows.items():
        print(f"{name}: processor time of each server {', '.join(f'{us:.0f}' for us in flow.server_us)} µs a chunk")
    yield {"server_us_a_chunk": {name: flow.server_us for name, flow in flows.items()}}


def _flow(way: Way, args: argparse.Namespace) -> Flow:
    window = 0.5 if args.quick else 3.0
    writers = Writers(_WRITERS, games=2 if args.quick else len(GAMES))
    with ExitStack() as stack:
        servers = [stack.enter_context(_server(way)) for _ in range(way.masters)]
        if way.is_cluster:
            _join([server.port for server in servers])
        run = stack.enter_context(led_run(_WRITERS, way.shards, servers))
        system = stack.enter_context(written_to(run, writers))
        await_writers(None, system)
        before = [processor_s(server.process.pid) for server in servers]
        taken = [take_in(None, system, window) for _ in range(args.repeats)]
        used = [processor_s(server.process.pid) - at for server, at in zip(servers, before, strict=True)]
    chunks = statistics.mean(taken) / SPEC.period * window * args.repeats
    return Flow(taken, [1e6 * seconds / chunks for seconds in used])


@contextmanager
def _server(way: Way) -> Iterator[RedisServer]:
    more = ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"] if way.is_cluster else []
    server = RedisServer(more)
    while server.port + _BUS > 65535:
        server = RedisServer(more)
    with server:
        yield server


def _join(ports: Sequence[int]) -> None:
    """Make a cluster of masters without replicas, each with an equal part of the slots."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(redis.Redis(port=port, protocol=2)) for port in ports]
        for i, node in enumerate(nodes):
            node.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0])
            slots = range(i * SLOTS // len(ports), (i + 1) * SLOTS // len(ports))
            node.execute_command("CLUSTER", "ADDSLOTS", *slots)
        end = time.monotonic() + _LONGEST_WAIT_S
        while not all(b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO") for node in nodes):
            if time.monotonic() > end:
                raise RunError("the cluster is not ready")
            time.sleep(0.05)
