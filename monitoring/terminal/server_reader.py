"""Looks at all runs of a Redis server, or at one of them, again and again."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import counted, one_line
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client, ResponseError
from rainbow_iqn_apex.memory.broker.record import Runs, find_runs
from rainbow_iqn_apex.memory.broker.server_errors import explain_trouble, trouble_of
from rainbow_iqn_apex.monitoring.overview import Overview, OverviewReader
from rainbow_iqn_apex.monitoring.terminal.status import line_of, newest_version

_MOST_RUNS = 50  # of a server


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
        content: dict[str, Any] = {"name": self.name, "healthy": self.healthy, "failure": self.failure}
        if self.overview is None:
            return content | {"status": None, "t_learner": None, "t_actors": None, "alerts": [], "processes": []}
        record, newest = self.overview.record, newest_version(self.overview)
        processes = [
            asdict(line_of(process, newest)) | {"metrics": process.report.values if process.report else {}}
            for process in self.overview.processes
        ]
        counts = {"status": self.overview.status, "t_learner": record.t_learner, "t_actors": record.t_actors}
        return content | counts | {"alerts": list(self.overview.alerts), "processes": processes}


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
        content["note"] = self.note
        return content | {"runs": [run.content() for run in self.runs]}


class ServerReader:
    """Looks at a server, on a connection that gives up at once; `close` it in the end."""

    def __init__(self, client: Client, server: str, run: str) -> None:
        """`run` is the name of the only run to look at; empty: all."""
        self._aside = client.aside()
        self._server = server
        self._run = run

    def look(self) -> ServerState:
        """Return the server as it is now."""
        at, runs = time.time(), list[RunState]()
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
    more, notes = len(found.names) - _MOST_RUNS, []
    if more > 0:
        notes.append(f"{more} more runs are not shown; --run-name shows one")
    if found.left_out:
        notes.append(
            f"{counted(found.left_out, 'record')} not shown, of names that no run may have: another client has written "
            "them (docs/access.md)"
        )
    return "; ".join(notes)
