"""Find the Redis server and the credentials for it: the address by options, secrets by environment variables alone.

REDIS_URL                           address where no option names one; may hold user and password
REDIS_USERNAME, REDIS_PASSWORD      of the Redis user; those in REDIS_URL take precedence
REDIS_SENTINEL_USERNAME, REDIS_SENTINEL_PASSWORD  of the Sentinels' user, if they ask for one
REDIS_CA_CERTS                      file of the authorities that may have signed the server's certificate
REDIS_CLIENT_CERT, REDIS_CLIENT_KEY files of this process's own certificate, for a server that asks for one

Every user of a machine can read its command lines, so a password in a command line is refused. Messages repeat no text
that may hold a secret: no URL as it was given, and no value of a variable other than the name of a file.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from rainbow_iqn_apex.common.errors import UserError

URL, USERNAME, PASSWORD = "REDIS_URL", "REDIS_USERNAME", "REDIS_PASSWORD"
CA_CERTS, CLIENT_CERT, CLIENT_KEY = "REDIS_CA_CERTS", "REDIS_CLIENT_CERT", "REDIS_CLIENT_KEY"
OF_A_SERVER = (URL, USERNAME, PASSWORD, CA_CERTS, CLIENT_CERT, CLIENT_KEY)  # variables that name it, or let in there
URL_OPTION = "--redis-url"
SENTINEL_USERNAME, SENTINEL_PASSWORD = "REDIS_SENTINEL_USERNAME", "REDIS_SENTINEL_PASSWORD"
SENTINEL = "+sentinel"  # end of the scheme of a URL that names Sentinels
DEFAULT_PORT = 6379  # of redis_rainbow_6379.conf, too
SENTINEL_PORT = 26379
MAX_SHARDS = 256  # of a run
MOST_NAME = 128  # characters of a run's name
LOCAL = ("localhost", "127.0.0.1", "::1")
_EXPECTED = "expected redis://host:port/db, or rediss:// for TLS"


@dataclass(frozen=True)
class Tls:
    """Files in PEM form.

    `ca_certs` None: the system's authorities. `client_cert` None: this process shows no certificate. `client_key` None:
    the file of the certificate holds the key, too.
    """

    ca_certs: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


@dataclass(frozen=True)
class Access:
    """User, password and certificates for a server; `tls` None is an open connection."""

    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Tls | None = None
    told_by: str = ""  # how messages name the server; empty: by --host-redis and --port-redis

    def options(self) -> dict[str, Any]:
        """Keyword arguments of redis.Redis; with TLS, the server's certificate and name are always verified."""
        options: dict[str, Any] = {"db": self.db, "username": self.username, "password": self.password}
        if self.tls:
            options |= {
                "ssl": True,
                "ssl_cert_reqs": "required",
                "ssl_check_hostname": True,
                "ssl_min_version": ssl.TLSVersion.TLSv1_2,
                "ssl_ca_certs": self.tls.ca_certs,
                "ssl_certfile": self.tls.client_cert,
                "ssl_keyfile": self.tls.client_key,
            }
        return options


OPEN = Access()


class Server(NamedTuple):
    """Where the Redis server is, and what it asks of a connection; with a service, where its Sentinels are."""

    host: str
    port: int
    access: Access
    others: tuple[tuple[str, int], ...] = ()  # host and port of more nodes of a cluster, or of more Sentinels
    service: str = ""
    sentinel: Access = OPEN  # what Sentinels ask of a connection


def is_run_name(name: str) -> bool:
    """Return whether a run may have this name: letters, digits, dots, underscores and hyphens, no dot or hyphen first.

    Braces, colons and slashes divide the keys of a run. With them in a name, a user whose rights cover some keys of one
    run could write the record of another; and a line end or an escape sequence would reach people's terminals.
    """
    return bool(re.fullmatch(rf"\w[\w.-]{{0,{MOST_NAME - 1}}}", name))


def hide_passwords(text: str) -> str:
    """Return the text without user and password of the URLs in the text."""
    return re.sub(r"://\S*@", "://***@", text)


def check_url(url: str) -> list[str]:
    """Return the faults of --redis-url, one line each."""
    try:
        _parse(url, URL_OPTION)
    except UserError as error:
        return [str(error)]
    return []


def find_server(host: str, port: int, url: str, environment: Mapping[str, str]) -> Server:
    """Return the server that the options and the environment name; an empty variable or `url` counts as not set.

    `host` and `port` count only without a URL. Raises UserError, which names the faulty option or variable.
    """
    given = {name: value for name, value in environment.items() if value}
    for name in (*OF_A_SERVER, SENTINEL_USERNAME, SENTINEL_PASSWORD):
        if given.get(name, "").endswith("\r"):
            raise UserError(f"{name}: ends in a carriage return: convert the file that sets it from CRLF to LF")
    source = URL_OPTION if url else URL
    url = url or given.get(URL, "")
    parts = _parse(url, source) if url else _Parts(host, port, 0, False, None, None)
    for name, _ in ((parts.host, parts.port), *parts.others):
        try:
            name.encode("idna")
        except UnicodeError as error:
            told_by = source if url else "--host-redis"
            raise UserError(f"{told_by}: expected the name or address of a machine, got {name!r}") from error
    username, password = parts.username, parts.password
    if password is None:
        username, password = username or given.get(USERNAME), given.get(PASSWORD)
    if username and not password:
        raise UserError(f"{PASSWORD}: is not set, but a Redis user is named; set it to that user's password")
    access = Access(parts.db, username, password, _tls(given, parts.tls), parts.name(source) if url else "")
    sentinel = replace(access, username=given.get(SENTINEL_USERNAME), password=given.get(SENTINEL_PASSWORD))
    return Server(parts.host, parts.port, access, parts.others, parts.service, sentinel)


