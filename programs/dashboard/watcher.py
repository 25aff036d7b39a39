"""Looks at the run on the Redis server once a second, from a thread of its own.

Nothing that happens to the server or the run ends the dashboard: what is wrong stands in the newest look.
"""

import threading
import time
from dataclasses import dataclass
from pathlib import Path

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.broker.access import Server, hide_passwords
from rainbow_iqn_apex.memory.broker.connection import Aside, BrokerError, Client
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.broker.record import Owner, find_runs, read_run
from rainbow_iqn_apex.memory.broker.server_errors import explain_trouble
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.monitoring.overview import Overview, OverviewReader
from rainbow_iqn_apex.programs.dashboard.happenings import Happenings

_INTERVAL_S = 1.0
_CHOICE_S = 10.0  # between looks at which runs there are, unless one is named
_MOST_RUNS = 1000  # of a server, among which to choose
_GONE_S = 60.0  # without a report of its learner, after which a run gives way to another one


@dataclass(frozen=True)
class LastOverview:
    """Holds what was last seen of the run."""

    overview: Overview | None  # the last one that was read, perhaps long ago
    at: float  # seconds since 1970, of that overview
    problem: str  # why there is no newer one; empty: there is none


class Watcher:
    """Holds the newest look and what has happened; use as a context manager."""

    def __init__(self, server: Server, name: str, folder: Path) -> None:
        self._server = server
        self._wanted = name
        self._folder = folder.resolve()
        self._left = threading.Event()
        self.client: Client | None = None  # until the server has answered once
        self._reader: OverviewReader | None = None
        self._name = ""
        self._next_choice = 0.0
        self.happenings = Happenings()
        self.last = LastOverview(None, 0.0, "connecting to the Redis server")
        self._thread = threading.Thread(target=self._keep, name="watcher", daemon=True)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._left.is_set():
            try:
                self._look()
            except Stopped:
                break
            except (BrokerError, RunError, UserError) as error:
                self._miss(hide_passwords(explain_trouble(error)))
            except Exception as error:  # noqa: BLE001 - whatever a peer has written may cost looks, and no thread
                self._miss(f"the dashboard cannot look at it ({hide_passwords(name_error(error))})")
            self._left.wait(_INTERVAL_S)
        if self._reader:
            self._reader.close()

    def _look(self) -> None:
        if self.client is None:
            self.client = open_servers(self._server, self._left)
        self._choose(self.client)
        overview = self._reader.read() if self._reader else None
        if overview is None:
            name = f"run {self._name!r}" if self._name else "run"
            self._miss(f"the Redis server holds no {name}")
            return
        if self.last.problem and self.last.overview:
            self.happenings.note("the Redis server answers again")
        self.happenings.see(overview)
        self.last = LastOverview(overview, time.time(), "")

    def _miss(self, why: str) -> None:
        if not self.last.problem:
            self.happenings.note(why, is_alarm=True)
        self.last = LastOverview(self.last.overview, self.last.at, why)

    def _choose(self, client: Client) -> None:
        """Look at the run that is wanted, else at one of this results folder, else at any.

        Of several, the run that is looked at stays as long as it goes on, else the newest is chosen.
        """
        if self._reader and (self._wanted or time.monotonic() < self._next_choice):
            return
        self._next_choice = time.monotonic() + _CHOICE_S
        name = self._wanted or self._newest(client.aside())
        if name and (name != self._name or not self._reader):
            if self._reader:
                self._reader.close()
            self._name, self._reader = name, OverviewReader(client.aside(), name)

    def _newest(self, plain: Aside) -> str:
        best, most = "", (False, False, -1)
        kept = self._goes_on()
        with plain:
            for name in find_runs(plain).names[:_MOST_RUNS]:
                try:
                    record = read_run(plain, name)
                except RunError:  # damaged: another run may be whole
                    continue
                if record:
                    rank = (self._is_ours(record.owner), name == kept, record.written or 0)
                    best, most = max((best, most), (name, rank), key=lambda pair: pair[1])
        return best

    def _goes_on(self) -> str:
        """Return the run that is looked at, unless its learner has left or is gone."""
        overview = self.last.overview
        goes_on = overview and not overview.record.over and overview.learner.age < _GONE_S
        return overview.name if overview and goes_on else ""

    def _is_ours(self, owner: Owner | None) -> bool:
        """Return whether a run's files are in the results folder, or in a folder below."""
        return owner is not None and owner.host == this_host() and Path(owner.folder).is_relative_to(self._folder)
