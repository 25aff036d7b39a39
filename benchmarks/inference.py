"""Inference on a server beside inference in actors: agent steps a second, and how long an answer takes.

Two processes have the environments, each in two groups as an actor has them. Without games they send frames of random
play. The server is a third process, and all share the machine, as the same two processes with policies of their own do.
"""

import argparse
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
import torch

from benchmarks.harness import add_json
from benchmarks.workloads import ATARI
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.broker.inference_servers import Address
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.rows import Arrays, Rows
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import open_environment
from rainbow_iqn_apex.programs.inference.client import Patience, RemotePolicy, ServerConnection
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from rainbow_iqn_apex.programs.inference.server import InferenceServer, listening
from rainbow_iqn_apex.programs.inference.services import BatchedPolicy
from rainbow_iqn_apex.programs.process import prepare_processor

CLIENTS = 2
_NETWORKS = {
    "Rainbow-IQN, paper": ["--agent", "rainbow_iqn"],
    "IMPALA, shallow": ["--agent", "impala"],
    "IMPALA, deep residual": ["--agent", "impala", "--architecture", "deep"],
    "R2D2, LSTM of 512": ["--agent", "r2d2"],
}
_SIZES = {"Rainbow-IQN, paper": (1, 8, 64, 256, 1000)}
_OTHER_SIZES = (8, 64)
_WINDOW_S = 5.0
_WARM_S = 3.0
_READY_S = 120.0  # longest until a process says something
_STEP = 10**9  # agent steps of the run: beyond learn-start
_FRAMES = 64  # that a process sends again and again


@dataclass(frozen=True)
class Point:
    """Holds one measurement."""

    network: str
    environments: int
    game: bool  # whether the environments are a game
    how: str  # "local" or "ours", a server
    steps: float  # a second, of all environments
    median_ms: float  # of a group's answer
    slowest_ms: float  # exceeded by one in a hundred
    bytes_each: float  # of a step, asked and answered


class _CountingConnection(ServerConnection):
    """Counts what is sent and received."""

    counted = 0  # bytes

    def send(self, data: bytes) -> None:
        self.counted += len(data)
        super().send(data)

    def receive(self) -> bytes | None:
        data = super().receive()
        self.counted += len(data or b"")
        return data


