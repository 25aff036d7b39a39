"""Run the dashboard: from its command line to Ctrl-C."""

import errno
import ipaddress
import os
import secrets
import signal
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import bounds_errors, option
from rainbow_iqn_apex.common.text import reason
from rainbow_iqn_apex.memory.broker.access import Server, find_server
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.run_options import RedisOptions, named_twice, run_name_errors, server_errors
from rainbow_iqn_apex.programs.process import reader

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
    groups = (PageOptions, RedisOptions)
    program = command_line.name_of(PROGRAM)
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


def run(argv: Sequence[str], description: str) -> None:
    """Serve the page until the user stops it; exit code 2 for a wrong command."""
    try:
        options, server = parse(argv, description)
        listener = listen(options)
    except UserError as error:
        command_line.fail(command_line.name_of(PROGRAM), error)
    # What follows takes a second, and --help and mistakes shall not.
    from rainbow_iqn_apex.programs.dashboard.results import Results
    from rainbow_iqn_apex.programs.dashboard.server import Pages, application, web_server
    from rainbow_iqn_apex.programs.dashboard.watcher import Watcher

    token = secrets.token_urlsafe(32) if options.is_open else ""
    hosts = [] if options.is_open else ["localhost", "127.0.0.1", "::1", "[::1]", options.host]
    threading.Thread(target=_end_with_reader, name="reader", daemon=True).start()
    watcher = Watcher(server, options.run_name, options.path_to_results)
    with listener, watcher:
        app = application(Pages(watcher, Results(options.path_to_results)), hosts, token)
        web = web_server(app)
        print(f"Dashboard: {address(listener, token)}", flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops in good order, and then raises them again
            signal.signal(number, lambda *_: None)
        web.run(sockets=[listener])


def _end_with_reader() -> None:
    """Stop the process when its lines are not read any more, such as a start script that was killed."""
    reader().poll()
    os.kill(os.getpid(), signal.SIGTERM)


def listen(options: DashboardOptions) -> socket.socket:
    """Open the port; raises UserError for an address that this machine does not have, or a port that is taken."""
    foreign = f"--host: expected an address of this machine, got {options.host!r}"
    try:
        family, *_, place = socket.getaddrinfo(options.host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"{foreign} ({reason(error)})") from error
    ports = [PORT, 0] if options.port == PORT else [options.port]
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    for port in ports:
        try:
            return socket.create_server((place[0], port, *place[2:]), family=family, dualstack_ipv6=both)
        except OSError as error:
            failed = os.strerror(error.errno or 0)
            if error.errno == errno.EADDRNOTAVAIL:
                raise UserError(f"{foreign} ({failed})") from error
    raise UserError(
        f"--host, --port: cannot listen at {options.host} port {ports[-1]} ({failed}); choose another port, "
        "or 0 for any that is free"
    )


def address(listener: socket.socket, token: str) -> str:
    """Return what to open in a browser."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}/{f'?token={token}' if token else ''}"
