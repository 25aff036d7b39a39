"""Read the file of --hosts: which machines play, and how many actors each.

# name of the host, how many actors; where its checkout is, and its CUDA devices, if they are not as here
node1     4
me@node2  8  folder=/data/rainbow  gpus=0,1
"""

import argparse
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.options.command_line import devices

OPTION = "--hosts"
ONE_SERVER = (  # a tunnel leads to one port
    "--hosts: actors reach one Redis server through ssh, no cluster and no Sentinels: name one server, without "
    "--redis-shards, or start the actors by hand"
)
_MOST_BYTES = 100_000
_MOST_HOSTS = 1000
# No name begins with a dash, which ssh would take for an option.
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.@:%-]{0,252}")
_COMMENT = re.compile(r"""^((?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|(?<=\S)#|[^#'"\\])*+)#.*""")  # outside of quotes and words
_EXPECTED = "expected HOST ACTORS [folder=PATH] [gpus=LIST]"


class Host(NamedTuple):
    """A machine that ssh reaches by its name."""

    name: str
    actors: int
    folder: str  # of the checkout; one that does not begin with / is below the user's home there
    gpus: tuple[int, ...]


def read(path: Path, folder: str) -> tuple[Host, ...]:
    """Return the hosts of a file, with `folder` where a line names none; raises UserError with every bad line."""
    hosts: list[Host] = []
    errors = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            host = _host(line, folder)
            if host and host.name in {other.name for other in hosts}:
                raise ValueError(f"{host.name} stands in a line before; add its actors there")
            hosts += [host] if host else []
        except ValueError as error:
            errors.append(f"{path}: line {number}: {error}")
    if not errors and not 1 <= len(hosts) <= _MOST_HOSTS:
        errors.append(f"{path}: expected 1 to {_MOST_HOSTS} hosts, one a line, got {len(hosts)}")
    if not errors and sum(host.actors for host in hosts) > MAX_ACTORS:
        errors.append(f"{path}: expected at most {MAX_ACTORS} actors, these are {sum(host.actors for host in hosts)}")
    if errors:
        raise UserError("\n".join(errors[:_MOST_HOSTS]))
    return tuple(hosts)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:  # cut within a letter, perhaps
            raise UserError(f"{OPTION}: {path}: expected a text of at most {_MOST_BYTES} bytes")
        text = data.decode()
    except OSError as error:
        raise UserError(f"{OPTION}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{OPTION}: {path}: expected a text in UTF-8") from error
    if "\0" in text:
        raise UserError(f"{OPTION}: {path}: expected a text without NUL")
    return text


def _host(line: str, folder: str) -> Host | None:
    """Return the host of a line, None for a comment; raises ValueError for any other."""
    words = shlex.split(_COMMENT.sub(r"\1", line))
    if not words:
        return None
    name, actors, *more = [*words, ""] if len(words) == 1 else words
    if not _NAME.fullmatch(name):
        raise ValueError(f"{_EXPECTED}; {name!r} is no name of a host")
    if not re.fullmatch("[0-9]{1,9}", actors) or not 1 <= int(actors) <= MAX_ACTORS:
        raise ValueError(f"{_EXPECTED}; how many actors is 1 to {MAX_ACTORS}, got {actors!r}")
    given: dict[str, str] = {}
    for word in more:
        key, equals, value = word.partition("=")
        if key not in ("folder", "gpus") or not equals or not value or key in given:
            raise ValueError(f"{_EXPECTED}, got {word!r}")
        given[key] = value
    place = re.sub("^~(/|$)", "", given.get("folder", folder)) or "."
    if not place.isprintable():
        raise ValueError(f"folder: expected a printable path, got {place!r}")
    try:
        gpus = devices(given["gpus"]) if "gpus" in given else ()
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"gpus: {error}") from error
    return Host(name, int(actors), place, gpus)