class _Parts(NamedTuple):
    host: str
    port: int
    db: int
    tls: bool
    username: str | None
    password: str | None
    others: tuple[tuple[str, int], ...] = ()
    service: str = ""

    def name(self, source: str) -> str:
        nodes = ((self.host, self.port), *self.others)
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in nodes)
        scheme = f"{'rediss' if self.tls else 'redis'}{SENTINEL if self.service else ''}"
        url = f"{scheme}://{hosts}/{self.service or self.db}"
        return f"{source} {url}" if source == URL_OPTION else f"{source} ({url})"


def _parse(url: str, source: str) -> _Parts:
    advice = _EXPECTED if source == URL_OPTION else f"{_EXPECTED}; escape special characters of a password by %"
    if fault := _fault_of_list(url.partition("://")[2]):
        raise UserError(f"{source}: {advice}; {fault}")
    userinfo, at, _ = url.rpartition("@")
    if source == URL_OPTION and at and ":" in userinfo.partition("//")[2]:
        raise UserError(
            f"{source}: must not hold a password, which everybody on this machine could read in the list of processes; "
            f"set {PASSWORD} (and {USERNAME}), or {URL} in the place of this option"
        )
    watched = SENTINEL in url.partition("://")[0]
    default = SENTINEL_PORT if watched else DEFAULT_PORT
    try:
        first, *more = _nodes(url)
        parts = urlsplit(first)
        host, port, path = parts.hostname, parts.port, parts.path.strip("/")
        others = tuple(_address(other, default) for other in more)
    except ValueError:  # not shown: its text may hold a piece of the password
        raise UserError(f"{source}: {advice}") from None
    is_known = parts.scheme.removesuffix(SENTINEL) in ("redis", "rediss")
    if not is_known or not host or port == 0 or parts.query or parts.fragment:
        raise UserError(f"{source}: {advice}")
    if watched and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", path):
        raise UserError(f"{source}: expected redis{SENTINEL}://host:port,host:port/service, with the service's name")
    if not watched and not re.fullmatch(r"[0-9]{1,9}", path or "0"):
        raise UserError(f"{source}: {advice}; db is the number of a database")
    db = 0 if watched else int(path or "0")
    if others and db:
        raise UserError(f"{source}: {advice}; the database of a cluster is 0")
    username, password = (unquote(text) if text else None for text in (parts.username, parts.password))
    tls = parts.scheme.startswith("rediss")
    service = path if watched else ""
    return _Parts(host, port or default, db, tls, username, password, others, service)


def _fault_of_list(rest: str) -> str:
    """Return what is wrong with the list of servers of a URL, whose scheme is left out; empty for nothing."""
    userinfo, _, hosts = rest.rpartition("@")
    addresses = re.split("[/?#]", hosts)[0].split(",")
    if "://" in hosts:
        return "the scheme stands once, before all servers: redis://host:port,host:port"
    if "," in userinfo and "@" in userinfo:
        return "user and password stand once, before the first server: redis://user@host:port,host:port"
    if len(addresses) > 1 and any(re.match(r"(:|$)|.*\s", address) for address in addresses):
        return "a server of the list has no name, or spaces in it: redis://host:port,host:port"
    return ""


def _address(text: str, default_port: int) -> tuple[str, int]:
    """Return host and port of a server behind the first one; raises ValueError for something else."""
    node = urlsplit(text)
    if not node.hostname or node.port == 0 or node.query or node.fragment:
        raise ValueError
    return node.hostname, node.port or default_port


def _nodes(url: str) -> list[str]:
    """Return the URL of the first server that a URL names, and the address of each other one."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    first, *others = hosts.split(",")
    return [f"{scheme}{separator}{userinfo}{at}{first}{slash}{path}", *(f"//{other}" for other in others)]


def _tls(given: Mapping[str, str], wanted: bool) -> Tls | None:
    files = {name: str(Path(given[name]).absolute()) for name in (CA_CERTS, CLIENT_CERT, CLIENT_KEY) if name in given}
    if not wanted and files:
        raise UserError(f"{min(files)}: is set, but without a rediss:// URL the connection would not be encrypted")
    if not wanted:
        return None
    for name, file in files.items():
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise UserError(f"{name}: {file} cannot be read: {error.strerror}") from error
    tls = Tls(*map(files.get, (CA_CERTS, CLIENT_CERT, CLIENT_KEY)))
    _check_files(tls)
    return tls


def _check_files(tls: Tls) -> None:
    """Raise UserError for a file that OpenSSL cannot use; the first connection would fail without naming the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca_certs:
        try:
            context.load_verify_locations(tls.ca_certs)
        except ssl.SSLError as error:
            raise UserError(f"{CA_CERTS}: {tls.ca_certs} holds no certificate in PEM form") from error
    if tls.client_key and not tls.client_cert:
        raise UserError(f"{CLIENT_CERT}: is not set, but {CLIENT_KEY} is; set it to the certificate of that key")
    if tls.client_cert:
        try:
            context.load_cert_chain(tls.client_cert, tls.client_key, password="")  # or OpenSSL would ask the terminal
        except (ssl.SSLError, ValueError) as error:
            raise UserError(
                f"{CLIENT_CERT}: {tls.client_cert}, with {tls.client_key or 'no ' + CLIENT_KEY}, is not a certificate "
                "with its key, in PEM form and not encrypted"
            ) from error


def append_file(port: int) -> str:
    """Return the name of the append-only file of the server at a port."""
    return f"redis_{port}.aof"


def keeps_file(folder: Path, port: int) -> bool:
    """Return whether the server at a port has a file there: before Redis 7 in the folder itself."""
    name = f"{append_file(port)}*"
    return any(folder.glob(name)) or any(folder.glob(f"appendonlydir/{name}"))
