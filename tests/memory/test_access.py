"""The address and the secrets of the Redis server: where they come from, what is refused, what no message may hold."""

import re
import ssl
from pathlib import Path

import pytest
import trustme

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import OPEN, Access, Server, Tls, check_url, find_server, hide_passwords
from rainbow_iqn_apex.memory.broker.server_errors import explain_tls

SECRET = "s3cr:t/@?#%"  # all that means something in a URL
QUOTED = "s3cr%3At%2F%40%3F%23%25"


def find(url: str = "", **environment: str) -> tuple[str, int, Access]:
    return find_server("localhost", 6379, url, environment)[:3]


def refusal(url: str = "", **environment: str) -> str:
    with pytest.raises(UserError) as refused:
        find(url, **environment)
    message = str(refused.value)
    assert "\n" not in message
    assert not any(piece in message for piece in (SECRET, QUOTED, "s3cr"))
    return message


def test_without_url_and_variables_nothing_changes() -> None:
    assert find_server("10.0.0.7", 7000, "", {}) == Server("10.0.0.7", 7000, OPEN)
    assert find(REDIS_URL="", REDIS_PASSWORD="", REDIS_CA_CERTS="") == ("localhost", 6379, OPEN)


@pytest.mark.parametrize("host", ["a..b", ".example.org", "a" * 64])
def test_a_name_that_no_machine_can_have_is_refused(host: str) -> None:
    told = f"expected the name or address of a machine, got {host!r}"
    with pytest.raises(UserError, match=f"^--host-redis: {re.escape(told)}$"):
        find_server(host, 6379, "", {})
    assert refusal(f"redis://{host}:7000") == f"--redis-url: {told}"
    assert refusal(REDIS_URL=f"redis://there,{host}:7000") == f"REDIS_URL: {told}"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://there", ("there", 6379, 0, None)),
        ("redis://there:7000", ("there", 7000, 0, None)),
        ("redis://there/", ("there", 6379, 0, None)),
        ("redis://there:7000/3", ("there", 7000, 3, None)),
        ("redis://actor@[::1]:7000/3", ("::1", 7000, 3, None)),
        ("rediss://10.0.0.7:7001/1", ("10.0.0.7", 7001, 1, Tls())),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: tuple[object, ...]) -> None:
    for source in ({"url": url}, {"REDIS_URL": url}):
        host, port, access = find(**source, REDIS_PASSWORD="x")
        assert (host, port, access.db, access.tls) == expected
        assert ("actor" in url) == (access.username == "actor")
        assert access.told_by.startswith("--redis-url redis" if "url" in source else "REDIS_URL (redis")
        assert "actor" not in access.told_by


def test_where_secrets_come_from() -> None:
    both = {"REDIS_USERNAME": "actor", "REDIS_PASSWORD": SECRET}
    for access in (find(**both)[2], find("redis://h", **both)[2], find(REDIS_URL="redis://h", **both)[2]):
        assert (access.username, access.password) == ("actor", SECRET)
        assert SECRET not in repr(access)
    access = find(REDIS_URL=f"redis://learner:{QUOTED}@h", **both)[2]
    assert (access.username, access.password) == ("learner", SECRET)
    access = find(REDIS_URL=f"redis://:{QUOTED}@h", REDIS_USERNAME="actor")[2]
    assert (access.username, access.password) == (None, SECRET), "the default user's, as the URL says"
    access = find("redis://learner@h", **both)[2]
    assert (access.username, access.password) == ("learner", SECRET)
    assert find("redis://h", REDIS_URL="redis://other:7000")[0] == "h"


@pytest.mark.parametrize("password", [QUOTED, SECRET, "s3cr", "s3cr/@", "@s3cr"])
def test_a_password_on_the_command_line_is_refused(password: str) -> None:
    for user in ("", "learner"):
        url = f"rediss://{user}:{password}@there:7000/0"
        message = refusal(url)
        assert message.startswith("--redis-url: must not hold a password")
        assert "REDIS_PASSWORD" in message
        assert check_url(url) == [message]


@pytest.mark.parametrize(
    "url",
    [
        "there:7000", "http://there", "redis:/there", "redis://", "redis://:7000", "redis://there:x", "redis://there:0",
        "redis://there:70000", "redis://there/zero", "redis://there/-1", "redis://there?ssl_cert_reqs=none",
        "redis://there#0", "unix:///tmp/redis.sock", "redis://[::1", f"redis://there?password={QUOTED}",
    ],
)  # fmt: skip
def test_another_url_is_refused(url: str) -> None:
    assert refusal(url).startswith("--redis-url: expected redis://host:port/db")
    assert len(check_url(url)) == 1
    assert refusal(REDIS_URL=url).startswith("REDIS_URL: expected redis://host:port/db")


