"""A real cluster for the tests: three masters, each with a replica, which may be killed, and slots that move."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rainbow_iqn_apex.memory.broker.keys import SLOTS, slot_of
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.start_script import free_port

_LIMIT_S = 60


@dataclass(frozen=True)
class Guard:
    """What guarded servers have beside their TLS port: the tests ask at a port without TLS."""

    options: dict[str, object] = field(default_factory=dict)
    user: dict[str, str] = field(default_factory=dict)  # with which the tests ask

    def also(self, options: dict[str, object]) -> "Guard":
        """Return one with more options."""
        return Guard({**self.options, **options}, self.user)


OPEN = Guard()


class Node(RedisServer):
    """A server of a cluster; without `in_cluster` one that stands alone. Clients and other nodes find it at `door`."""

    def __init__(self, folder: Path, program: str, *, in_cluster: bool = True, guard: Guard = OPEN) -> None:
        folder.mkdir(parents=True)
        options: dict[str, object] = {"cluster-enabled": "yes", "cluster-node-timeout": 1500} if in_cluster else {}
        self.door = free_port()
        tls = {"tls-port": self.door} if guard.options else {}
        super().__init__(folder, program=program, more={**options, **tls, **guard.options})
        self.port = self.port if tls else self.door
        self._user = guard.user

    def ask(self, *words: object) -> Any:
        """Give a command, without redirections."""
        alone = Retry(NoBackoff(), 0)
        with redis.Redis(port=self.port, retry=alone, socket_timeout=5, protocol=2, **self._user) as client:  # type: ignore[arg-type]
            return client.execute_command(*words)

    def count(self, command: str) -> int:
        """Return how often a command was given."""
        return int(self.ask("INFO", "commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def errors(self, kind: str) -> int:
        """Return how often it has answered with an error of a kind."""
        return int(self.ask("INFO", "errorstats").get(f"errorstat_{kind}", {"count": 0})["count"])

    @property
    def id(self) -> str:
        return cast(bytes, self.ask("CLUSTER", "MYID")).decode()

    @property
    def is_master(self) -> bool:
        try:
            return bool(self.ask("ROLE")[0] == b"master")
        except redis.ConnectionError:  # a server that is promoted closes its connections
            return False


class Cluster:
    """Masters with their replicas; `url` names all of them."""

    def __init__(
        self, folder: Path, program: str, masters: int = 3, *, replicas: bool = True, guard: Guard = OPEN
    ) -> None:
        names = [f"{name}{i}" for name in ("master", "replica")[: 1 + replicas] for i in range(masters)]
        nodes = [Node(folder / name, program, guard=guard) for name in names]
        self.masters, self.replicas = nodes[:masters], nodes[masters:]
        self._begin = "rediss://" if guard.options else "redis://"

    @property
    def nodes(self) -> list[Node]:
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        return f"{self._begin}{_addresses(self.nodes)}"

    def begin(self, lacking: int = 0) -> None:
        """Make a cluster of the nodes, which have all slots but the last ones that it is to lack."""
        for node in self.nodes:
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.masters[0].door)
        share = SLOTS // len(self.masters)
        for i, master in enumerate(self.masters):
            last = (i + 1) * share if i + 1 < len(self.masters) else SLOTS - lacking
            master.ask("CLUSTER", "ADDSLOTS", *range(i * share, last))
        for epoch, master in enumerate(self.masters, 1):
            with suppress(redis.ResponseError):  # a node that knows others already has its epoch
                master.ask("CLUSTER", "SET-CONFIG-EPOCH", epoch)
        ids = [master.id for master in self.masters]
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "nodes that know each other", _LIMIT_S)
        for replica, master_id in zip(self.replicas, ids, strict=False):
            replica.ask("CLUSTER", "REPLICATE", master_id)
        if not lacking:
            wait_until(lambda: all(map(_is_ready, self.nodes)), "the cluster to be ready", _LIMIT_S)
            wait_until(lambda: all(map(_is_linked, self.replicas)), "the replicas to be linked", _LIMIT_S)
            if self.replicas:
                wait_until(lambda: all(map(_knows_replicas, self.nodes)), "nodes that know the replicas", _LIMIT_S)

    def _knows_all(self, node: Node) -> bool:
        known = _lines(node)
        return len(known) == len(self.nodes) and not any("handshake" in line for line in known)

    def master_of(self, key: str) -> Node:
        """Return the node that has the slot of a key, by what a living node tells."""
        slot = slot_of(key)
        for node in self.nodes:
            try:
                ranges = node.ask("CLUSTER", "SLOTS")
            except redis.RedisError:
                continue
            port = next(master[1] for first, last, master, *_ in ranges if first <= slot <= last)
            return next(node for node in self.nodes if node.port == port)
        raise AssertionError("no node answers")

    def replica_of(self, key: str) -> Node:
        master = self.master_of(key).id
        return next(
            node for node in self.nodes if any(master in line for line in _lines(node) if "myself,slave" in line)
        )

    def fail_over(self, key: str) -> None:
        """Kill the master of a key, wait until its replica has its place, and start it again as that one's replica."""
        master = self.master_of(key)
        master.stop(signal.SIGKILL)

        def is_promoted() -> bool:
            return self.master_of(key) is not master and _is_ready(self.master_of(key))

        wait_until(is_promoted, "a replica to be promoted", _LIMIT_S)
        master.start()
        wait_until(lambda: _is_linked(master), "the former master to be a replica", _LIMIT_S)

    def move(self, key: str) -> Iterator[None]:
        """Move the slot of a key to another master, that key first; yields after each key."""
        slot, source = slot_of(key), self.master_of(key)
        target = next(node for node in self.nodes if node is not source and node.is_master)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        keys: list[str | bytes] = [key]
        while keys:
            source.ask("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
            yield
            keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1)
        for node in (target, source, *(other for other in self.nodes if other.is_master)):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


