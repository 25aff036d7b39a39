"""The sockets on which an inference server listens."""

import errno
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common.errors import UserError

CERT, KEY = "INFERENCE_CERT", "INFERENCE_KEY"
_BACKLOG = 512
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
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rainbow.inference.", dir=place))
        path = Path(folder) / "socket"
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(os.fspath(path))
        sockets = [local]
        if host:
            sockets.append(stack.enter_context(_open(host, port)))
        for each in sockets:
            each.listen(_BACKLOG)
        yield Listening(sockets, os.fspath(path), sockets[1].getsockname()[1] if host else 0)


def _open(host: str, port: int) -> socket.socket:
    """Listen on the addresses of a host's name; on all of this machine, if the name is another network's."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"--inference-host: {host!r} cannot be found ({error.strerror})") from error
    link = socket.socket(family, kind)
    try:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            link.bind(place)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            link.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
    except OSError as error:
        link.close()
        option = "--inference-port" if port else "--inference-host"
        raise UserError(f"{option}: cannot listen on {host}:{port} ({error.strerror})") from error
    return link


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