class _Finder:
    """Knows the one server."""

    def __init__(self, address: Address, who: int) -> None:
        self._address = address
        self._who = ClientId(who)
        self.patience = Patience()

    def find(self, *_: object) -> ServerConnection:
        port = self._address.local_port
        self.link = _CountingConnection(self._address, "127.0.0.1", port, self._who, self.patience, lambda: None)
        return self.link

    def check(self) -> None:
        pass

    def knows_better(self, _: Address) -> bool:
        return False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quick", action="store_true", help="few environments, to see that it runs")
    add_json(parser)


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure and print."""
    found = []
    print("| network | environments | how | steps/s | to local | median ms | 99 % ms | bytes a step |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for network in _NETWORKS:
        sizes = (2,) if args.quick else _SIZES.get(network, _OTHER_SIZES)
        for environments in sizes:
            found += _compared(network, environments, game=False)
        if not args.quick:
            found += _compared(network, 16, game=True)
    yield {"points": [asdict(point) for point in found]}


def _compared(network: str, environments: int, *, game: bool) -> list[Point]:
    found = []
    for how in ("local", "ours"):
        found.append(_point(network, environments, how, game=game))
        point = found[-1]
        local = found[0].steps
        what = f"{environments}{' of Pong' if game else ''}"
        print(
            f"| {network} | {what} | {how} | {point.steps:,.0f} | {point.steps / local:.2f} | {point.median_ms:.1f} "
            f"| {point.slowest_ms:.1f} | {point.bytes_each:,.0f} |",
            flush=True,
        )
    return found


def _settings(network: str, environments: int) -> Args:
    clients = min(CLIENTS, environments)
    words = ["--nb-actor", str(clients), "--nb-env-per-actor", str(-(-environments // clients)), "--game", "pong"]
    free = ["--synchronize-actors-with-learner", "False", "--disable-cuda", "--force"]
    return options.parse([*_NETWORKS[network], *words, *free], "benchmarks", "")


def _point(network: str, environments: int, how: str, *, game: bool) -> Point:
    args = _settings(network, environments)
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    all_ready = context.Barrier(args.nb_actor, timeout=_READY_S)
    address: Address | None = None
    processes = []
    if how != "local":
        processes.append(context.Process(target=_serve, args=(args, told), daemon=True))
        processes[0].start()
        address = told.get(timeout=_READY_S)
    for client in range(args.nb_actor):
        given = (args, client, address, all_ready, game, told)
        processes.append(context.Process(target=_play, args=given, daemon=True))
        processes[-1].start()
    results = [told.get(timeout=2 * _READY_S) for _ in range(args.nb_actor)]
    for process in processes:
        process.terminate()
        process.join()
    latencies = sorted(latency for _, ones, _ in results for latency in ones)
    slowest = latencies[len(latencies) * 99 // 100]
    steps = sum(steps for steps, _, _ in results)
    sent = sum(sent for _, _, sent in results)
    return Point(
        network, environments, game, how, steps, 1e3 * statistics.median(latencies), 1e3 * slowest, sent / steps
    )


def _serve(args: Args, told: Any) -> None:
    prepare_processor()
    policy = make_agent(args.replace(id_actor=0), ATARI, torch.device("cpu"), learns=False, seed=1)
    service = BatchedPolicy(policy, ATARI, args.nb_env, lambda _: policy)  # no evaluation actor asks
    service.load({name: tensor.clone() for name, tensor in policy.loaded().items()}, 1)
    with listening("", 0) as place:
        told.put(Address(0, this_host(), place.local_port, "", 0, place.key, 0))
        InferenceServer(service, place.socket, each=args.nb_env_per_actor).run(lambda: False)


def _play(args: Args, client: int, address: Address | None, all_ready: Barrier, game: bool, told: Any) -> None:
    prepare_processor()
    torch.set_num_threads(1)
    own = args.replace(id_actor=client)
    count = args.nb_env_per_actor
    finder = None if address is None else _Finder(address, client)
    if finder is not None:
        policy: Policy = RemotePolicy(finder, client * count, ATARI.action)  # type: ignore[arg-type]
        stops = [0, count // 2, count] if count > 1 else [0, count]
    else:
        policy = make_agent(own, ATARI, torch.device("cpu"), learns=False, seed=client)
        stops = [0, count]
    groups = [_Group(own, policy, range(a, b), game=game) for a, b in pairwise(stops)]
    all_ready.wait()
    _window(groups, _WARM_S)
    before = finder.link.counted if finder else 0
    steps, took, latencies = _window(groups, _WINDOW_S)
    told.put((steps / took, latencies, (finder.link.counted - before) / took if finder else 0.0))
    threading.Event().wait()  # the others are still measured


class _Group:
    """Environments that act together: a game, or frames that were made before."""

    def __init__(self, args: Args, policy: Policy, envs: range, *, game: bool) -> None:
        self.count = len(envs)
        self._policy = policy
        self._places = np.array(envs) + args.id_actor * args.nb_env_per_actor
        self._state: Arrays = {}
        self._game = VectorEnvironment([open_environment(args, env) for env in envs]) if game else None
        shape = (_FRAMES if self.count <= 64 else 1, self.count, 84, 84)
        self._frames = np.random.default_rng(envs.start).integers(0, 255, shape, np.uint8)
        self._step = 0
        self._rows = self._game.reset() if self._game else self._made()
        self._call: int | None = None
        self._asked = 0.0

    def _made(self) -> Rows:
        frames = self._frames[self._step % len(self._frames)]
        kind = np.full(self.count, int(self._step > 0), np.uint8)
        return Rows(frames, kind, np.zeros(self.count, np.float32), np.ones(self.count, np.float32))

    def step(self) -> float:
        """Act once in each environment, ask for the next actions, and return how long these took to come."""
        if isinstance(self._policy, RemotePolicy):
            if self._call is None:
                self._ask(self._policy)
            assert self._call is not None
            output, self._state = self._policy.take(self._call)
            took = time.perf_counter() - self._asked
        else:
            begun = time.perf_counter()
            output, self._state = self._policy.act(self._rows, self._state, _STEP)
            took = time.perf_counter() - begun
        self._step += 1
        self._rows = self._game.step(output.actions).rows if self._game else self._made()
        if isinstance(self._policy, RemotePolicy):
            self._ask(self._policy)
        return took

    def _ask(self, policy: RemotePolicy) -> None:
        self._asked = time.perf_counter()
        self._call = policy.ask(self._rows, self._state, _STEP, self._places)


def _window(groups: list[_Group], seconds: float) -> tuple[int, float, list[float]]:
    """Return how many agent steps were made in how many seconds, and the seconds that each answer took."""
    begun = time.perf_counter()
    steps = 0
    latencies: list[float] = []
    while (took := time.perf_counter() - begun) < seconds or not steps:
        for group in groups:
            latencies.append(group.step())
            steps += group.count
    return steps, took, latencies