def test_a_password_that_breaks_a_url_is_not_shown() -> None:
    for password in (SECRET, "s3cr/x", "[s3cr", "s3cr?"):
        assert "escape special characters" in refusal(REDIS_URL=f"redis://learner:{password}@there")


def test_a_user_without_a_password_is_refused() -> None:
    assert refusal(REDIS_USERNAME="learner").startswith("REDIS_PASSWORD: is not set")
    assert refusal("redis://learner@there").startswith("REDIS_PASSWORD: is not set")


@pytest.mark.parametrize("name", ["REDIS_CA_CERTS", "REDIS_CLIENT_CERT", "REDIS_CLIENT_KEY"])
def test_files_of_certificates(name: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("s3cr")
    assert refusal(**{name: str(text)}).startswith(f"{name}: is set, but without a rediss:// URL")
    assert refusal("redis://there", **{name: str(text)}).startswith(f"{name}: is set, but without a rediss:// URL")
    for file in (tmp_path / "missing", tmp_path):
        assert refusal("rediss://there", **{name: str(file)}).startswith(f"{name}: {file} cannot be read: ")
    told = {"REDIS_CLIENT_KEY": "REDIS_CLIENT_CERT: is not set"}.get(name, f"{name}: {text}")
    assert refusal("rediss://there", **{name: str(text)}).startswith(told)


@pytest.mark.parametrize(
    ("code", "advice"), [(9, "set this machine's clock"), (10, "make a new one"), (20, "CA_CERTS")]
)
def test_a_certificate_out_of_its_time_is_told_from_one_of_another_authority(code: int, advice: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, "refused"
    told = explain_tls(error)
    assert told and told.startswith("the server's certificate is refused: refused; ") and advice in told


def test_a_certificate_needs_its_own_key(tmp_path: Path) -> None:
    authority = trustme.CA()
    paths = []
    for who in ("a", "b"):
        issued = authority.issue_cert(who)
        paths += [tmp_path / f"{who}.crt", tmp_path / f"{who}.key", tmp_path / f"{who}.both"]
        issued.cert_chain_pems[0].write_to_path(str(paths[-3]))
        issued.private_key_pem.write_to_path(str(paths[-2]))
        issued.private_key_and_cert_chain_pem.write_to_path(str(paths[-1]))
    certificate, key, both, _, other_key, _ = map(str, paths)
    told = find("rediss://there", REDIS_CLIENT_CERT=certificate, REDIS_CLIENT_KEY=key)[2].tls
    assert told == Tls(None, certificate, key)
    assert find("rediss://there", REDIS_CLIENT_CERT=both)[2].tls == Tls(None, both, None)
    for wrong in ({"REDIS_CLIENT_KEY": other_key}, {}):
        assert refusal("rediss://there", REDIS_CLIENT_CERT=certificate, **wrong).startswith("REDIS_CLIENT_CERT: ")


def test_an_encrypted_key_is_refused_and_not_asked_for(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as form

    issued = trustme.CA().issue_cert("a")
    key = form.load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption = form.BestAvailableEncryption(b"word")
    file = tmp_path / "a.key"
    file.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, encryption))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "a.crt"))
    message = refusal("rediss://h", REDIS_CLIENT_CERT=str(tmp_path / "a.crt"), REDIS_CLIENT_KEY=str(file))
    assert "not encrypted" in message


def test_passwords_of_urls_are_hidden() -> None:
    assert hide_passwords(f"a redis://u:{SECRET}@there:7000 b") == "a redis://***@there:7000 b"
    assert hide_passwords("mail a@b, see redis://there") == "mail a@b, see redis://there"


@pytest.mark.parametrize("name", ["REDIS_URL", "REDIS_PASSWORD", "REDIS_SENTINEL_PASSWORD"])
def test_a_variable_from_a_file_with_other_line_ends_is_named(name: str) -> None:
    # Mutation: take the carriage return for a part of the password.
    with pytest.raises(UserError, match=f"^{name}: ends in a carriage return: convert the file that sets it") as caught:
        find_server("localhost", 6379, "", {name: "redis://s3cret\r"})
    assert "s3cret" not in str(caught.value)
