"""A learner's lease has a copy in each shard of its run: one whose server stays away lets nobody take the others."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.leases import Lease
from rainbow_iqn_apex.memory.broker.topology import open_servers
from tests.cluster import Cluster, started
from tests.deadline import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def test_a_lease_outlives_a_copy_whose_server_stays_away(
    tmp_path: Path, redis_program: str, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: one thread renews the lease and its copies, one after the other.
    monkeypatch.setattr(lease, "TTL_MS", 8000)
    with (
        started(Cluster(tmp_path / "nodes", redis_program, replicas=False)) as cluster,
        closing(open_servers(find_server("", 0, cluster.url, {}))) as client,
    ):
        for node in cluster.nodes:  # else all of the cluster would be down
            node.ask("CONFIG", "SET", "cluster-node-timeout", 60_000)
        keys = {cluster.master_of(key): key for key in (f"riqx:{{{run_name}{i}}}:learner" for i in range(50))}
        key, away, other = (keys[master] for master in cluster.masters)
        with Lease(client, key, "the learner", "advice", copies=(away, other)) as held:
            cluster.master_of(away).pause()
            for _ in range(100):
                assert [client.get(one) for one in (key, other)] == [held.token] * 2
                time.sleep(0.1)
            cluster.master_of(away).go_on()
            wait_until(lambda: client.get(away) == held.token, "the copy", 30)
            held.check()
        assert not any(map(client.exists, (key, away, other)))
