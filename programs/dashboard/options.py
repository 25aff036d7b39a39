"""The options of the dashboard, and their mistakes, as the launchers have them."""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import bounds_errors, option
from rainbow_iqn_apex.memory.broker.access import Server, find_server
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.run_options import RedisOptions, named_twice, run_name_errors, server_errors

PROGRAM = "dashboard.py"
PORT = 8050


@dataclass(frozen=True)
class PageOptions:
    """page"""

    path_to_results: Path = option(Path("results"), "results folder of the run, and of others to compare it with")
    run_name: str = option("", "run on the Redis server [default: the run of this folder, else the newest]")
    host: str = option(
        "127.0.0.1", "address to listen at; one that other machines reach asks them for the token that is printed"
    )
    port: int = option(
        PORT, f"port to listen at, 0: any that is free; {PORT} gives way if another program has it", least=0, most=65535
    )


@dataclass(frozen=True)
class DashboardOptions(RedisOptions, PageOptions):
    """Holds all of them."""

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach the page."""
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"


def parse(argv: Sequence[str], description: str) -> tuple[DashboardOptions, Server]:
    """Read a command line; --help exits with 0. Raises UserError with every bad setting, one a line."""
    groups, program = (PageOptions, RedisOptions), command_line.name_of(PROGRAM)
    command_line.answer_version(program, argv)
    if command_line.asks_for_completion(argv):
        command_line.print_completion(groups, program, {})
    if command_line.asks_for_help(argv):
        command_line.print_help(groups, program, description, {})
    values, errors = command_line.read(groups, argv)
    options = DashboardOptions(**values)
    errors += bounds_errors(options) + server_errors(options.host_redis, options.redis_url)
    errors += named_twice(options, values.keys()) + (run_name_errors(options.run_name) if options.run_name else [])
    errors += _folder_errors(options.path_to_results, is_given="path_to_results" in values)
    if errors:
        raise UserError("\n".join(errors))
    return options, find_server(options.host_redis, options.port_redis, options.redis_url, os.environ)


def _folder_errors(folder: Path, *, is_given: bool) -> list[str]:
    """Return what is wrong with the results folder; the default one need not be there, as Redis may have a run."""
    try:
        if folder.exists() and not folder.is_dir():
            return [f"--path-to-results: expected a folder, got the file {folder}"]
        if is_given and not folder.exists():
            return [f"--path-to-results: no such folder: {folder}; name the results folder of a run"]
    except OSError as error:
        return [f"--path-to-results: {folder} cannot be looked at ({error.strerror})"]
    return []
