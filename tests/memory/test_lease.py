import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker import leases as module
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.leases import Lease
from tests.conftest import RedisServer
from tests.deadline import Clock, wait_until
from tests.processes import Process, Processes

pytestmark = pytest.mark.redis
TTL_S = 2.0
HOLDER = """
import sys, time
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.connection import connect
lease.TTL_MS = int(sys.argv[3])
with lease.Lease(connect("127.0.0.1", int(sys.argv[1])), sys.argv[2], "the holder", "advice"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TTL_MS", int(TTL_S * 1000))


@contextmanager
def another_holder(port: int, key: str) -> Iterator[Process]:
    """A process that holds the lease until it is killed."""
    with Processes() as processes:
        process = processes.start("-c", HOLDER, port, key, module.TTL_MS)
        process.wait_for("held\n")
        yield process


def lease(client: Client, key: str, *, break_stale: bool = False) -> Lease:
    return Lease(client, key, "the thing", "use another", break_stale=break_stale)


def refusal(client: Client, key: str, *, break_stale: bool = False) -> str:
    with pytest.raises(UserError) as caught, lease(client, key, break_stale=break_stale):
        pass
    return str(caught.value)


def is_lost(held: Lease) -> bool:
    try:
        held.check()
    except RunError:
        return True
    return False


def check_is_held(client: Client, key: str, kind: type[Lease] = Lease) -> bytes:
    with kind(client, key, "the thing", "use another") as held:
        left, renewed = int(TTL_S * 1000), 0
        while renewed < 4:  # as often as its life has thirds, and once more
            assert client.get(key) == held.token
            before, left = left, client.pttl(key)
            assert 0 < left <= TTL_S * 1000
            renewed += left > before
            time.sleep(TTL_S / 50)
            held.check()
    assert not client.exists(key)
    return held.token


def test_a_lease_is_renewed_and_released(client: Client, run_name: str) -> None:
    assert check_is_held(client, run_name) != check_is_held(client, run_name)


class NeverRenewed(Lease):
    def _keep(self, key: str) -> None:
        pass


def test_the_check_notices_a_lease_that_is_not_renewed(client: Client, run_name: str) -> None:
    with pytest.raises(AssertionError):
        check_is_held(client, run_name, NeverRenewed)


def test_a_second_holder_is_refused(
    redis_server: RedisServer, client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TTL_MS", 3000)  # several looks between two renewals, as in earnest
    begun = time.time()
    with another_holder(redis_server.port, run_name) as process:
        for _ in range(2):
            clock = Clock()
            said = re.fullmatch(
                rf"the thing is already running, process {process.pid} on {socket.gethostname()} since (\S+); "
                r"its lease lasts ([23]) more seconds unless it is renewed: use another",
                refusal(client, run_name),
            )
            assert said and begun - 1 <= datetime.fromisoformat(said[1]).timestamp() <= time.time()
            assert clock.seconds() < 2
            assert client.exists(run_name)


LEFT = {"never ends": None, "lasts 3600 more seconds": 3_600_000}  # the latter by a clock that was set back


@pytest.mark.parametrize("lasts", LEFT)
def test_a_lease_that_lasts_too_long_is_not_waited_for(client: Client, run_name: str, lasts: str) -> None:
    client.set(run_name, b"x|17|1500000000|there", px=LEFT[lasts])
    said = refusal(client, run_name)
    assert re.match(
        rf"the thing is already running, process 17 on there since 2017-07-1\dT.*; its lease {lasts}, not 2 at most",
        said,
    )
    assert said.endswith("use another; --abandon-other-run takes the lease if that process is gone")
    assert client.get(run_name) == b"x|17|1500000000|there"


@pytest.mark.parametrize("lasts", LEFT)
def test_a_lease_that_lasts_too_long_can_be_taken(client: Client, run_name: str, lasts: str) -> None:
    client.set(run_name, b"a dead holder's", px=LEFT[lasts])
    with lease(client, run_name, break_stale=True) as held:
        assert client.get(run_name) == held.token
        assert 0 < client.pttl(run_name) <= TTL_S * 1000


def test_what_is_no_lease_is_named(client: Client, run_name: str) -> None:
    key = f"riqx:{{{run_name}}}:learner"
    client.rpush(key, b"nobody's")
    with pytest.raises(RunError, match=f"the Redis key {re.escape(key)} holds another type"), lease(client, key):
        pass


@pytest.mark.slow
def test_a_living_holder_keeps_its_lease(redis_server: RedisServer, client: Client, run_name: str) -> None:
    with another_holder(redis_server.port, run_name) as process:
        token = client.get(run_name)
        client.pexpire(run_name, 3_600_000)  # as if the clock were set back just now
        assert f"already running, process {process.pid}" in refusal(client, run_name, break_stale=True)
        assert client.get(run_name) == token


@pytest.mark.parametrize(
    "value",
    [
        b"", b"x|1|1", b"x|1|999999999999|host", b"x|12345678901|1|host", b"x|-1|1|host", b"x|1|1|\x1b[31mred",
        b"x|1|1|a host", b"x|1|1|a\nb", b"x|1|1|" + b"h" * 300, b"x" * 10**6,
    ],
)  # fmt: skip
def test_a_strange_holder_is_not_named(client: Client, run_name: str, value: bytes) -> None:
    client.set(run_name, value)
    said = refusal(client, run_name)
    assert "already running, a process that has not left its name; its lease never ends" in said
    assert said.isprintable() and len(said) < 300


def test_one_of_many_successors_gets_it(client: Client, run_name: str) -> None:
    client.set(run_name, b"a dead holder's", px=500)
    outcomes: list[str] = []
    done = threading.Event()

    def succeed() -> None:
        try:
            with lease(client, run_name):
                outcomes.append("held")
                done.wait(10)
        except UserError:
            outcomes.append("refused")

    threads = [threading.Thread(target=succeed) for _ in range(5)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(outcomes) == 5, "all outcomes", 5)
    done.set()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["held", "refused", "refused", "refused", "refused"]


def test_a_lost_lease_is_reported_and_left_to_its_new_holder(client: Client, run_name: str) -> None:
    with lease(client, run_name) as held:
        held.check()
        client.set(run_name, b"another")
        wait_until(lambda: is_lost(held), "the loss", TTL_S)
        client.delete(run_name)
        time.sleep(TTL_S / 2)
        assert is_lost(held)  # once lost, it stays lost
        client.set(run_name, b"another")
    assert client.get(run_name) == b"another"


def test_a_restart_that_lost_the_lease(own_server: RedisServer, own_client: Client) -> None:
    with lease(own_client, "key") as held:
        own_server.restart_without(since=0)
        wait_until(lambda: own_client.get("key") == held.token, "the lease to be renewed", TTL_S + 2)
        held.check()


def test_a_server_that_stays_away_is_reported(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.connection.AWAY_S", 0.5)
    with lease(own_client, "key") as held:
        own_server.stop()
        wait_until(lambda: is_lost(held), "the loss", TTL_S + 5)
        with pytest.raises(RunError, match="could not be renewed"):
            held.check()
        clock = Clock()
    assert clock.seconds() < 5


def test_nothing_is_logged_when_it_cannot_be_released(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.connection.AWAY_S", 0.5)
    monkeypatch.setattr(module, "TTL_MS", 60_000)  # it is not renewed meanwhile
    with lease(own_client, "key"):
        own_server.stop()
    assert not caplog.records
