"""How long a client waits for a server that says nothing, and what it prints meanwhile."""

import re
import time
from collections.abc import Callable

import pytest

from rainbow_iqn_apex.agents.policy import Acted
from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows
from rainbow_iqn_apex.programs.inference import client as remote
from rainbow_iqn_apex.programs.inference.client import Patience, ServerFinder
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from rainbow_iqn_apex.programs.inference.services import BatchedPolicy
from tests.inference.serving import KEY, RUN_ID, Served, Stream, client_of, together

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]


def slow(seconds: float) -> BatchedPolicy:
    """A service whose batches take that long."""
    service = together("ppo")
    act: Callable[..., Acted] = service._policy.act

    def act_late(rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:
        time.sleep(seconds)
        return act(rows, state, step, places)

    service._policy.act = act_late  # type: ignore[method-assign]
    return service


# Mutations that fail here: a wait that stays as it is; one that no answer shortens.
@pytest.mark.slow
def test_a_server_that_is_slower_than_the_first_wait_is_waited_for(
    redis_port: int, run_name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "LEAST_S", 0.3)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.02)
    with Served(slow(1.0), redis_port, run_name) as served, client_of(served) as policy:
        stream, state = Stream(1), Arrays()
        for _ in range(3):
            _, state = policy.act(stream.rows(), state, 5)
        out = capsys.readouterr().out
        assert "Inference server 0 is lost (it has not answered for 0 s): looking for another" in out
        for _ in range(3):
            _, state = policy.act(stream.rows(), state, 5)
        assert capsys.readouterr().out == "", "it knows by now how long an answer takes"


def test_patience_grows_with_answers_and_losses_and_falls_back() -> None:
    patience = Patience()
    patience.answered(0.01)
    assert patience.seconds == 5
    patience.ended()
    assert patience.seconds == 10
    patience.answered(4)
    assert patience.seconds == 16
    for _ in range(200):
        patience.answered(0.01)
    assert patience.seconds == 5
    for _ in range(20):
        patience.ended()
    assert patience.seconds == 300


# A mutation that fails here: forget why a server was not taken.
def test_a_client_that_waits_names_the_newest_trouble(
    client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "INTERVAL_S", 0.1)
    servers, told = InferenceServers(client, run_name, RUN_ID, 1), []

    def check() -> None:
        told.append(capsys.readouterr().out)
        if "Waiting for" in told[-1]:
            raise Stopped

    servers.enlist(3)
    servers.announce(Address(3, "elsewhere", 1, "", 0, KEY, 0))
    with pytest.raises(Stopped):
        ServerFinder(servers, ClientId(0, evaluates=False), check).find()
    line = r"Waiting for an inference server \(\d sec\); inference server 3: it serves its own machine alone"
    assert re.fullmatch(line, told[-1].strip())
