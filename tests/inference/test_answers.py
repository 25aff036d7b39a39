"""What a client of a server gets: the same as from a policy in its own process."""

import threading
from contextlib import ExitStack, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.agents.ops.frames import push_frame
from rainbow_iqn_apex.agents.r2d2 import agent as r2d2
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.rows import Arrays, StepType
from rainbow_iqn_apex.programs.inference import client as remote
from rainbow_iqn_apex.programs.inference.client import RemotePolicy, ServerFinder, pushed
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from tests.deadline import wait_until
from tests.inference.serving import (
    AGENTS,
    BYTES,
    EACH,
    NB_ENV,
    VECTOR,
    Served,
    Stream,
    assert_same,
    assert_same_priorities,
    client_of,
    make,
    same,
    together,
    weights_of,
)

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]
TOLERANCE = 1e-5


# A mutation that fails here: `stack[...] = 0` without `:-1`, or no blanking at all.
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 4), st.sampled_from([VECTOR, BYTES]))
def test_both_ends_push_frames_alike(seed: int, size: int, envs: int, environment: EnvironmentSpec) -> None:
    stream, state = Stream(seed, environment, envs), Arrays()
    field = environment.observation
    stack = torch.from_numpy(np.zeros((envs, size, *field.shape), field.dtype))
    for _ in range(12):
        rows = stream.rows()
        given_obs = rows.obs.copy()
        stack = push_frame(stack, torch.from_numpy(rows.obs), torch.from_numpy(rows.step_type == StepType.FIRST))
        state = {"stack": pushed(rows, state, size)}
        assert state["stack"].dtype == field.dtype
        np.testing.assert_array_equal(state["stack"], stack.numpy())
        np.testing.assert_array_equal(rows.obs, given_obs)


