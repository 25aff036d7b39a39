"""In lockstep a client gets the bytes of a policy in its own process."""

import threading
import time

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.policy import Acted
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference import client as remote
from rainbow_iqn_apex.programs.inference.client import RemotePolicy
from tests.inference.serving import (
    AGENTS,
    EACH,
    Served,
    Stream,
    alone,
    assert_same,
    assert_same_priorities,
    client_of,
    make,
    weights_of,
)
from tests.memory.links import after

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]


class _Both:
    """A client and the same agent here, which are asked the same."""

    def __init__(self, remote: RemotePolicy, agent: str, actor: int) -> None:
        self.remote, self.local = remote, make(agent, seed=10 + actor, actor=actor)
        self._agent = agent
        self._stream = Stream(actor)
        self._states = Arrays(), Arrays()

    def load(self, version: int) -> None:
        self.remote.load({}, version)
        self.local.load(weights_of(make(self._agent), version), version)
        assert self.remote.version == self.local.version

    def play(self, steps: int) -> None:
        """Act so many times, and sometimes ask for the value of an end, as an actor does."""
        for step in range(steps):
            acted, expected = self._act(4 * step)
            self._states = acted[1], expected[1]
            if step % 3 == 0:
                self._act(None)
            drawn = self.remote.random_state()
            assert drawn is not None
            np.testing.assert_array_equal(drawn, self.local.random_state())

    def _act(self, step: int | None) -> tuple[Acted, Acted]:
        rows, (remote, own) = self._stream.rows(), self._states
        acted, expected = self.remote.act(rows, remote, step), self.local.act(rows, own, step)
        assert_same(acted, expected)
        return acted, expected


# Mutations that fail here: `make_for` without the actor's number; "reseed" that does nothing;
# weights of the version before.
@pytest.mark.parametrize("agent", AGENTS)
def test_bytes_are_those_of_a_policy_in_the_actor(redis_port: int, run_name: str, agent: str) -> None:
    with Served(alone(agent), redis_port, run_name) as served:  # noqa: SIM117 - too long for one
        with client_of(served, 1) as one, client_of(served, 4) as other:
            pairs = [_Both(one, agent, 1), _Both(other, agent, 4)]
            for pair in pairs:
                pair.load(2)
            for _ in range(3):  # in turns: neither changes what the other draws
                for pair in pairs:
                    pair.play(4)
                    if pair.local.spec.prioritised:
                        assert_same_priorities(pair.remote, pair.local, agent)
            saved = [pair.remote.random_state() for pair in pairs]
            for pair in pairs:
                pair.load(5)
                pair.remote.reseed(77)
                pair.local.reseed(77)
                pair.play(5)
            for pair, drawn in zip(pairs, saved, strict=True):
                assert drawn is not None
                pair.remote.restore_random_state(drawn)
                pair.local.restore_random_state(drawn.copy())
                pair.play(5)


# A mutation that fails here: `wait_s` that returns a moment again and again, and never 0.
def test_weights_that_are_late_are_looked_for_again(redis_port: int, run_name: str) -> None:
    blank = make("ppo")
    looks = []

    def fetch(version: int) -> dict[str, torch.Tensor] | None:
        looks.append(version)
        return weights_of(blank, version) if len(looks) > 3 else None

    with Served(alone("ppo", fetch=fetch), redis_port, run_name) as served, client_of(served) as policy:
        policy.load({}, 6)
        assert policy.version == 6 and looks == [6] * 4
        assert policy.act(Stream(1).rows(), {}, 0)[0].actions.shape == (EACH,)


# A mutation that fails here: `_replace` that asks nobody whether this process shall end, too.
def test_an_actor_that_shall_end_as_its_server_does_ends_in_order(
    redis_port: int, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()

    def check() -> None:
        if ends.is_set():
            raise Stopped

    with Served(alone("ppo"), redis_port, run_name) as served, client_of(served) as policy:
        policy.load({}, 1)
        state = policy.act(Stream(1).rows(), {}, 0)[1]
        policy._finder.check = check
        served.hold()
        served._stop.set()  # the server leaves without an answer, and is told a moment before its actors are
        monkeypatch.setattr("rainbow_iqn_apex.programs.inference.client.time.sleep", lambda _: ends.set())
        with after(0.2, served.go_on), pytest.raises(Stopped):
            policy.act(Stream(1).rows(), state, 1)


# Mutations that fail here: a server that tells nobody to wait; a client that gives up all the same.
@pytest.mark.slow
def test_weights_that_are_long_in_coming_are_waited_for(
    redis_port: int, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "ALONE_S", 1.5)
    monkeypatch.setattr(remote, "LEAST_S", 1.5)
    blank = make("ppo")
    begun = time.monotonic()

    def fetch(version: int) -> dict[str, torch.Tensor] | None:
        return weights_of(blank, version) if time.monotonic() > begun + 4 else None

    with Served(alone("ppo", fetch=fetch), redis_port, run_name) as served, client_of(served) as policy:
        policy.load({}, 6)
        assert policy.version == 6
