"""Show what the processes of all runs on a Redis server do, and what is wrong with them.

python run_status.py                 # once
python run_status.py --watch         # again each second, until Ctrl-C
python run_status.py --json          # for programs

Exit codes: 0 all runs are healthy, 1 something is wrong or the server answers no more, 2 bad command. With --watch it
is that of the last look. A run that was killed, and whose learner has written nothing for 24 hours, is shown as
abandoned and counts as healthy. Within 30 seconds after the learner's start no process counts as missing.
"""

import argparse
import signal
import sys

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.command_line import Parser, fail, port, unknown
from rainbow_iqn_apex.options.run_options import RedisOptions, named_twice, run_name_errors, server_errors
from rainbow_iqn_apex.programs.process import checked_output, end_at_once

_JSON = """
JSON, a line a look: {"at": seconds since 1970, "server", "healthy": true or false, "failure": text, "note": text,
"runs": [...]}. A run: {"name", "healthy", "failure", "status": starting, running, stopped, finished or abandoned,
"t_learner" and "t_actors" in agent steps, "alerts": [text, ...], "processes": [...]}. A process: {"role": learner,
actor, evaluation actor or inference server, "number", "state": starting, missing, left, silent, lockstep, waiting or
working, "host", "pid", "seen": seconds since its last report, "rate" (of a server none), "rate_unit": updates/s or
steps/s, "version" of the weights, "lag": versions behind the newest, "unread": messages that the learner has not read,
"memory": bytes, "waits_for": text, "metrics": {name: number}}, with the names that monitoring/metrics.py explains, such
as inference/clients. What is not known is null.
"""


def main() -> None:
    """Read the command line and show the runs."""
    end_at_once()
    parser = _parser()
    with checked_output(parser.prog):
        _run(parser)


def _run(parser: argparse.ArgumentParser) -> None:
    try:
        given, others = parser.parse_known_args()
        if others:
            flags = [flag for action in parser._actions for flag in action.option_strings]
            raise UserError("\n".join(unknown(text, flags) for text in others))
        _show(given)
    except UserError as error:
        fail(parser.prog, error)


def _show(given: argparse.Namespace) -> None:
    from rainbow_iqn_apex.monitoring.terminal.show import show_runs  # after --help, which shall not wait for it

    signal.signal(signal.SIGINT, signal.default_int_handler)
    named = [name for name in ("host_redis", "port_redis") if getattr(given, name)]
    options = RedisOptions(redis_url=given.redis_url, **{name: getattr(given, name) for name in named})
    errors = [*server_errors(options.host_redis, options.redis_url), *named_twice(options, named)]
    if errors := [*errors, *(run_name_errors(given.run_name) if given.run_name else [])]:
        raise UserError("\n".join(errors))
    server = options.host_redis, options.port_redis, options.redis_url
    sys.exit(show_runs(*server, given.run_name, watch=given.watch, as_json=given.json))


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = Parser(description=__doc__ or "", epilog=_JSON, formatter_class=layout, allow_abbrev=False)
    parser.add_argument("--run-name", default="", metavar="NAME", help="show this run alone")
    parser.add_argument("--watch", action="store_true", help="show the runs again each second")
    parser.add_argument("--json", action="store_true", help="write a JSON object a look")
    parser.add_argument("--host-redis", default="", metavar="HOST", help="machine of the Redis server [localhost]")
    parser.add_argument("--port-redis", "-p_red", type=port, default=0, metavar="PORT", help="its port [6379]")
    parser.add_argument("--redis-url", default="", metavar="URL", help="in the place of these two, see docs/access.md")
    command_line.add_completion_and_version(parser)
    return parser


if __name__ == "__main__":
    main()