def test_an_actor_beyond_those_of_the_servers_is_told_what_to_do(redis_port: int, run_name: str) -> None:
    # Mutation: ask all the same: the server cuts it off, and it asks again for ever.
    service = together("r2d2")
    with Served(service, redis_port, run_name) as served:
        for actor in (NB_ENV // EACH - 1, NB_ENV // EACH):
            with client_of(served, actor) as client:
                refusal = pytest.raises(UserError, match=r"^--nb-actor: inference server 0 .* for the 24 .* needs 28:")
                with refusal if actor == NB_ENV // EACH else nullcontext():
                    client.act(Stream(1).rows(), {}, 100)


def test_a_step_that_is_under_way_ends_before_a_stop(
    redis_port: int, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutations: stop at once, and lose what was played since the last commit; never stop.
    stop, rows = threading.Event(), Stream(1).rows()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    with Served(together("r2d2"), redis_port, run_name) as served:
        policy = RemotePolicy(ServerFinder(served.servers, ClientId(0, evaluates=False), check), 0, VECTOR.action)
        served.hold()
        stop.set()
        threading.Timer(1.0, served.go_on).start()
        assert len(policy.act(rows, {}, 100)[0].actions) == EACH
        monkeypatch.setattr(remote, "STOP_S", 0.5)
        served.hold()
        with pytest.raises(Stopped):
            policy.act(rows, {}, 101)
        policy._connection.close()


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r2d2, "EVALUATION_EPSILON", 0.0)


# Mutations that fail here: `act_together` without its `slice`s shifted by one, and the other clients' states.
@pytest.mark.usefixtures("greedy")
@pytest.mark.parametrize("agent", ["r2d2", "impala-lstm", "ppo", "sac-lstm"])
def test_answers_for_several_clients_are_those_of_a_policy_alone(
    redis_port: int, run_name: str, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = together(agent, BYTES)
    local = make(agent, BYTES)
    local.load(weights_of(local), 1)
    with Served(service, redis_port, run_name) as served, ExitStack() as stack:
        clients = [stack.enter_context(client_of(served, actor)) for actor in range(3)]
        streams = [Stream(number, BYTES, 1 + number) for number in range(3)]
        remote, own = [Arrays()] * 3, [Arrays()] * 3
        for turn in range(10):
            if turn in (4, 5):
                served.hold()
            rows = [stream.rows() for stream in streams]
            calls = [clients[at].ask(rows[at], remote[at], None) for at in range(3)]
            served.go_on()
            for at, call in enumerate(calls):
                acted = clients[at].take(call)
                assert_same(acted, expected := local.act(rows[at], own[at], None), TOLERANCE)
                remote[at], own[at] = acted[1], expected[1]
        assert max(service.batches) == 6, "those of all three were computed together"
    assert capsys.readouterr().out == "", "nobody has asked again"


# Mutations that fail here: `places` that a client does not send on, and `own_places=True`; steps of an evaluation.
@pytest.mark.parametrize("agent", AGENTS)
def test_one_client_explores_as_a_policy_of_its_own_would(redis_port: int, run_name: str, agent: str) -> None:
    service = together(agent)
    local = make(agent)
    local.act(Stream(0, envs=1).rows()._replace(obs=np.zeros((1, 3), np.float32)), {}, None)  # as `Forms` does
    local.load(weights_of(local), 1)
    with Served(service, redis_port, run_name) as served, client_of(served, actor=3) as policy:
        stream, remote, own = Stream(5), Arrays(), Arrays()
        for step in range(30):
            rows = stream.rows()
            acted, expected = (
                policy.act(rows, remote, 4 * step),
                local.act(rows, own, 4 * step, 3 * EACH + np.arange(EACH)),
            )
            assert_same(acted, expected)
            remote, own = acted[1], expected[1]


# A mutation that fails here: `obs` of `initial_priorities` that is sent, too.
@pytest.mark.parametrize("agent", ["rainbow_iqn", "r2d2"])
def test_priorities_are_those_of_a_policy_in_the_actor(redis_port: int, run_name: str, agent: str) -> None:
    local = make(agent)
    with Served(together(agent), redis_port, run_name) as served, client_of(served) as policy:
        assert policy.spec == local.spec
        assert_same_priorities(policy, local, agent)
    with Served(together("ppo"), redis_port, run_name) as served, client_of(served) as policy:
        assert policy.initial_priorities({}) is None


class _Pair:
    """A client and a policy of its own, which see the same rows.

    The quantiles of Rainbow-IQN depend on what else a server has drawn: of that agent only the state must be the same.
    """

    def __init__(self, policy: RemotePolicy, agent: str) -> None:
        self.policy = policy
        self._state_alone = agent == "rainbow_iqn"
        self._local = make(agent, BYTES)
        self._local.load(weights_of(self._local), 1)
        self._stream, self._remote, self._own = Stream(9, BYTES), Arrays(), Arrays()

    def ask(self) -> int:
        self._rows = self._stream.rows()
        return self.policy.ask(self._rows, self._remote, None)

    def take(self, call: int) -> None:
        acted, expected = self.policy.take(call), self._local.act(self._rows, self._own, None)
        if self._state_alone:
            assert same(acted[1], expected[1])
        else:
            assert_same(acted, expected, TOLERANCE)
        self._remote, self._own = acted[1], expected[1]


# Mutations that fail here: a client that never sends its state again (`encoded` with `own = {}`), one that does not
# forget which states the lost server had, and a server that computes from zeros what it does not know.
@pytest.mark.usefixtures("greedy")
@pytest.mark.parametrize("agent", ["rainbow_iqn", "r2d2", "impala-lstm"])
def test_the_trajectory_goes_on_when_a_server_forgets_or_ends_in_a_call(
    redis_port: int, run_name: str, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Served(together(agent, BYTES), redis_port, run_name, clients=2) as second:  # noqa: SIM117 - too long for one
        with Served(together(agent, BYTES), redis_port, run_name, number=1) as first, client_of(first) as policy:
            pair = _Pair(policy, agent)
            for _ in range(6):
                pair.take(pair.ask())
            for known in first.server._clients.values():  # as by eight calls that others of its groups have made
                known.kept.clear()
            for _ in range(3):
                pair.take(pair.ask())
            assert first.server.values()["inference/requests"] == 10, "one was asked for twice"
            first.hold()
            call = pair.ask()
            first.close()
            pair.take(call)
            for _ in range(6):
                pair.take(pair.ask())
            assert second.server.values()["inference/requests"] == 7
            out = capsys.readouterr().out
            assert "Inference server 1 is lost (" in out and "Inference server 0 is asked now" in out
            wait_until(lambda: second.server.clients == 1, "the client at its new server")
