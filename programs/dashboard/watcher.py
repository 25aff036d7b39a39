"""Looks at the run on the Redis server once a second, from a thread of its own: at its processes, and what actors see.

Nothing that happens to the server or the run ends the dashboard: what is wrong stands in the newest look.
"""

import heapq
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_error, one_line
from rainbow_iqn_apex.memory.broker.access import Server, hide_passwords
from rainbow_iqn_apex.memory.broker.connection import Aside, BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.broker.record import Owner, find_runs, read_run
from rainbow_iqn_apex.memory.broker.reports import ViewListener
from rainbow_iqn_apex.memory.broker.server_errors import explain_trouble
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.monitoring.overview import Overview, OverviewReader, Process
from rainbow_iqn_apex.monitoring.report import Event
from rainbow_iqn_apex.monitoring.view import MAX_BYTES, ViewError, decode

_INTERVAL_S = 1.0
_CHOICE_S = 10.0  # between looks at which runs there are, unless one is named
_MOST_RUNS = 1000  # of a server, among which to choose
_KEPT = 200  # events
_GONE_S = 60.0  # without a report of its learner, after which a run gives way to another one
_WATCHED_S = 5.0  # after a browser's last question for a view
_MOST_WATCHED = 8  # actors at a time

# What the Atari console's 18 actions are called; other environments' actions have numbers alone.
_ATARI = [
    *("no-op", "fire", "up", "right", "left", "down", "up right", "up left", "down right", "down left"),
    *("up fire", "right fire", "left fire", "down fire"),
    *("up right fire", "up left fire", "down right fire", "down left fire"),
]


class Happening(NamedTuple):
    """An event of a process, or of the run where `who` is empty."""

    at: float  # seconds since 1970
    who: str
    text: str
    is_alarm: bool


def happenings(who: str, events: Iterable[Event]) -> list[Happening]:
    """Return what happened to a process; equal for one event in a report and in a history."""
    return [Happening(round(event.at, 1), who, event.text, event.is_alarm) for event in events]


class Happenings:
    """Holds the newest events of a run, each once; all threads may call it.

    They are those that its processes report, and what changes between two looks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: set[Happening] = set()
        self._processes: dict[str, Process] = {}  # of the last look, by title
        self._name = ""  # of the run of the last look
        self._run_id = ""

    def note(self, text: str, who: str = "", *, is_alarm: bool = False) -> None:
        """Add an event of this moment."""
        self._add(who, [Event(time.time(), text, is_alarm)])

    def _add(self, who: str, events: Iterable[Event]) -> None:
        with self._lock:
            self._found |= set(happenings(who, events))
            if len(self._found) > 2 * _KEPT:
                self._found = set(heapq.nlargest(_KEPT, self._found))

    def newest(self, more: Iterable[Happening] = ()) -> list[Happening]:
        """Return the newest of these events and of `more`, each once, the newest first."""
        with self._lock:
            return heapq.nlargest(_KEPT, self._found | set(more))

    def see(self, overview: Overview) -> None:
        """Take the events of all reports, and compare the processes with those of the last look."""
        if overview.name != self._name:
            with self._lock:
                if self._name:  # else there are only events of the search for a run
                    self._found.clear()
            self._name = overview.name
            self._run_id = ""
        for process in overview.processes:
            if process.report:
                self._add(process.title, process.report.events)
        seen = {process.title: process for process in overview.processes}
        if overview.record.run_id == self._run_id:
            for title, process in seen.items():
                self._compare(self._processes.get(title), process)
        elif self._run_id:
            self.note("another run has begun under this name")
        self._run_id = overview.record.run_id
        self._processes = seen

    def _compare(self, before: Process | None, now: Process) -> None:
        if now.report is None:
            return
        if before is None or before.report is None:
            if now.role != "actor":  # these report it themselves
                self.note("joined", now.title)
            return
        if now.report.began != before.report.began:
            self.note(f"was started again, as process {now.report.process}", now.title)
            return
        if now.state == "silent" != before.state:
            self.note("died, or was cut off: it reports no more", now.title, is_alarm=True)
        elif now.state == "left" != before.state:
            self.note("left", now.title)
        elif before.state in ("silent", "left") and now.state not in ("silent", "left"):
            self.note("reports again", now.title)
        more = (now.value("redis/quarantined") or 0.0) - (before.value("redis/quarantined") or 0.0)
        if more > 0:
            self.note(f"quarantined {more:.0f} messages that it could not read", now.title, is_alarm=True)


class Views:
    """What actors see and think, as long as a browser asks for it: an actor makes no view without a listener."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}  # by channel, when a browser last asked for it, by the monotonic clock
        self._newest: dict[str, dict[str, Any]] = {}  # by channel
        self._problem = ""
        self._listener: ViewListener | None = None

    def ask(self, overview: Overview | None, actor: int, *, evaluation: bool) -> dict[str, Any]:
        """Return the newest view of an actor, or evaluation actor, and let it make more; any thread may call it."""
        if overview is None:
            return {"problem": "there is no run"}
        record = overview.record
        channel = Keys(overview.name, record.run_id, evaluation, record.shards).view(actor)
        watched = self._watched()
        if channel not in watched and len(watched) >= _MOST_WATCHED:
            return {"problem": f"{len(watched)} actors are watched already"}
        self._asked[channel] = time.monotonic()
        view = self._newest.get(channel)
        if view is None or self._problem:
            return {"problem": self._problem}
        count = len(view["actions"])
        is_atari = (overview.setting("env") or "atari") == "atari" and count == len(_ATARI)
        return {"problem": "", "view": view | {"names": _ATARI if is_atari else [*map(str, range(count))]}}

    def listen(self, client: Client) -> None:
        """Listen for a moment to the actors that are watched."""
        try:
            self._problem = self._listen(client)
        except BrokerError as error:
            self._miss(f"no views come from Redis ({one_line(error)})")
        except Exception as error:  # noqa: BLE001 - whatever a peer has sent may cost views, and no thread
            self._miss(f"the dashboard cannot read the views ({name_error(error)})")

    def _listen(self, client: Client) -> str:
        """Return what is wrong with what came."""
        self._asked = self._watched()
        channels = set(self._asked)
        if not channels:
            self.close()
            return ""
        self._newest = {channel: view for channel, view in self._newest.items() if channel in channels}
        if self._listener is None:
            self._listener = ViewListener(client)
        self._listener.listen(channels)
        problem = ""
        for channel, data in self._listener.next(MAX_BYTES + 1).items():
            try:
                self._newest[channel] = decode(data)
            except ViewError as error:
                self._newest.pop(channel, None)
                problem = str(error)
        return problem

    def _watched(self) -> dict[str, float]:
        now = time.monotonic()
        return {channel: at for channel, at in self._asked.copy().items() if now - at < _WATCHED_S}

    def _miss(self, why: str) -> None:
        self._problem = why
        self.close()

    def close(self) -> None:
        """Listen to nobody any more."""
        if self._listener:
            self._listener.close()
            self._listener = None
        self._newest = {}


