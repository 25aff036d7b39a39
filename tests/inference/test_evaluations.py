"""An evaluation actor's policy at a server: the weights of an episode's beginning play it to its end."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from rainbow_iqn_apex.common.errors import PolicyLostError
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.run_client import RunClient
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.evaluation.episode import begin_anew
from rainbow_iqn_apex.programs.inference.client import RemotePolicy
from rainbow_iqn_apex.programs.inference.program import fetcher
from tests.deadline import wait_until
from tests.inference.serving import EVALUATING, Served, Stream, assert_same, client_of, make, together, weights_of

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]
AGENT = "r2d2"


def play(policy: RemotePolicy, version: int, seed: int, steps: int = 8) -> None:
    """Play as a policy in the actor with weights of this version would."""
    local = make(AGENT, seed=EVALUATING)
    begin_anew(local, weights_of(make(AGENT), version - 1), version, seed)
    stream, state, own = Stream(seed), Arrays(), Arrays()
    for _ in range(steps):
        rows = stream.rows()
        acted, expected = policy.act(rows, state, None), local.act(rows, own, None)
        assert_same(acted, expected)
        state, own = acted[1], expected[1]


# Mutations that fail here: an evaluation actor that is served together with the actors; `load` that does not take the
# version of the answer.
def test_an_episode_keeps_the_weights_of_its_beginning(redis_port: int, run_name: str) -> None:
    both = together(AGENT)
    with (
        Served(both, redis_port, run_name) as served,
        client_of(served, evaluates=True) as policy,
        client_of(served) as actor,
    ):
        stream, state = Stream(1), Arrays()
        begin_anew(policy, {}, 1, 7)
        for version in (2, 3):
            play(policy, version - 1, 7 if version == 2 else 9)
            both.load(weights_of(make(AGENT), version - 1), version)
            output, state = actor.act(stream.rows(), state, 5)
            assert output.version == version
            assert policy.act(Stream(2).rows(), {}, None)[0].version == version - 1, "its own weights"
            begin_anew(policy, {}, 1, 9)
            assert policy.version == version, "the newest of this moment, and not those that were asked for"


# A mutation that fails here: `reseed` that does not look for another server.
def test_an_episode_begins_anew_when_its_server_is_lost(
    redis_port: int, run_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        Served(together(AGENT), redis_port, run_name, clients=5) as second,
        Served(together(AGENT), redis_port, run_name, number=1) as first,
        client_of(first, evaluates=True) as policy,
    ):
        begin_anew(policy, {}, 1, 7)
        play(policy, 1, 7, 3)
        first.close()
        with pytest.raises(PolicyLostError):
            policy.act(Stream(2).rows(), {}, None)
        begin_anew(policy, {}, 1, 7)
        play(policy, 1, 7)
        wait_until(lambda: second.server.clients == 1, "the client at its new server")
    assert "Inference server 1 is lost (" in capsys.readouterr().out


# Mutations that fail here: weights that are kept by their version alone; newer weights under the version asked for.
def test_weights_of_a_version_are_those_that_redis_holds_now(client: Client, run_name: str) -> None:
    agent = make("ppo")
    first, second = ({n: each.detach() for n, each in weights_of(agent, seed).items()} for seed in (1, 2))
    keys = replace(Keys(run_name, "id"), inference=True).beside(0)
    with LearnerClient(client, run_name, {}, 1) as learner:
        learner.lead("id")
        fetch = fetcher(RunClient(client, keys, 0, threading.Event(), own_number="--id-inference"), agent)
        assert fetch(5) is None
        for weights in (first, second, first):
            learner.publish_alone({5: weights_packet.pack(weights, 5)})
            found = fetch(5)
            assert found is not None and found[1] == 5 and fetch(5) is found, "fetched once"
            assert all(np.array_equal(found[0][name], weights[name]) for name in weights)
        learner.publish_alone({7: weights_packet.pack(second, 7)})
        found = fetch(5)
        assert found is not None and found[1] == 7
        assert fetch(9) is None, "it is not there yet"
