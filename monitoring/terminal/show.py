"""Shows a server's runs: as pictures on a terminal, as aligned text in a pipe, as JSON for programs."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from rich.console import Console, Group, RenderableType
from rich.text import Text

from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.monitoring.overview import Overview
from rainbow_iqn_apex.monitoring.terminal import screen
from rainbow_iqn_apex.monitoring.terminal.pictures import processes_table
from rainbow_iqn_apex.monitoring.terminal.server_reader import RunState, ServerReader, ServerState
from rainbow_iqn_apex.monitoring.terminal.status import (
    COLUMNS,
    alert_lines,
    cells,
    headline,
    line_of,
    newest_version,
    serving_lines,
)

_INTERVAL_S = 1.0
_MOST_PROCESSES = 1000  # of a run in a table on a terminal
_NONE = "no run"


def show_runs(host: str, port: int, url: str, run: str, *, watch: bool, as_json: bool) -> int:
    """Show the runs once, or each second until Ctrl-C; return the exit code: 0 all are healthy, 1 something is wrong.

    Host, port and URL name the server as the options do; `run` names the only run to show, empty: all. Raises UserError
    if the server does not answer.
    """
    code, server = 1, find_server(host, port, url, os.environ)
    with (
        suppress(KeyboardInterrupt),
        closing(ServerReader(open_servers(server), f"{server.host}:{server.port}", run)) as reader,
        _display(watch, as_json) as show,
    ):
        while True:
            state = reader.look()
            code = 0 if state.healthy else 1
            show(state)
            if not watch:
                break
            time.sleep(_INTERVAL_S)
    return code


@contextmanager
def _display(watch: bool, as_json: bool) -> Iterator[Callable[[ServerState], None]]:
    """Yield what shows a state."""
    if as_json:
        yield lambda state: print(json.dumps(state.content(), allow_nan=False), flush=True)
    elif not screen.is_possible():
        yield lambda state: print("\n".join(text_of(state)), flush=True)
    elif watch:
        with closing(screen.Screen()) as drawn:
            yield _whole(lambda state: drawn.draw(picture_of(state)))
    else:
        yield lambda state: Console(highlight=False).print(picture_of(state))


def _whole(show: Callable[[ServerState], None]) -> Callable[[ServerState], None]:
    """Let Ctrl-C wait until a state is shown: a picture that is half drawn cannot be removed."""

    def shown(state: ServerState) -> None:
        pressed: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
        try:
            show(state)
        finally:
            signal.signal(signal.SIGINT, before)
        if pressed:
            raise KeyboardInterrupt

    return shown


def text_of(state: ServerState) -> list[str]:
    """Return the lines of a state for a pipe; an empty line follows each run."""
    lines = [line for run in state.runs for line in [*_run_lines(run), ""]]
    if state.failure:
        lines.append(f"! {state.server}: {state.failure}")
    lines += [state.note] if state.note else []
    return lines or [f"{_NONE} on {state.server}"]


def _run_lines(run: RunState) -> list[str]:
    if run.overview is None:
        return [f"run {run.name}", f"! {run.failure}"]
    overview = run.overview
    return [headline(overview), *_table(overview), *serving_lines(overview), *alert_lines(overview)]


def _table(overview: Overview) -> list[str]:
    newest = newest_version(overview)
    rows = [COLUMNS, *(cells(line_of(process, newest)) for process in overview.processes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [text.rstrip() for text in texts]


def picture_of(state: ServerState) -> RenderableType:
    """Return the picture of a state for a terminal."""
    parts = [part for run in state.runs for part in _run_parts(run)]
    if state.failure:
        parts.append(Text(f"! {state.server}: {state.failure}", style="bold red"))
    parts += [Text(state.note)] if state.note else []
    return Group(*(parts or [Text(f"{_NONE} on {state.server}")]))


def _run_parts(run: RunState) -> list[RenderableType]:
    if run.overview is None:
        return [Text(f"run {run.name}", style="bold"), Text(f"! {run.failure}", style="bold red"), Text("")]
    alerts = [Text(line, style="bold red") for line in alert_lines(run.overview)]
    table = processes_table(run.overview, _MOST_PROCESSES)
    return [Text(headline(run.overview), style="bold"), table, *alerts, Text("")]
