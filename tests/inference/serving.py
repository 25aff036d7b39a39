"""Inference servers of tests: the real loop on real sockets, in a thread, found by way of the test's Redis server."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.policy import Acted, Policy
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.rows import Arrays, Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.inference.client import RemotePolicy, ServerFinder
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from rainbow_iqn_apex.programs.inference.server import InferenceServer, Service, listening
from rainbow_iqn_apex.programs.inference.services import ArraySchema, BatchedPolicy, PerClientPolicies
from tests.specs import discrete

RUN_ID = "abc"
KEY = "0" * 64  # of a server that nobody asks
EACH, NB_ENV = 4, 24  # environments of an actor, and of the run
EVALUATING = 50  # the seed of policies of evaluation actors
VECTOR = discrete((3,), "float32", 4)
BYTES = discrete((5,), "uint8", 4)
_SMALL = f"--nb-env-per-actor {EACH} --nb-actor {NB_ENV // EACH} --learn-start 40 --disable-cuda --force"
_RECURRENT = "--burn-in 2 --sequence-length 4 --sequence-period 2 --lstm-size 6 --hidden-size 9"
AGENTS = {
    "rainbow_iqn": "--history-length 3 --hidden-size 9 --num-quantile-samples 5",
    "btr": "--agent btr --history-length 3 --hidden-size 9 --num-quantile-samples 5 --epsilon-ladder 0.4",
    "r2d2": f"--agent r2d2 --history-length 2 --exploration-base 0.5 {_RECURRENT}",
    "impala-lstm": "--agent impala --history-length 2 --unroll-length 5 --lstm-size 6 --hidden-size 9",
    "ppo": "--agent ppo --history-length 1 --unroll-length 6 --mlp-size 9",
    "sac-lstm": f"--agent sac --history-length 1 {_RECURRENT}",
}


def make(agent: str, environment: EnvironmentSpec = VECTOR, seed: int = 3, actor: int = 0) -> Agent:
    """An agent of the table, as that actor has it, with weights that no other seed gives."""
    args = options.parse([*AGENTS[agent].split(), *_SMALL.split()], "test", "")
    device = torch.device("cpu")
    return make_agent(replace(args, id_actor=actor), environment, device, learns=False, seed=seed)


def weights_of(agent: Agent, seed: int = 0) -> dict[str, torch.Tensor]:
    """The agent's own weights; with a seed others."""
    generator = torch.Generator().manual_seed(seed)
    change = 0.1 if seed else 0.0
    return {
        name: tensor.clone() + change * torch.randn(tensor.shape, generator=generator)
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in agent.loaded().items()
    }


def together(agent: str, environment: EnvironmentSpec = VECTOR) -> BatchedPolicy:
    """A service without lockstep that has weights; its policies of evaluation actors have others until they load."""
    policy = make(agent, environment)
    service = BatchedPolicy(policy, environment, NB_ENV, lambda _: make(agent, environment, seed=EVALUATING))
    service.load(weights_of(policy), 1)
    return service


def alone(agent: str, fetch: Callable[[int], dict[str, torch.Tensor] | None] | None = None) -> PerClientPolicies:
    """A service in lockstep, whose weights of a version are those of the seed `version`."""
    blank = make(agent)

    def make_for(who: ClientId) -> Policy:
        return make(agent, seed=10 + who.actor, actor=who.actor)

    def found(version: int) -> tuple[dict[str, torch.Tensor], int] | None:
        weights = fetch(version) if fetch else weights_of(blank, version)
        return None if weights is None else (weights, version)

    return PerClientPolicies(make_for, blank.spec, ArraySchema(make(agent), VECTOR, NB_ENV), found)


