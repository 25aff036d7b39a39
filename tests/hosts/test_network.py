"""Hosts in network namespaces: they reach each other, lose each other, and leave nothing behind."""

import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.deadline import wait_until
from tests.hosts.network import Host, Network, ip
from tests.processes import Process, Processes, is_gone

PORT = 7000
ECHO = f"""
import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            print("heard", line, flush=True)
            self.wfile.write(line)
socketserver.ThreadingTCPServer(("0.0.0.0", {PORT}), Echo).serve_forever()
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("server", "player", "judge") as network:
        yield network


def serve(host: Host) -> Process:
    """Start a server that sends back what it is sent."""
    process = host.start(sys.executable, "-c", ECHO)
    with host.inside():
        wait_until(lambda: error_of("127.0.0.1") is None, "the server to listen", 20)
    return process


def error_of(address: str, seconds: float = 20) -> type[OSError] | None:
    """Connect from the host on which this thread is; return how that fails."""
    try:
        socket.create_connection((address, PORT), seconds).close()
    except OSError as error:
        return type(error)
    return None


def is_silent(address: str) -> bool:
    return error_of(address, 0.3) is TimeoutError


def talk_to(address: str) -> socket.socket:
    return socket.create_connection((address, PORT), 20)


def answers(connection: socket.socket, seconds: float = 20) -> bool:
    connection.settimeout(seconds)
    connection.sendall(b"word\n")
    try:
        return connection.recv(5) == b"word\n"
    except TimeoutError:
        return False


def test_links_and_packets_that_vanish(network: Network) -> None:
    """Mutation: without the rule `iif`, what the host sends arrives."""
    server, player, judge = network.hosts
    heard = serve(server)
    with player.inside():
        connection = talk_to(server.address)
        assert answers(connection)
        player.link_down()
        assert error_of(server.address) is OSError, "the network is unreachable, and the host is told so at once"
        player.link_up()
        assert answers(connection), "the connection goes on"
        player.blackhole()
        assert is_silent(server.address), "no answer at all"
        assert not answers(connection, 0.3)
        assert heard.output.count("heard") == 2, "what was sent vanishes, too"
    with judge.inside():
        assert error_of(server.address) is None, "another host is not touched"
        assert is_silent(player.address)
    player.end_blackhole()
    with player.inside():
        assert error_of(server.address) is None, "the way back"
        heard.wait_for("heard", 3)
        player.blackhole(server)
        assert is_silent(server.address)
        assert error_of(judge.address) is ConnectionRefusedError, "the packets between two hosts alone"
        player.end_blackhole(server)
        assert error_of(server.address) is None
        connection.close()


def test_a_host_that_dies_and_an_address_that_moves(network: Network) -> None:
    """Mutation: processes killed before the link is gone say goodbye."""
    server, player, judge = network.hosts
    serve(server)
    serve(judge)
    resolve = f"import socket; print(socket.gethostname(), socket.gethostbyname('server'), {PORT})"
    assert player.run(sys.executable, "-c", resolve).out == f"player {server.address} {PORT}\n"
    watcher = player.start(sys.executable, "-uc", f"import time\nwhile True: exec({resolve!r}); time.sleep(0.05)")
    with player.inside():
        connection = talk_to(server.address)
        assert answers(connection)
        server.kill()
        assert not answers(connection, 0.3), "the connection is half open, and nobody is told"
        network.set_name("server", judge.address)
        watcher.wait_for(f"player {judge.address} {PORT}")  # a program that ran before sees the new address, too
        judge.add_address("10.77.1.1")
        assert error_of("10.77.1.1") is None
        server.boot()
        wait_until(lambda: error_of(server.address) is ConnectionRefusedError, "a host on which nothing runs")
        with pytest.raises(ConnectionResetError):
            assert answers(connection)
        judge.remove_address("10.77.1.1")
        server.add_address("10.77.1.1")
        assert error_of("10.77.1.1") is ConnectionRefusedError
        connection.close()


HOLD = """
import sys, time
from tests.hosts.network import Network
with Network("one", "other") as network:
    network.hosts[0].start("sleep", "1000")
    print("up", network.prefix, flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_nothing_is_left_behind(processes: Processes, how: signal.Signals) -> None:
    """Mutation: without the guardian, namespaces and processes outlive a test that is killed."""
    with Network("one"):
        pass  # which skips where hosts are not permitted
    test = processes.start("-c", HOLD)
    test.wait_for("\n")
    prefix = test.output.split()[1]
    wait_until(lambda: ip("netns", "pids", f"{prefix}-1"), "the sleeper, which enters its host after its start")
    sleeper = psutil.Process(int(ip("netns", "pids", f"{prefix}-1")))
    test.send(how)
    test.finish()
    wait_until(lambda: is_gone(sleeper), "the end of what ran there")
    wait_until(lambda: prefix not in ip("netns", "list"), "the end of the namespaces")
    wait_until(lambda: not list(Path("/etc/netns").glob(f"{prefix}*")), "the end of their files")
