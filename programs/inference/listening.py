"""The sockets on which an inference server listens."""

import errno
import os
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.text import reason
from rainbow_iqn_apex.memory.broker.access import find_server

CERT, KEY = "INFERENCE_CERT", "INFERENCE_KEY"
_BACKLOG = 512
_FOLDER = "rainbow.inference."
_LEFT_S = 60  # old enough that its server listens, if it lives
_MOST_TEMPORARY = 60  # bytes of the path of the folder for temporary files


class Listening(NamedTuple):
    """Open sockets, and where they are."""

    sockets: list[socket.socket]
    path: str
    port: int  # 0: none


@contextmanager
def listening(host: str, port: int) -> Iterator[Listening]:
    """Listen on a path of this machine, and on a port of a host if one is named; raises UserError if that fails."""
    with ExitStack() as stack:
        # Its owner's alone. The path of a socket may have 107 bytes.
        place = tempfile.gettempdir() if len(os.fsencode(tempfile.gettempdir())) < _MOST_TEMPORARY else "/tmp"
        _remove_left(Path(place))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=_FOLDER, dir=place))
        path = Path(folder) / "socket"
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(os.fspath(path))
        local.listen(_BACKLOG)
        sockets = [local]
        if host:
            sockets.append(stack.enter_context(_open(host, port)))
        yield Listening(sockets, os.fspath(path), sockets[1].getsockname()[1] if host else 0)


def _remove_left(place: Path) -> None:
    """Remove the folders of this user's servers that were killed: nobody listens at their sockets."""
    for folder in place.glob(f"{_FOLDER}*"):
        with suppress(OSError):  # it is somebody else's, or goes at this moment
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or time.time() - found.st_mtime < _LEFT_S:
                continue
            if _is_refused(folder / "socket"):
                (folder / "socket").unlink()
                folder.rmdir()


def _is_refused(path: Path) -> bool:
    with closing(socket.socket(socket.AF_UNIX)) as link:
        link.setblocking(False)  # a frozen server's queue may be full
        return link.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


def _open(host: str, port: int) -> socket.socket:
    """Listen on the addresses of a host's name; on all of this machine, if the name is another network's."""
    try:
        family, *_, named = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--inference-host: {host!r} cannot be found ({reason(error)})") from error
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    for place in (named, ("::" if family == socket.AF_INET6 else "0.0.0.0", port)):
        try:
            return socket.create_server(place, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        except OSError as error:
            failed = error.errno or 0
            if failed != errno.EADDRNOTAVAIL:
                break
    option = "--inference-port" if port else "--inference-host"
    raise UserError(f"{option}: cannot listen on {host}:{port} ({os.strerror(failed)})")


def server_tls(args: Args) -> ssl.SSLContext | None:
    """Return what encrypts the links of other machines; None where Redis is reached without TLS, or none may ask.

    Raises UserError for settings without a certificate.
    """
    tls = find_server(args.host_redis, args.port_redis, args.redis_url, os.environ).access.tls
    return tls_context(os.environ) if args.inference_host and tls is not None else None


def tls_context(environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return this server's certificate, for clients that reach Redis by TLS; raises UserError if there is none."""
    if not (certificate := environment.get(CERT)):
        raise UserError(
            f"{CERT}: is not set, but Redis is reached by TLS and --inference-host opens a port to other machines: "
            f"name this machine's certificate, and its key in {KEY}"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, environment.get(KEY) or None, password="")  # asks nobody
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"{CERT}: {certificate} and {KEY} cannot be used ({error})") from error
    return context
