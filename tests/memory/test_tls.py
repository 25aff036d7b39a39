"""Connections over TLS: what is verified, what works over them, and how each refusal is told."""

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from tests.conftest import RedisServer
from tests.deadline import Clock
from tests.memory.links import after
from tests.tls import Authority, TlsServer

pytestmark = pytest.mark.redis
PASSWORD = "s3cret-of-nobody"


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "theirs")


@contextmanager
def over_tls(port: int, **environment: str) -> Iterator[Client]:
    server = find_server("localhost", 6379, f"rediss://localhost:{port}", environment)
    with closing(connect(server.host, server.port, access=server.access)) as client:
        yield client


def refusal(url: str, **environment: str) -> str:
    """The one line with which a connection is refused, within seconds."""
    clock = Clock()
    server = find_server("localhost", 6379, url, environment)
    with pytest.raises(UserError) as refused:
        connect(server.host, server.port, access=server.access).close()
    assert clock.seconds() < 8
    message = str(refused.value)
    assert message.startswith(f"--redis-url {url}/0: ")
    assert "\n" not in message
    assert PASSWORD not in message
    return message


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_sent_and_read_in_many_tries_is_whole(
    own_server: RedisServer, ours: Authority, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    # Mutation: `TimedSocket.sendall` sends once; over TLS that sends all.
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.connection._TICK_S", 0.02)
    whole = os.urandom(30_000_000)  # more than the buffers on the way hold
    with (
        TlsServer(own_server.port, ours.server("localhost")) as server,
        over_tls(server.port, REDIS_CA_CERTS=ours.file) if tls else connect("127.0.0.1", own_server.port) as client,
    ):
        commands: list[Callable[[], object]] = [lambda: client.set("key", whole), lambda: client.get("key")]
        for command in commands:
            own_server.pause()
            with after(0.5, own_server.go_on):
                command()
        assert client.get("key") == whole


def test_the_server_s_certificate_must_be_signed_by_the_named_authority(
    redis_server: RedisServer, ours: Authority, theirs: Authority
) -> None:
    with TlsServer(redis_server.port, ours.server("localhost")) as tls:
        url = f"rediss://localhost:{tls.port}"
        for trusted in ({"REDIS_CA_CERTS": theirs.file}, {}):
            message = refusal(url, **trusted, REDIS_PASSWORD=PASSWORD)
            assert "certificate is refused" in message
            assert "REDIS_CA_CERTS must name" in message
        with over_tls(tls.port, REDIS_CA_CERTS=ours.file) as client:  # the mutation
            assert client.ping()


def test_the_server_s_certificate_must_be_for_its_name(redis_server: RedisServer, ours: Authority) -> None:
    with TlsServer(redis_server.port, ours.server("redis.example.org", "10.0.0.7")) as tls:
        for host in ("localhost", "127.0.0.1"):
            message = refusal(f"rediss://{host}:{tls.port}", REDIS_CA_CERTS=ours.file)
            assert "certificate is refused" in message
            assert "name the server as its certificate does" in message


def test_the_server_s_certificate_must_be_valid_still(redis_server: RedisServer, ours: Authority) -> None:
    with TlsServer(redis_server.port, ours.server("localhost", expired=True)) as tls:
        assert "certificate has expired" in refusal(f"rediss://localhost:{tls.port}", REDIS_CA_CERTS=ours.file)


CLIENTS: dict[str, Callable[[Authority, Authority], dict[str, str]]] = {
    "without": lambda _ours, _theirs: {},
    "with an expired one": lambda ours, _: ours.client("actor", expired=True),
    "with another authority's": lambda _, theirs: theirs.client("actor"),
}


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("who", CLIENTS)
def test_a_client_without_a_valid_certificate(
    redis_server: RedisServer, ours: Authority, theirs: Authority, who: str, version: str
) -> None:
    context = ours.wants_clients(ours.server("localhost"))
    context.maximum_version = ssl.TLSVersion[version]
    with TlsServer(redis_server.port, context) as tls:
        message = refusal(f"rediss://localhost:{tls.port}", REDIS_CA_CERTS=ours.file, **CLIENTS[who](ours, theirs))
        assert "REDIS_CLIENT_CERT" in message
        with over_tls(tls.port, REDIS_CA_CERTS=ours.file, **ours.client("actor")) as client:  # the mutation
            assert client.ping()


def test_tls_and_none_do_not_match(redis_server: RedisServer, ours: Authority) -> None:
    told = {"REDIS_PASSWORD": PASSWORD}
    message = refusal(f"rediss://localhost:{redis_server.port}", REDIS_CA_CERTS=ours.file, **told)
    assert "TLS" in message
    with TlsServer(redis_server.port, ours.server("localhost")) as tls:
        assert "TLS" in refusal(f"redis://localhost:{tls.port}", **told)


def test_old_versions_of_tls_are_refused(redis_server: RedisServer, ours: Authority) -> None:
    context = ours.server("localhost")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with TlsServer(redis_server.port, context) as tls:
        assert refusal(f"rediss://localhost:{tls.port}", REDIS_CA_CERTS=ours.file)
