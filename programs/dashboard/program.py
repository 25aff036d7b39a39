"""Run the dashboard: from its command line to Ctrl-C."""

import errno
import os
import secrets
import signal
import socket
import threading
from collections.abc import Sequence

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.text import reason
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.dashboard.options import PORT, PROGRAM, DashboardOptions, parse
from rainbow_iqn_apex.programs.process import reader


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
    from rainbow_iqn_apex.programs.dashboard.views import Views
    from rainbow_iqn_apex.programs.dashboard.watcher import Watcher

    token = secrets.token_urlsafe(32) if options.is_open else ""
    hosts = [] if options.is_open else ["localhost", "127.0.0.1", "::1", "[::1]", options.host]
    threading.Thread(target=_end_with_reader, name="reader", daemon=True).start()
    watcher = Watcher(server, options.run_name, options.path_to_results)
    with listener, watcher, Views(watcher) as views:
        app = application(Pages(watcher, Results(options.path_to_results), views), hosts, token)
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
