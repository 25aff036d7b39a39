"""An environment of a user's whose code fails in an actor: all others name that actor, and the reason."""

import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import LeaseLostError, RunError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.memory.messages import Joined
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import MAX_BYTES, Report, decode, encode
from rainbow_iqn_apex.programs.common import failure_reported
from tests.failing import CLOSED, FAILING
from tests.small import FAMILIES, FREE
from tests.system import LEARNER, Run

OPTIONS = [*FAMILIES["impala"], *f"{FAILING} --history-length 1 --T-max 100000 --log-interval 100 --force".split()]


def alerts(client: Client, run_name: str) -> tuple[str, ...]:
    with closing(OverviewReader(client.aside(), run_name)) as reader:
        overview = reader.read()
    return overview.alerts if overview else ()


@pytest.mark.redis
def test_a_report_of_a_failure_is_its_own_process_s(client: Client, run_name: str) -> None:
    # Mutations: keep who reported last; let a displaced actor write over its successor's report.
    keys = Keys(run_name, "id")
    other = Report("actor", 0, "there", 1, 5.0, 6.0, values={"actor/version": 3.0})
    with closing(ReportStore(client, keys)) as store:
        store.write(0, encode(other))
        with (
            ActorClient(client, run_name, "id", 0, threading.Event()) as link,
            pytest.raises(LeaseLostError),
            failure_reported(client, keys, "actor", 0),
        ):
            client.set(keys.actor_lease(0), b"its successor's")
            link.commit([Joined(0)], b"")
        assert decode(store.read([0], MAX_BYTES)[0].data) == other
        with pytest.raises(RunError), failure_reported(client, keys, "actor", 0):
            raise RunError("no file")
        found = decode(store.read([0], MAX_BYTES)[0].data)
    assert (found.host, found.process, found.values, found.ended) == (this_host(), os.getpid(), other.values, True)
    assert found.began > other.began and [event.text for event in found.events] == ["failed (RunError: no file)"]


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.parametrize(
    ("place", "mode"), [("reset 1", []), ("reset 40", []), ("step 77", FREE), ("constructor 1", FREE)]
)
def test_the_learner_names_the_actor_that_has_failed(
    redis_port: int, client: Client, run_name: str, tmp_path: Path, place: str, mode: list[str]
) -> None:
    # Mutations: report only what fails after the actor has begun to play; forget a failure as the actor leaves.
    failing = {"actor": {"FAILS_IN": place}}
    with Run(redis_port, run_name, tmp_path / "results", [*OPTIONS, *mode], environment=failing) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        assert actor.finish(60) == 1
        assert "Traceback" in actor.errors and "in _may_fail" in actor.errors, "the user sees the own code"
        why = f"actor 0 has failed (LookupError: no level file for {place.split()[0]})"
        assert why in alerts(client, run_name)
        learner.wait_for(f" sec); {why}; actor 0 is not running: python launch_actor.py ")
        assert learner.exit_code is None
        failing["actor"].clear()
        successor = run.start("0")
        successor.wait_for("Actor 0 plays")
        learner.wait_until(lambda: why not in alerts(client, run_name), "the end of the alert")
        learner.wait_for("] T = ")
        successor.terminate()
        assert successor.finish(60) == 0
        assert successor.output.count(CLOSED) >= 1  # Mutation: let the system end what it started