class Served:
    """A server in a thread, under a number; use as a context manager.

    An exception of its loop is raised at the end: nothing that a client says may cause one.
    """

    def __init__(
        self,
        service: Service,
        port: int,
        name: str,
        number: int = 0,
        *,
        clients: int = 0,
        host: str = "",
        inside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.number = number
        self._inside = inside  # the host on which it listens
        self.servers = InferenceServers(connect("127.0.0.1", port), name, RUN_ID, 1)
        self._service = service
        self._host = host
        self._clients = clients
        self._stop, self._may_go_on, self._is_held = threading.Event(), threading.Event(), threading.Event()
        self._may_go_on.set()
        self._error: BaseException | None = None
        self._open = ExitStack()

    def __enter__(self) -> "Served":
        with self._inside():
            place = self._open.enter_context(listening(self._host, 0))
        machine = "elsewhere" if self._host else this_host()
        self.address = Address(self.number, machine, place.local_port, self._host, place.port, place.key, self._clients)
        self.server = InferenceServer(self._service, place.socket, each=EACH)
        self.servers.enlist(self.number)
        self.announce()
        self._thread = threading.Thread(target=self._run, name=f"server {self.number}")
        self._thread.start()
        return self

    def announce(self) -> None:
        self.servers.announce(self.address)

    def _run(self) -> None:
        try:
            self.server.run(self._look)
        except BaseException as error:  # noqa: BLE001 - raised again at the end
            self._error = error
        finally:
            self._open.close()

    def _look(self) -> bool:
        if not self._may_go_on.is_set():
            self._is_held.set()
            self._may_go_on.wait()
        self.announce()
        return self._stop.is_set()

    @property
    def batches(self) -> list[int]:
        return list(self._service.batches)

    def go_on(self) -> None:
        self._is_held.clear()
        self._may_go_on.set()

    def hold(self) -> None:
        """Answer nobody until `go_on`, or the end."""
        self._may_go_on.clear()
        self._is_held.wait()

    def close(self) -> None:
        self._stop.set()
        self._may_go_on.set()
        self._thread.join()
        self.servers.withdraw(self.number)

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._error is not None:
            raise self._error

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()


@contextmanager
def client_of(served: Served, actor: int = 0, *, evaluates: bool = False) -> Iterator[RemotePolicy]:
    """An honest client of that run's servers."""

    def check() -> None:
        assert served.lives or served._stop.is_set(), served._error

    finder = ServerFinder(served.servers, ClientId(actor, evaluates), check)
    policy = RemotePolicy(finder, actor * EACH, VECTOR.action)
    try:
        yield policy
    finally:
        policy._connection.close()


class Stream:
    """Rows of environments, all of them random, with episodes of a few steps."""

    def __init__(self, seed: int, environment: EnvironmentSpec = VECTOR, envs: int = EACH) -> None:
        self._rng = np.random.default_rng(seed)
        self._field = environment.observation
        self._envs = envs
        self._before = np.full(envs, int(StepType.LAST), np.uint8)

    def rows(self) -> Rows:
        shape = (self._envs, *self._field.shape)
        if self._field.dtype == "uint8":
            obs = self._rng.integers(0, 256, shape).astype(np.uint8)
        else:
            obs = self._rng.normal(size=shape).astype(self._field.dtype)
        ends = self._rng.random(self._envs) < 0.2
        after = np.where(ends, int(StepType.LAST), int(StepType.MID))
        self._before = np.where(self._before == int(StepType.LAST), int(StepType.FIRST), after).astype(np.uint8)
        reward = self._rng.normal(size=self._envs).astype(np.float32)
        return Rows(obs, self._before.copy(), reward, np.ones(self._envs, np.float32))


def same(first: Arrays, second: Arrays, tolerance: float = 0.0) -> bool:
    """Whether named arrays are equal."""
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype
        and first[name].shape == second[name].shape
        and np.allclose(first[name], second[name], rtol=tolerance, atol=tolerance)
        for name in first
    )


def assert_same(remote: Acted, local: Acted, tolerance: float = 0.0) -> None:
    """The same actions, extras and states."""
    np.testing.assert_allclose(remote[0].actions, local[0].actions, rtol=tolerance, atol=tolerance)
    assert same(remote[0].extras, local[0].extras, tolerance)
    assert same(remote[1], local[1], tolerance)
    assert remote[0].version == local[0].version


def assert_same_priorities(remote: RemotePolicy, local: Agent, agent: str) -> None:
    """The same priorities of a chunk, which another such agent has played."""
    window = local.spec.window
    rows = Stream(2, envs=window).rows()  # one after the other, as far as priorities look at them
    output, _ = make(agent).act(rows, {}, 0, np.zeros(window, np.int64))
    chunk = rows._asdict() | {"action": output.actions.astype(np.int32)}
    chunk |= {f"extras.{name}": array for name, array in output.extras.items()}
    found, expected = remote.initial_priorities(chunk), local.initial_priorities(chunk)
    assert found is not None and expected is not None
    np.testing.assert_array_equal(found, expected)