def _addresses(nodes: Sequence[Node]) -> str:
    """Return the addresses of a URL; certificates of the tests name localhost."""
    return ",".join(f"localhost:{node.door}" for node in nodes)


def _lines(node: Node) -> list[str]:
    return cast(bytes, node.ask("CLUSTER", "NODES")).decode().splitlines()


def _is_ready(node: Node) -> bool:
    try:
        return b"cluster_state:ok" in node.ask("CLUSTER", "INFO")
    except redis.RedisError:
        return False


def _is_linked(node: Node) -> bool:
    try:
        return bool(node.ask("ROLE")[3] == b"connected")
    except (redis.RedisError, IndexError):
        return False


def _knows_replicas(node: Node) -> bool:
    return all(len(found) > 3 for found in node.ask("CLUSTER", "SLOTS"))


@contextmanager
def started(cluster: Cluster, lacking: int = 0) -> Iterator[Cluster]:
    """Start all nodes, and end them."""
    with ExitStack() as stack:
        for node in cluster.nodes:
            node.start()
            stack.callback(node.close)
        cluster.begin(lacking)
        yield cluster


class Service:
    """A master and its replica, with three Sentinels that watch them."""

    def __init__(
        self, stack: ExitStack, folder: Path, program: str, guard: Guard = OPEN, watch: Guard = OPEN, more: str = ""
    ) -> None:
        """`watch` guards the Sentinels, and `more` is of the Sentinels' files."""
        self._begin = "rediss+sentinel://" if guard.options else "redis+sentinel://"
        self.servers = [Node(folder / name, program, in_cluster=False, guard=guard) for name in ("master", "replica")]
        for server in self.servers:
            server.start()
            stack.callback(server.close)
        master, replica = self.servers
        replica.ask("REPLICAOF", "localhost", master.door)
        wait_until(lambda: _is_linked(replica), "the replica to be linked", _LIMIT_S)
        self._sentinels = [Sentinel(folder / f"sentinel{i}", program, master.door, watch, more) for i in range(3)]
        for sentinel in self._sentinels:
            sentinel.start()
            stack.callback(sentinel.close)
        wait_until(lambda: all(map(self._knows_all, self._sentinels)), "Sentinels that know all", _LIMIT_S)

    @property
    def url(self) -> str:
        return f"{self._begin}{_addresses(self._sentinels)}/rainbow"

    def _knows_all(self, sentinel: "Sentinel") -> bool:
        sentinels = sentinel.ask("SENTINEL", "SENTINELS", "rainbow")
        return len(sentinels) == 2 and len(sentinel.ask("SENTINEL", "REPLICAS", "rainbow")) == 1

    def fail_over(self) -> None:
        """Kill the master, and wait until the replica has its place."""
        master, replica = self.servers
        master.stop(signal.SIGKILL)
        wait_until(lambda: replica.is_master, "the replica to be promoted", _LIMIT_S)

    def hand_over(self) -> None:
        """Let master and replica change their places."""
        master, replica = self.servers
        self._sentinels[0].ask("SENTINEL", "FAILOVER", "rainbow")
        wait_until(lambda: replica.is_master and not master.is_master, "master and replica to change", _LIMIT_S)


class Sentinel(Node):
    """Watches a master."""

    def __init__(self, folder: Path, program: str, master: int, guard: Guard, more: str) -> None:
        super().__init__(folder, program, in_cluster=False, guard=guard)
        names = "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n" if guard.options else ""
        host = "localhost" if guard.options else "127.0.0.1"
        (folder / "sentinel.conf").write_text(
            f"{names}sentinel monitor rainbow {host} {master} 2\nsentinel down-after-milliseconds rainbow 1500\n"
            f"sentinel failover-timeout rainbow 10000\n{more}"
        )
        self.first = (str(folder / "sentinel.conf"), "--sentinel")
