"""TLS between machines: only a server with a certificate for its name is asked, and only by clients with TLS."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.memory.broker.access import Tls
from rainbow_iqn_apex.memory.broker.inference_servers import Address
from rainbow_iqn_apex.programs.inference import link, peers
from rainbow_iqn_apex.programs.inference.link import Asker, Link, Patience
from rainbow_iqn_apex.programs.inference.listening import tls_context
from rainbow_iqn_apex.programs.inference.messages import Refusal
from tests.deadline import wait_until
from tests.inference.serving import EACH, Served, Stream, client_of, together
from tests.tls import UNCLOSED, Authority

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings(UNCLOSED)]


def variables(authority: Authority, name: str, *names: str) -> dict[str, str]:
    files = authority.client(name, *names)
    return {"INFERENCE_CERT": files["REDIS_CLIENT_CERT"], "INFERENCE_KEY": files["REDIS_CLIENT_KEY"]}


def test_an_actor_may_be_stopped_where_nobody_answers_its_handshake() -> None:
    # Mutation: a handshake in one piece.
    def check() -> None:
        raise Stopped

    patience = Patience()
    patience.seconds = link.MOST_S
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Stopped):
        place = Address(0, "elsewhere", "", "127.0.0.1", silent.getsockname()[1], 0)
        Link(place, Asker(1, False), b"", Tls(), patience, check)


# Mutations that fail here: a client that does not verify (`CERT_NONE`), one that does not look at the name
# (`check_hostname = False`), a server whose handshake blocks (no `do_handshake_on_connect=False`).
def test_only_a_server_with_the_right_certificate_is_asked(
    redis_port: int, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "LEAST_S", 3.0)
    right, wrong = Authority(tmp_path / "right"), Authority(tmp_path / "wrong")
    context = tls_context(variables(right, "server", "localhost"))
    with Served(together("ppo"), redis_port, run_name, host="localhost", tls=context) as served:
        place = Address(0, "elsewhere", served.path, "localhost", served.port, 0)
        numbers = Address(0, "elsewhere", served.path, "127.0.0.1", served.port, 0)

        def asked_at(address: Address, tls: Tls | None) -> None:
            Link(address, Asker(1, False), served.secret, tls, Patience(), lambda: None).close()

        with socket.create_connection(("localhost", served.port)) as silent, client_of(
            served, tls=Tls(ca_certs=right.file)
        ) as policy:  # fmt: skip
            silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
            asked_at(place, Tls(ca_certs=right.file))
            for address, tls in ((place, Tls(ca_certs=wrong.file)), (numbers, Tls(ca_certs=right.file))):
                with pytest.raises(OSError, match="certificate verify failed"):
                    asked_at(address, tls)
                assert policy.act(Stream(1).rows(), {}, 5)[0].actions.shape == (EACH,)
            with pytest.raises((OSError, Refusal)):
                asked_at(place, None)
            silent.settimeout(30)
            with suppress(ConnectionResetError):
                while silent.recv(1 << 16):  # an alert, and the end
                    pass
            stream, state = Stream(2), policy.act(Stream(2).rows(), {}, 5)[1]
            for _ in range(20):
                state = policy.act(stream.rows(), state, 5)[1]


# A mutation that fails here: `is_stuck` that does not count before TLS has begun.
def test_a_peer_that_never_begins_tls_is_cut_off(
    redis_port: int, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_GREETING_S", 1.0)
    authority = Authority(tmp_path / "authority")
    context = tls_context(variables(authority, "server", "localhost"))
    with Served(together("ppo"), redis_port, run_name, host="localhost", tls=context) as served:
        with socket.create_connection(("localhost", served.port), 30) as silent:
            assert silent.recv(100) == b""
        wait_until(lambda: not served.server._peers, "the end of the connection")


# A mutation that fails here: `read` that reads one TLS record of a message that has several.
def test_a_large_message_comes_in_many_records(redis_port: int, run_name: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    context = tls_context(variables(authority, "server", "localhost"))
    with (
        Served(together("rainbow_iqn"), redis_port, run_name, host="localhost", tls=context) as served,
        client_of(served, tls=Tls(ca_certs=authority.file)) as policy,
    ):
        link_ = policy._link
        most = served.server._most
        link_.send(np.uint32(most).tobytes() + bytes(most))
        wait_until(lambda: not served.server.clients, "the end of a message that is none")
        assert policy.act(Stream(1).rows(), {}, 5)[0].actions.shape == (EACH,)


# Mutations that fail here: a context without its check, and an OSError that passes.
@pytest.mark.parametrize("what", ["none", "no file", "no certificate", "the key of another", "a key with a password"])
def test_a_certificate_that_cannot_be_used_is_one_line(tmp_path: Path, what: str) -> None:
    authority = Authority(tmp_path / "authority")
    good = variables(authority, "server", "localhost")
    empty, locked = tmp_path / "empty.pem", tmp_path / "locked.pem"
    empty.touch()
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n")
    environment = {
        "none": {},
        "no file": {"INFERENCE_CERT": os.fspath(tmp_path / "absent.pem")},
        "no certificate": good | {"INFERENCE_CERT": os.fspath(empty)},
        "the key of another": good | {"INFERENCE_KEY": variables(authority, "other", "localhost")["INFERENCE_KEY"]},
        "a key with a password": good | {"INFERENCE_KEY": os.fspath(locked)},
    }[what]
    with pytest.raises(UserError, match=r"^INFERENCE_CERT: ") as error:
        tls_context(environment)
    assert "\n" not in str(error.value)
    assert ("INFERENCE_KEY" in str(error.value)) and (what != "none" or "is not set" in str(error.value))
