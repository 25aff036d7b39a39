"""Several hosts on this machine: network namespaces, each with its own interface, address, name and /etc/hosts.

def test_a_cut(...) -> None:
    with Network("server", "player") as network:  # skips the test where namespaces are not permitted
        server, player = network.hosts
        server.start("redis-server", "--bind", "*")
        actor = player.start(sys.executable, "launch_actor.py", "--host-redis", "server")
        player.link_down()
        actor.wait_for("Waiting for the Redis server")

A veth pair leads from each host to a router, which is a namespace, too: a router can lose packets without a word, as a
bridge cannot, and nothing reaches this machine's own network. Hosts share its files and its clock, so a Unix socket
leads past all links. At the end of the block, and also when the test's process is killed, a guardian kills what runs in
the namespaces and removes them.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import Process, Processes, wait_for_ends

ROUTER = "10.77.0.254"  # its address at every host's link; the hosts have 10.77.0.1 and so on
_GUARD = """
trap '' INT TERM HUP
cat >/dev/null  # ends with the test's process
for namespace in "$@"; do
    while pids=$(ip netns pids "$namespace" 2>/dev/null) && [ "$pids" ]; do kill -9 $pids; sleep 0.01; done
    ip netns del "$namespace" 2>/dev/null
    rm -rf "/etc/netns/$namespace"
done
"""
_NAMED = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
_CLONE_NEWNET = 0x40000000
_numbers = count()
_libc = ctypes.CDLL(None, use_errno=True)


def ip(*words: object) -> str:
    """Run a command of iproute2, and return what it prints."""
    return subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True).stdout


@cache
def missing() -> str:
    """Return why this machine lets nobody make hosts, empty if it does."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "hosts in network namespaces need root"
    probe = f"probe-{os.getpid()}"
    try:
        ip("netns", "add", probe)
        try:
            ip("-n", probe, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1")
            ip("-n", probe, "rule", "add", "iif", "eth0", "type", "blackhole")
        finally:
            ip("netns", "del", probe)
    except OSError as error:
        return f"hosts in network namespaces need iproute2: {error}"
    except subprocess.CalledProcessError as error:
        return f"hosts in network namespaces are not permitted here: {error.stderr.strip()}"
    return ""


class Host:
    """A machine of a network: what runs on it, its link and its addresses."""

    def __init__(self, network: "Network", name: str, number: int) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self.namespace = f"{network.prefix}-{number}"
        self._network = network
        self._port = f"port{number}"  # of the router
        self._addresses = [self.address]

    # --- what runs on it ---

    def start(self, *words: object, **more: Any) -> Process:
        """Start a program with its options, as `Processes.start` does with `more`."""
        into = ("netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", _NAMED, self.name)
        return self._network.processes.start(*into, *words, program="ip", **more)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let this thread, and the threads that it starts, open their sockets on this host."""
        with Path("/proc/thread-self/ns/net").open() as before, Path("/run/netns", self.namespace).open() as here:
            _enter(here.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    # --- its link ---

    def link_down(self) -> None:
        """Take the interface down: this host hears at once that nothing is reachable, the others after a while."""
        ip("-n", self.namespace, "link", "set", "eth0", "down")

    def link_up(self) -> None:
        """Bring the interface back."""
        ip("-n", self.namespace, "link", "set", "eth0", "up")
        ip("-n", self.namespace, "route", "add", "default", "via", ROUTER, "dev", "eth0", "onlink")

    def blackhole(self) -> None:
        """Lose every packet between this host and all others, silently: connections are half open, none is reset."""
        for end in self._ends():
            ip("-n", self._network.router, "rule", "add", *end, "type", "blackhole")

    def end_blackhole(self) -> None:
        """Let packets pass again."""
        for end in self._ends():
            ip("-n", self._network.router, "rule", "del", *end, "type", "blackhole")

    def _ends(self) -> list[tuple[str, str]]:
        return [("iif", self._port), *(("to", address) for address in self._addresses)]

    # --- its addresses ---

    def add_address(self, address: str) -> None:
        """Give this host one more address of 10.77.0.0/16, such as one that another host has had."""
        ip("-n", self.namespace, "address", "add", f"{address}/32", "dev", "eth0")
        ip("-n", self._network.router, "route", "replace", f"{address}/32", "dev", self._port)
        self._addresses.append(address)

    def remove_address(self, address: str) -> None:
        """Take an address away: packets to it are refused from then on."""
        self._addresses.remove(address)
        ip("-n", self.namespace, "address", "del", f"{address}/32", "dev", "eth0")
        ip("-n", self._network.router, "route", "del", f"{address}/32", "dev", self._port)

    # --- its life ---

    def boot(self) -> None:
        """Bring the host up, with nothing running; also one that was killed."""
        router = self._network.router
        ip("netns", "add", self.namespace)
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("link", "add", "eth0", "netns", self.namespace, "type", "veth", "peer", "name", self._port, "netns", router)
        ip("-n", router, "link", "set", self._port, "up")
        ip("-n", router, "address", "add", f"{ROUTER}/32", "dev", self._port)
        addresses, self._addresses = self._addresses, []
        for address in addresses:
            self.add_address(address)
        self.link_up()

    def kill(self) -> None:
        """Let the host die as by a loss of power: no word leaves it, and its processes and connections are gone."""
        ip("-n", self._network.router, "link", "del", self._port)  # first, so that nobody is told
        processes = [psutil.Process(int(pid)) for pid in ip("netns", "pids", self.namespace).split()]
        for process in processes:
            process.kill()
        wait_for_ends(processes)
        ip("netns", "del", self.namespace)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    """Hosts of these names, which reach each other; use as a context manager."""

    def __init__(self, *names: str) -> None:
        self.prefix = f"hosts{os.getpid()}-{next(_numbers)}"
        self.router = f"{self.prefix}-router"
        self.processes = Processes()
        self.hosts = [Host(self, name, number) for number, name in enumerate(names, 1)]
        self._names = {host.name: host.address for host in self.hosts}
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def set_name(self, name: str, address: str) -> None:
        """Let a name mean this address on every host, also to programs that run already."""
        self._names[name] = address
        lines = [f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **self._names}.items()]
        for host in self.hosts:
            Path("/etc/netns", host.namespace, "hosts").write_text("".join(lines))  # in place: it is mounted elsewhere

    def __enter__(self) -> "Network":
        if reason := missing():
            pytest.skip(reason)
        namespaces = [host.namespace for host in self.hosts]
        with ExitStack() as stack:
            guardian = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *namespaces, self.router], stdin=subprocess.PIPE, start_new_session=True
            )
            stack.callback(guardian.communicate)
            stack.enter_context(self.processes)
            ip("netns", "add", self.router)
            ip("netns", "exec", self.router, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
            for host in self.hosts:
                folder = Path("/etc/netns", host.namespace)
                folder.mkdir(parents=True)
                (folder / "resolv.conf").touch()  # no name is looked for elsewhere
                host.boot()
            self.set_name(self.hosts[0].name, self.hosts[0].address)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
