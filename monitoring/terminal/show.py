"""Shows a server's runs: as pictures on a terminal, as aligned text in a pipe, as JSON for programs."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import counted, one_line
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client, ResponseError
from rainbow_iqn_apex.memory.broker.record import Runs, find_runs
from rainbow_iqn_apex.memory.broker.server_errors import explain_trouble, trouble_of
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.monitoring.overview import Overview, OverviewReader
from rainbow_iqn_apex.monitoring.terminal import screen
from rainbow_iqn_apex.monitoring.terminal.pictures import processes_table
from rainbow_iqn_apex.monitoring.view_model import COLUMNS, alert_lines, content_of, headline, lines_of, serving_lines

_INTERVAL_S = 1.0
_MOST_RUNS = 50  # of a server
_MOST_PROCESSES = 1000  # of a run in a table on a terminal


@dataclass(frozen=True)
class RunState:
    """A run at a moment; without an overview the failure says why there is none."""

    name: str
    overview: Overview | None
    failure: str = ""

    @property
    def healthy(self) -> bool:
        """Whether the run needs no person's look."""
        return self.overview is not None and not self.overview.alerts

    def content(self) -> dict[str, Any]:
        """Return the run as JSON has it."""
        return {"name": self.name, "healthy": self.healthy, "failure": self.failure} | content_of(self.overview)


@dataclass(frozen=True)
class ServerState:
    """A server at a moment."""

    server: str
    at: float  # seconds since 1970
    runs: tuple[RunState, ...] = ()
    failure: str = ""  # empty: the server answers
    note: str = ""  # empty: all its runs are here

    @property
    def healthy(self) -> bool:
        """Whether server and runs need no person's look."""
        return not self.failure and all(run.healthy for run in self.runs)

    def content(self) -> dict[str, Any]:
        """Return the look as JSON has it."""
        content = {"at": self.at, "server": self.server, "healthy": self.healthy, "failure": self.failure}
        return content | {"note": self.note, "runs": [run.content() for run in self.runs]}


class ServerReader:
    """Looks at a server, on a connection that gives up at once; `close` it in the end."""

    def __init__(self, client: Client, server: str, run: str) -> None:
        """`run` is the name of the only run to look at; empty: all."""
        self._aside = client.aside()
        self._server = server
        self._run = run

    def look(self) -> ServerState:
        """Return the server as it is now."""
        at = time.time()
        runs = list[RunState]()
        try:
            found = Runs([self._run], 0) if self._run else find_runs(self._aside)
            for name in found.names[:_MOST_RUNS]:
                if run := self._look_at(name):
                    runs.append(run)
        except BrokerError as error:
            does = "refuses" if isinstance(error, ResponseError) else "does not answer"
            failure = explain_trouble(error) if trouble_of(error) else f"the Redis server {does}: {error}"
            return ServerState(self._server, at, tuple(runs), one_line(failure))
        return ServerState(self._server, at, tuple(runs), note=_note(found))

    def _look_at(self, name: str) -> RunState | None:
        """Return a run; None if it was deleted just now. Raises BrokerError if the server does not answer."""
        try:
            overview = OverviewReader(self._aside, name).read()
        except (ResponseError, RunError) as error:
            return RunState(name, None, one_line(explain_trouble(error)))
        if overview is None and not self._run:
            return None
        return RunState(name, overview, "" if overview else "the server has no run of this name")

    def close(self) -> None:
        """Close the connection."""
        self._aside.close()


def _note(found: Runs) -> str:
    """Return what of a server is not shown; empty if all is."""
    notes = []
    if (more := len(found.names) - _MOST_RUNS) > 0:
        notes.append(f"{more} more runs are not shown; --run-name shows one")
    if found.left_out:
        notes.append(
            f"{counted(found.left_out, 'record')} not shown, of names that no run may have: another client has written "
            "them (docs/access.md)"
        )
    return "; ".join(notes)


def show_runs(host: str, port: int, url: str, run: str, *, watch: bool, as_json: bool) -> int:
    """Show the runs once, or each second until Ctrl-C; return the exit code: 0 all are healthy, 1 something is wrong.

    Host, port and URL name the server as the options do; `run` names the only run to show, empty: all. Raises UserError
    if the server does not answer.
    """
    code = 1
    server = find_server(host, port, url, os.environ)
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
            yield lambda state: _draw_whole(drawn, picture_of(state))
    else:
        yield lambda state: Console(highlight=False).print(picture_of(state))


def _draw_whole(drawn: screen.Screen, picture: RenderableType) -> None:
    """Let Ctrl-C wait until a picture is shown: one that is half drawn cannot be removed."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        drawn.draw(picture)
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def text_of(state: ServerState) -> list[str]:
    """Return the lines of a state for a pipe; an empty line follows each run."""
    lines = [line for run in state.runs for line in [*_run_lines(run), ""]]
    if state.failure:
        lines.append(f"! {state.server}: {state.failure}")
    lines += [state.note] if state.note else []
    return lines or [f"no run on {state.server}"]


def _run_lines(run: RunState) -> list[str]:
    if run.overview is None:
        return [f"run {run.name}", f"! {run.failure}"]
    rows = [COLUMNS, *(line.cells() for line in lines_of(run.overview))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    table = [text.rstrip() for text in texts]
    return [headline(run.overview), *table, *serving_lines(run.overview), *alert_lines(run.overview)]


def picture_of(state: ServerState) -> RenderableType:
    """Return the picture of a state for a terminal."""
    parts = [part for run in state.runs for part in _run_parts(run)]
    if state.failure:
        parts.append(Text(f"! {state.server}: {state.failure}", style="bold red"))
    parts += [Text(state.note)] if state.note else []
    return Group(*(parts or [Text(f"no run on {state.server}")]))


def _run_parts(run: RunState) -> list[RenderableType]:
    if run.overview is None:
        return [Text(f"run {run.name}", style="bold"), Text(f"! {run.failure}", style="bold red"), Text("")]
    alerts = [Text(line, style="bold red") for line in alert_lines(run.overview)]
    table = processes_table(run.overview, _MOST_PROCESSES)
    return [Text(headline(run.overview), style="bold"), table, *alerts, Text("")]
