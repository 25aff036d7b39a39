"""A server with the users of programs/make_redis_users.py, and a short run through all that processes do with it."""

import threading
from contextlib import closing
from typing import Any, NamedTuple

import pytest
import redis

from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.reports import FilmStore, ReportStore
from rainbow_iqn_apex.memory.broker.run_client import RunClient, RunOver, wait_for_run
from rainbow_iqn_apex.memory.broker.scripts import Scripts, log_extent
from rainbow_iqn_apex.memory.messages import Episode, MessageSchema, RoundEnd
from rainbow_iqn_apex.monitoring.report import EventLog, Reading, Reporter
from tests.conftest import RedisServer


def send(client: redis.Redis, *command: str | int) -> Any:
    """Send a command once."""
    return redis.Redis.execute_command(client, *command)  # type: ignore[no-untyped-call]


class Guarded(NamedTuple):
    """A server with the users, connections as learner and actor, and the insider that looks at it."""

    server: RedisServer
    program: str
    admin: dict[str, str]  # variables of the administrator
    learner: Client
    actor: Client
    viewer: Client
    insider: redis.Redis
    seven: bool

    def refused(self) -> list[bytes]:
        """Commands and keys that the server has refused so far."""
        log = send(self.insider, "ACL", "LOG")
        return [entry[entry.index(b"object") + 1] for entry in log]


def lead(guarded: Guarded, run_id: str) -> None:
    """A short run through everything that learner and actor do with the server."""
    with LearnerClient(guarded.learner, "run", {"seed": 1}, 1) as learner:
        learner.lead(run_id, afresh=True)
        learner.publish_alone({0: b"weights 0"})
        learner.publish(1, b"weights 1")
        learner.write_progress("running", 4, 4, {0: 0})
        run = wait_for_run(guarded.actor, "run", {"seed": 1}, threading.Event())
        with ActorClient(guarded.actor, "run", run.run_id, 0, threading.Event()) as actor:
            assert actor.saved() is None
            actor.commit([RoundEnd(0)], b"state")
            actor.wait_for_living_learner()
            assert actor.wait_for_version(1) == 1
            assert actor.unread() == 1
            assert Scripts(guarded.actor).renew(actor.keys.actor_lease(0), actor.lease.token, 10_000)
            assert log_extent(learner._client, learner.keys.log(0)).last == 1
            learner.trim({0: 2})
            evaluate(guarded, learner, run.run_id)
            serve(guarded, run.run_id)
            learner.write_progress("stopped", 4, 4, {0: 1})
            with pytest.raises(RunOver):
                actor.record()


def evaluate(guarded: Guarded, learner: LearnerClient, run_id: str) -> None:
    """An evaluation actor's part of it."""
    score = Episode({"score_saber": 7})
    stop = threading.Event()
    with (
        closing(learner.evaluation_inbox(MessageSchema(episodes_only=True), stop)) as inbox,
        ActorClient(guarded.actor, "run", run_id, 0, stop, evaluation=True) as evaluator,
    ):
        assert evaluator.saved() is None
        evaluator.commit([score], b"")
        evaluator.wait_for_living_learner()
        with closing(FilmStore(guarded.actor, "run", run_id)) as films:
            films.write("best", b"film")
            assert films.read(["best", "newest"], 3) == {"best": b"fil"}
        with closing(FilmStore(guarded.learner, "run", run_id)) as films:
            assert films.read(["best", "newest"], 9) == {"best": b"film"}
        inbox.wait(WaitReporter("the score"))
        assert [entry.message for entry in inbox.take_rest()] == [score]
        learner.write_progress("running", 4, 4, {0: 0}, inbox.received)
        assert evaluator.unread() == 0
        learner.trim({0: 2}, evaluation=True)


def serve(guarded: Guarded, run_id: str) -> None:
    """An inference server's part of it, which has an actor's user; a learner may find it, too."""
    number, address = 3, Address(3, "machine", 5, "host", 7, "0" * 64, clients=2)
    keys = Keys("run", run_id, inference=True)
    own, learners = (InferenceServers(client, "run", run_id, 1) for client in (guarded.actor, guarded.learner))
    with (
        RunClient(guarded.actor, keys, number, threading.Event(), own_number="--id-inference") as server,
        Reporter(ReportStore(guarded.actor, keys), "inference server", number, lambda: Reading({}), EventLog()),
    ):
        own.enlist(number)
        own.announce(address)
        assert own.found() == learners.found() == [address]
        assert Scripts(guarded.actor).renew(keys.actor_lease(number), server.lease.token, 10_000)
        assert (server.record().status, server.wait_for_version(1)) == ("running", 1)
        server.wait_a_moment(1)
        own.withdraw(number)
        assert own.found() == []
