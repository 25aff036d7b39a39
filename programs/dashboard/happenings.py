"""What has happened in a run: what its processes report, its history holds, and what changes between two looks."""

import heapq
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

from rainbow_iqn_apex.monitoring.overview import Overview, Process
from rainbow_iqn_apex.monitoring.report import Event

_KEPT = 200


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
    """Holds the newest events, each once; all threads may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: set[Happening] = set()
        self._processes: dict[str, Process] = {}  # of the last look, by title
        self._name = self._run_id = ""  # of the run of the last look

    def note(self, text: str, who: str = "", *, is_alarm: bool = False) -> None:
        """Add an event of this moment."""
        self.add(who, [Event(time.time(), text, is_alarm)])

    def add(self, who: str, events: Iterable[Event]) -> None:
        """Add events of a process that may be known already."""
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
            self._forget(overview.name)
        for process in overview.processes:
            if process.report:
                self.add(process.title, process.report.events)
        seen = {process.title: process for process in overview.processes}
        if overview.record.run_id == self._run_id:
            for title, process in seen.items():
                self._compare(self._processes.get(title), process)
        elif self._run_id:
            self.note("another run has begun under this name")
        self._run_id, self._processes = overview.record.run_id, seen

    def _forget(self, name: str) -> None:
        with self._lock:
            if self._name:  # else there are only events of the search for a run
                self._found.clear()
        self._name, self._run_id, self._processes = name, "", {}

    def _compare(self, before: Process | None, now: Process) -> None:
        if now.report is None:
            return
        was = before.state if before else "missing"
        if before is None or before.report is None:
            if now.role != "actor":  # these report it themselves
                self.note("joined", now.title)
        elif now.report.began != before.report.began:
            self.note(f"was started again, as process {now.report.process}", now.title)
        elif now.state == "silent" != was:
            self.note("died, or was cut off: it reports no more", now.title, is_alarm=True)
        elif now.state == "left" != was:
            self.note("left", now.title)
        elif was in ("silent", "left") and now.state not in ("silent", "left"):
            self.note("reports again", now.title)
        self._count_quarantined(before, now)

    def _count_quarantined(self, before: Process | None, now: Process) -> None:
        if before is None or before.report is None or not now.report or before.report.began != now.report.began:
            return
        more = (now.value("redis/quarantined") or 0.0) - (before.value("redis/quarantined") or 0.0)
        if more > 0:
            self.note(f"quarantined {more:.0f} messages that it could not read", now.title, is_alarm=True)
