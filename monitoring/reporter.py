"""Writes a process's report into Redis every second, from a thread of its own.

with Reporter(store, "actor", 3, gather, events):
    ...                                   # the thread asks `gather` for the metrics
    events.note("resumed at T = 5000")    # and shows the newest events

Nothing here ends a run or keeps it waiting: a report that cannot be written is left out, and one line is printed.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.broker.connection import BrokerError, ResponseError
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.broker.reports import ReportStore, ViewsRefusedError
from rainbow_iqn_apex.memory.broker.server_errors import trouble_of
from rainbow_iqn_apex.monitoring.process import ProcessUse
from rainbow_iqn_apex.monitoring.report import MAX_BYTES, EventLog, Report, ReportError, Role, decode, encode
from rainbow_iqn_apex.monitoring.view import encode as encode_view
from rainbow_iqn_apex.monitoring.viewer import Viewer

INTERVAL_S = 1.0


@dataclass(frozen=True)
class Reading:
    """Metrics of a moment, by the names of `monitoring.metrics`."""

    values: dict[str, float]
    histograms: dict[str, list[float]] = field(default_factory=dict)


class Reporter:
    """Reports for one process; use as a context manager.

    `gather` is called in the reporter's thread while the process works: it may only read. `observers` get each report
    that was made, also those that Redis did not take. An actor's `viewer` is asked for a view a second while somebody
    watches.
    """

    def __init__(
        self, store: ReportStore, role: Role, number: int, gather: Callable[[], Reading], events: EventLog,
        *observers: Callable[[Report], None], viewer: Viewer | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._actor = None if role == "learner" else number
        self._gather = gather
        self._observers = observers
        self._viewer = viewer
        self._use = ProcessUse()
        self._events = events
        now = time.time()
        self._report = Report(role, number, this_host(), os.getpid(), now, now)
        self._restarts: float | None = None  # unknown until the predecessor's report was looked for
        self._refused = False  # whether a line was printed about reports that Redis does not take
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="reports", daemon=True)

    def __enter__(self) -> "Reporter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        self._store.close()

    def _keep(self) -> None:
        self._write(ended=False)  # at once: until then a predecessor's report says that the process is gone
        while not self._left.wait(INTERVAL_S):
            self._write(ended=False)
        self._write(ended=True)

    def _write(self, *, ended: bool) -> None:
        try:
            self._find_predecessor()
            report = self._make(ended=ended)
            for observe in self._observers:
                observe(report)
            self._send(encode(report))
        except ViewsRefusedError as error:
            self._viewer = None
            print(f"Not to be watched in dashboard.py: Redis takes no view ({error}), see docs/access.md", flush=True)
        except ResponseError as error:
            if not trouble_of(error):  # which passes, and the process itself prints lines about that
                self._print_once(f"Redis takes no report ({error})")
        except BrokerError:  # Redis is away: the process itself prints lines about that
            pass
        except Exception as error:  # noqa: BLE001 - a fault in here may cost reports, and no run
            self._print_once(f"a report failed ({name_error(error)})")

    def _send(self, report: bytes) -> None:
        if self._viewer is None or self._actor is None:
            self._store.write(self._actor, report)
            return
        view = self._viewer.take()
        if self._store.write_and_show(self._actor, report, encode_view(view) if view else b""):
            self._viewer.ask()

    def _make(self, *, ended: bool) -> Report:
        reading = self._gather()
        own = self._use.measure() | {"process/restarts": self._restarts or 0.0}
        return replace(
            self._report,
            written=time.time(),
            ended=ended,
            waits_for="" if ended else waiting.current(),
            values=own | reading.values,
            histograms=reading.histograms,
            events=self._events.newest(),
        )

    def _find_predecessor(self) -> None:
        """Count this start, if another process has reported under the same number before."""
        if self._restarts is not None:
            return
        try:
            found = self._store.read([self._actor], MAX_BYTES).get(self._actor)
            before = decode(found.data) if found else None
            self._restarts = (before.values.get("process/restarts", 0.0) + 1) if before else 0.0
        except (ReportError, ResponseError):  # a user that may not read may still write
            self._restarts = 0.0

    def _print_once(self, why: str) -> None:
        """Print one line in the life of a process."""
        if not self._refused:
            self._refused = True
            print(f"Not shown by run_status.py and dashboard.py: {why}", flush=True)