@dataclass(frozen=True)
class LastOverview:
    """Holds what was last seen of the run."""

    overview: Overview | None  # the last one that was read, perhaps long ago
    at: float  # seconds since 1970, of that overview
    problem: str  # why there is no newer one; empty: there is none


class Watcher:
    """Holds the newest look, what has happened, and what actors see; use as a context manager."""

    def __init__(self, server: Server, name: str, folder: Path) -> None:
        self._server = server
        self._wanted = name
        self._folder = folder.resolve()
        self._left = threading.Event()
        self._client: Client | None = None  # until the server has answered once
        self._reader: OverviewReader | None = None
        self._name = ""
        self._next_choice = 0.0
        self.happenings = Happenings()
        self.views = Views()
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
            next_look = time.monotonic() + _INTERVAL_S
            try:
                self._look()
            except Stopped:
                break
            except (BrokerError, RunError, UserError) as error:
                self._miss(hide_passwords(explain_trouble(error)))
            except Exception as error:  # noqa: BLE001 - whatever a peer has written may cost looks, and no thread
                self._miss(f"the dashboard cannot look at it ({hide_passwords(name_error(error))})")
            if self._client:
                self.views.listen(self._client)
            self._left.wait(next_look - time.monotonic())
        self.views.close()
        if self._reader:
            self._reader.close()

    def _look(self) -> None:
        if self._client is None:
            self._client = open_servers(self._server, self._left)
        self._choose(self._client)
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
            self._name = name
            self._reader = OverviewReader(client.aside(), name)

    def _newest(self, plain: Aside) -> str:
        overview = self.last.overview
        goes_on = overview and not overview.record.over and overview.learner.age < _GONE_S
        kept = overview.name if overview and goes_on else ""
        best = ""
        most = (False, False, -1)
        with plain:
            for name in find_runs(plain).names[:_MOST_RUNS]:
                try:
                    record = read_run(plain, name)
                except RunError:  # damaged: another run may be whole
                    continue
                if record and (rank := (self._is_ours(record.owner), name == kept, record.written or 0)) > most:
                    best = name
                    most = rank
        return best

    def _is_ours(self, owner: Owner | None) -> bool:
        """Return whether a run's files are in the results folder, or in a folder below."""
        return owner is not None and owner.host == this_host() and Path(owner.folder).is_relative_to(self._folder)
