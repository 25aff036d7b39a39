"""A run as its processes have written it into a server, for the tests of what people see of it."""

import time
from contextlib import closing
from dataclasses import replace

from rainbow_iqn_apex.common.waiting import FOR_WEIGHTS
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.monitoring.overview import Overview
from rainbow_iqn_apex.monitoring.report import Report, Role, encode
from rainbow_iqn_apex.monitoring.terminal.show import ServerReader, ServerState
from tests.conftest import RedisServer
from tests.memory.links import write_run
from tests.processes import Ended, run

KEPT_S = 24 * 3600
VALUES = {"train/version": 41.0, "train/updates_per_second": 9.24, "redis/unread": 3.0, "process/memory": 1.2e9}
PLAYED = {"actor/version": 39.0, "actor/steps_per_second": 311.0, "actor/unread": 1.0, "process/memory": 4e8}


class WrittenRun:
    """A run as its processes have written it: a learner and two actors."""

    def __init__(self, client: Client, name: str, nb_actor: int = 2) -> None:
        self.client, self.keys = client, Keys(name, f"id-{name}")
        settings = {"nb_actor": nb_actor, "T_max": 1000}
        write_run(client, name, RunStatus(self.keys.run_id, "running", settings, 400, 500), {})
        self.report("learner", 0, VALUES | {"time/remaining": 750.0, "rollout/ep_rew_mean": 12.4})
        self.report("actor", 0, PLAYED)
        self.report("actor", 1, PLAYED | {"actor/version": 41.0}, waits_for=f"{FOR_WEIGHTS}42")

    def report(
        self,
        role: Role,
        number: int,
        values: dict[str, float],
        age: float = -60,
        waits_for: str = "",
        began: float = 60,
        ended: bool = False,
        ago: float = 0,
    ) -> None:
        """Write a report of this age; one below 0 stays new for as long, as a program may need to start.

        By the clock of its process it was written some seconds `ago`.
        """
        now = time.time() - ago
        report = Report(role, number, "here", 1234 + number, now - began, now, ended, waits_for, values)
        actor = None if role == "learner" else number
        keys = replace(self.keys, inference=role == "inference server")
        with closing(ReportStore(self.client, keys)) as store:
            store.write(actor, encode(report))
        self.client.expire(keys.learner_report if role == "learner" else keys.report(number), int(KEPT_S - age))


def status(server: RedisServer, *options: str) -> Ended:
    return run("run_status.py", "--port-redis", str(server.port), *options)


def overview(client: Client) -> Overview:
    """Return what is seen of the only run."""
    (run,) = look(client).runs
    assert run.overview
    return run.overview


def look(client: Client) -> ServerState:
    with closing(ServerReader(client, "here", "")) as reader:
        return reader.look()
