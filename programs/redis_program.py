"""Run the Redis server that learner and actors need, in the foreground until Ctrl-C; installed, apex-redis does.

It keeps its file in the folder results/ of the present folder. The start script has a server of its own.
"""

import os
import sys
from pathlib import Path

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker.access import DEFAULT_PORT
from rainbow_iqn_apex.memory.broker.server_version import holes_of
from rainbow_iqn_apex.options import command_line, completion, version
from rainbow_iqn_apex.options.parser import Parser, port
from rainbow_iqn_apex.programs import stopping
from rainbow_iqn_apex.programs.server_program import CONFIGURATION, find_program, settings_of

_PROGRAM = "apex-redis"
_RESULTS = Path("results")


def main() -> None:
    """Become the server; exit code 2 for a wrong command, 1 if there is no server."""
    stopping.end_at_once()
    parser = Parser(_PROGRAM, description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--port-redis", "-p_red", type=port, default=DEFAULT_PORT, metavar="PORT", help=f"its port [{DEFAULT_PORT}]"
    )
    completion.offer(parser)
    version.offer(parser)
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
