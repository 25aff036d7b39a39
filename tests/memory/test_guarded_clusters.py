"""Clusters and Sentinels that are guarded as docs/cluster.md has it: by users, passwords and certificates."""

import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.record import find_runs
from rainbow_iqn_apex.memory.messages import RoundEnd
from tests.cluster import Cluster, Guard, Service, started
from tests.memory.links import weights
from tests.memory.test_cluster import leading, open_url, playing
from tests.memory.test_redis_users import make_users
from tests.tls import UNCLOSED, WITH_TLS, Authority

ASKING = "+ping +sentinel|get-master-addr-by-name +sentinel|replicas"  # as docs/cluster.md has it
pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.skipif(not WITH_TLS, reason="needs a Redis server that was built with TLS"),
    pytest.mark.filterwarnings(UNCLOSED),
]


class Guarded(NamedTuple):
    """What guards servers that have a replica, and the variables with which each user gets in."""

    guard: Guard
    users: dict[str, dict[str, str]]
    authority: Authority

    @property
    def of_nodes(self) -> Guard:
        """What guards a cluster whose nodes are named by their hosts, as docs/cluster.md has it."""
        names = {"cluster-announce-hostname": "localhost", "cluster-preferred-endpoint-type": "hostname"}
        return self.guard.also({"tls-cluster": "yes", **names})

    @property
    def admin(self) -> str:
        """The administrator's password."""
        return self.users["admin"]["REDISCLI_AUTH"]

    def variables(self, user: str, **more: str) -> dict[str, str]:
        return {"REDIS_CA_CERTS": self.authority.file, **self.users[user], **more}


def make_guarded(folder: Path) -> Guarded:
    """Make users and certificates, which name localhost and no address; an insider is there for the tests."""
    users, authority = make_users(folder / "access", "--redis-7"), Authority(folder / "certificates")
    acl = folder / "access" / "users.acl"
    with acl.open("a") as file:
        file.write("user insider on nopass ~* &* +@all\n")
    options: dict[str, object] = {
        **authority.of_redis("localhost"),
        "aclfile": acl,
        "masteruser": "admin",
        "masterauth": users["admin"]["REDISCLI_AUTH"],
    }
    return Guarded(Guard(options, {"username": "insider", "password": "-"}), users, authority)


def test_a_cluster_with_users_and_certificates(tmp_path: Path, run_name: str) -> None:
    """The certificates name localhost, and no address.

    Mutation: leave out `_check_certificates`.
    """
    guarded = make_guarded(tmp_path)
    with started(Cluster(tmp_path / "nodes", WITH_TLS, guard=guarded.of_nodes)) as cluster, ExitStack() as stack:
        learners, actors, viewers = (
            stack.enter_context(closing(open_url(cluster.url, **guarded.variables(user))))
            for user in ("learner", "actor", "viewer")
        )
        learner = stack.enter_context(leading(learners, run_name))
        actor = stack.enter_context(playing(actors, run_name, 1))
        actor.commit([RoundEnd(0)], b"")
        cluster.fail_over(actor.keys.log(1))
        actor.commit([RoundEnd(1)], b"")
        learner.publish(0, weights(0))
        assert actor.weights(0).meta["version"] == 0
        assert run_name in find_runs(viewers.aside()).names
        for wrong, line in (
            ({"REDIS_PASSWORD": "none"}, "the server does not let us in"),
            ({"REDIS_CA_CERTS": ""}, "the server's certificate is refused"),
        ):
            with pytest.raises(UserError, match=line) as refused:
                open_url(cluster.url, **guarded.variables("actor", **wrong))
            assert "\n" not in str(refused.value)
    unnamed = guarded.guard.also({"tls-cluster": "yes"})
    with started(Cluster(tmp_path / "bare", WITH_TLS, 1, replicas=False, guard=unnamed)) as bare:
        with pytest.raises(
            UserError, match=r"the cluster names 127\.0\.0\.1:\d+: .*certificate is refused: IP"
        ) as told:
            open_url(bare.url, **guarded.variables("actor"))
        assert "\n" not in str(told.value)


def test_sentinels_with_users_passwords_and_certificates(tmp_path: Path, run_name: str) -> None:
    """The certificates name localhost, and no address.

    Mutations: the server's user and password for Sentinels; a Sentinel's refusal that is told as the server's.
    """
    guarded, word = make_guarded(tmp_path), "s3cret-of-the-watch"
    told = {"REDIS_SENTINEL_PASSWORD": word}
    asking, poor = ({**told, "REDIS_SENTINEL_USERNAME": user} for user in ("asking", "poor"))
    with ExitStack() as stack:
        service = Service(
            stack,
            tmp_path / "service",
            WITH_TLS,
            guarded.guard.also({"replica-announce-ip": "localhost"}),
            Guard({**guarded.authority.of_redis("localhost"), "requirepass": word}, {"password": word}),
            f"sentinel sentinel-pass {word}\n"
            f"sentinel auth-user rainbow admin\nsentinel auth-pass rainbow {guarded.admin}\n"
            f"user asking on >{word} -@all {ASKING}\nuser poor on >{word} -@all\n",
        )
        learners, actors = (
            stack.enter_context(closing(open_url(service.url, **guarded.variables(user, **watched))))
            for user, watched in (("learner", told), ("actor", asking))
        )
        learner = stack.enter_context(LearnerClient(learners, run_name, {}, 1))
        actor = stack.enter_context(ActorClient(actors, run_name, "id", 0, threading.Event()))
        learner.lead("id")
        actor.commit([RoundEnd(0)], b"")
        service.fail_over()
        actor.commit([RoundEnd(1)], b"")
        assert service.servers[1].ask("XLEN", actor.keys.log(0)) == 2
        for wrong, line in (
            ({}, "a Sentinel does not let us in .*REDIS_SENTINEL_USERNAME and REDIS_SENTINEL_PASSWORD"),
            ({"REDIS_SENTINEL_PASSWORD": f"not-{word}"}, "a Sentinel does not let us in"),
            (poor, "REDIS_SENTINEL_USERNAME: the Sentinels' user lacks a right .* see docs/cluster.md"),
            (told | {"REDIS_CA_CERTS": ""}, "of a Sentinel: the server's certificate is refused"),
            (told | {"REDIS_PASSWORD": f"not-{word}"}, "the server does not let us in"),
        ):
            with pytest.raises(UserError, match=line) as refused:
                open_url(service.url, **guarded.variables("actor", **wrong))
            assert "\n" not in str(refused.value) and word not in str(refused.value)
