"""The commands of the overlay of several Redis servers make a cluster here, on addresses of the loopback interface."""

import os
import shutil
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.deadline import wait_until
from tests.deploy.test_kubernetes import CLUSTER, container_of, make_secrets, rendered, words_of
from tests.processes import Process, Processes, clean_environment

SERVERS = 6


class Pods:
    """The servers of the overlay and their keeper; each server has an address of its own, as a pod has."""

    def __init__(self, processes: Processes, folder: Path, first: int) -> None:
        manifests = rendered(CLUSTER)
        self._folder, self._processes = folder, processes
        net = f"127.{64 + os.getpid() // 250 % 60}.{os.getpid() % 250}"  # two sessions of the tests share no address
        self.addresses = [f"{net}.{first + number}" for number in range(SERVERS)]
        (line,) = (folder / "access" / "admin.env").read_text().splitlines()
        self._password = line.partition("=")[2]
        own = {"REDISCLI_AUTH": self._password, "REDIS_CA_CERTS": str(folder / "access" / "ca.crt")}
        server = container_of(manifests, "redis")
        self._all = [self._server(server, f"redis-{i}", address) for i, address in enumerate(self.addresses)]
        program, script = container_of(manifests, "redis-keeper")["command"]
        self.keeper = processes.start(
            script, *self.addresses, program=str(shutil.which(program)), environment=clean_environment() | own,
            together=True,
        )  # fmt: skip

    def _server(self, container: dict[str, object], pod: str, address: str) -> Process:
        data = self._folder / pod
        data.mkdir(exist_ok=True)
        words = words_of({**container, "env": [{"name": "POD", "value": pod}]})
        places = {"/data": str(data), "*": address}
        words = [places.get(word, word.replace("/access", str(self._folder / "access"))) for word in words]
        return self._processes.start(*words[1:], "--bind-source-addr", address, program="/usr/bin/redis-server")

    def is_whole(self) -> bool:
        """Return whether all agree on three masters with a replica each, which follows."""
        try:
            return sum(self._is_replica(address) for address in self.addresses) == SERVERS // 2
        except (redis.RedisError, AssertionError):
            return False

    def _is_replica(self, address: str) -> bool:
        ca_certs = str(self._folder / "access" / "ca.crt")
        with redis.Redis(
            host=address, port=6379, username="admin", password=self._password, ssl=True, ssl_ca_certs=ca_certs,
            ssl_check_hostname=False, socket_timeout=5, retry=Retry(NoBackoff(), 0), protocol=2,
        ) as client:  # fmt: skip
            state = client.execute_command("CLUSTER INFO")
            wanted = {"cluster_state": "ok", "cluster_known_nodes": "6", "cluster_size": "3"}
            assert {name: state[name] for name in wanted} == wanted
            role = client.info("replication")
            assert role["role"] == "master" or role["master_link_status"] == "up"
            return bool(role["role"] == "slave")

    def stop(self) -> None:
        self.keeper.kill()
        for server in self._all:
            server.terminate()
        for server in self._all:
            server.finish(60)


@pytest.mark.slow
def test_servers_become_a_cluster_and_find_each_other_when_all_have_new_addresses(tmp_path: Path) -> None:
    # Mutations: a keeper that makes nodes meet no more; no replication.conf; nodes that talk without TLS.
    if not Path("/usr/bin/redis-server").exists():
        pytest.skip("needs Debian's redis-server, which has TLS")
    make_secrets(tmp_path)
    with Processes() as processes:
        for first in (1, 101):
            pods = Pods(processes, tmp_path, first)
            wait_until(pods.is_whole, lambda: processes.last_words(), 120, every=0.5)
            pods.stop()
