"""A master with a replica, watched by Sentinels, which give the replica its place when the master dies."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.messages import RoundEnd
from tests.cluster import Service
from tests.memory.inbox import SCHEMA
from tests.memory.links import entries_of, weights
from tests.memory.test_cluster import open_url

pytestmark = [pytest.mark.redis, pytest.mark.slow]


@pytest.fixture
def service(tmp_path: Path, redis_program: str) -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(stack, tmp_path / "service", redis_program)


def test_a_run_goes_on_with_the_replica(service: Service, run_name: str) -> None:
    # Mutation: a client that stays with the server that it had.
    with (
        closing(open_url(service.url)) as client,
        LearnerClient(client, run_name, {}, 1) as learner,
        ActorClient(client, run_name, "id", 0, threading.Event()) as actor,
    ):
        learner.lead("id")
        learner.publish(0, weights(0))
        with closing(learner.inbox(SCHEMA, threading.Event())) as reader:
            for round_ in range(3):
                actor.commit([RoundEnd(round_)], b"")
            service.fail_over()
            for round_ in range(3, 6):
                actor.commit([RoundEnd(round_)], b"")
            entries = [entry for round_ in range(6) for entry in reader.take_round(round_) if entry]
        assert [entry.message for entry in entries] == [RoundEnd(round_) for round_ in range(6)]
        stored = [entry_id for entry_id, _ in entries_of(client, actor.keys.log(0))]
        assert stored == [b"%d-0" % number for number in range(1, 7)]
        learner.restore_weights()
        assert actor.weights(0).meta["version"] == 0


def test_a_master_that_has_become_a_replica_is_left(service: Service, run_name: str) -> None:
    # Mutation: READONLY is raised.
    with closing(open_url(service.url)) as client:
        former = client._route.places.of(0)  # type: ignore[attr-defined]
        service.hand_over()
        client._route.places._place = former  # type: ignore[attr-defined]
        client.set(f"riqx:{{{run_name}}}", "x")
        refused = service.servers[0].errors("READONLY")
        assert refused
        assert service.servers[1].ask("GET", f"riqx:{{{run_name}}}") == b"x"


def test_a_service_that_no_sentinel_knows_is_refused(service: Service) -> None:
    for url in (service.url + "2", "redis+sentinel://127.0.0.1:1/rainbow"):
        with pytest.raises(UserError, match="no Sentinel there answers, or none knows a master") as refused:
            open_url(url)
        assert "\n" not in str(refused.value)
