"""What a run's processes do, as their reports and the run's record in Redis show it, and what is wrong with it."""

from dataclasses import dataclass
from typing import Any

from memory.broker.connection import Aside, Client
from memory.broker.reports import RawReport, ReportStore
from memory.broker.run_status import RunStatus, read_run
from memory.broker.transport import Keys
from memory.limiter import MAX_ACTORS
from monitoring.report import MAX_BYTES, Report, ReportError, Role, decode, title_of

SILENT_S = 15.0  # without a new report, after which a process counts as gone
_NEAR = 0.9  # share of a limit
_STARVED = 0.9  # share of the time that a learner waits
_MOST_EVALUATING = 16  # evaluation actors that are found before they have finished an episode


@dataclass(frozen=True)
class Process:
    """A process of a run: one that has reported, or one that is expected and has not."""

    role: Role
    number: int
    report: Report | None
    age: float  # seconds since its last report

    @property
    def title(self) -> str:
        """The process's name, for people."""
        return title_of(self.role, self.number)

    @property
    def state(self) -> str:
        """One word: "missing", "left", "silent", "waiting" or "working"."""
        if self.report is None:
            return "missing"
        if self.report.ended:
            return "left"
        if self.age > SILENT_S:
            return "silent"
        return "waiting" if self.report.waits_for else "working"

    def value(self, name: str) -> float | None:
        """Return a metric, None if it was not reported; raises ValueError for an unknown name."""
        return self.report.value(name) if self.report else None


@dataclass(frozen=True)
class Overview:
    """A run at a moment."""

    name: str
    record: RunStatus
    processes: tuple[Process, ...]  # the learner, the actors, the evaluation actors
    alerts: tuple[str, ...]  # what a person should look at; empty: the run is healthy

    @property
    def learner(self) -> Process:
        """The learner."""
        return self.processes[0]

    @property
    def actors(self) -> tuple[Process, ...]:
        """The actors, without evaluation actors."""
        return tuple(process for process in self.processes if process.role == "actor")

    def setting(self, name: str) -> Any:
        """Return a setting that all processes share, None for one that the learner's release does not have."""
        return self.record.settings.get(name)


class OverviewReader:
    """Looks at a run again and again, on a connection that gives up at once; `close` it in the end."""

    def __init__(self, client: Client | Aside, name: str) -> None:
        """Open a connection beside a `Client`; use an `Aside`, which stays open, together with others."""
        self._is_own = isinstance(client, Client)
        self._aside = client.aside() if isinstance(client, Client) else client
        self._name = name

    def read(self) -> Overview | None:
        """Return the run as it is now, None if the server has none of this name.

        Raises BrokerError if the server does not answer, RunError for a damaged record.
        """
        record = read_run(self._aside, self._name)
        if record is None:
            return None
        groups = (Keys(self._name, record.run_id, evaluation) for evaluation in (False, True))
        training, evaluating = (ReportStore(self._aside, keys) for keys in groups)
        expected = range(_expected(record))
        actors = sorted({*expected} | training.registered())
        found = training.read([None, *actors], MAX_BYTES)
        evaluated = evaluating.read(sorted({*range(_MOST_EVALUATING)} | evaluating.registered()), MAX_BYTES)
        processes = (
            _process("learner", 0, found.get(None)),
            *(_process("actor", actor, found.get(actor)) for actor in actors if actor in expected or actor in found),
            *(_process("evaluation actor", actor or 0, raw) for actor, raw in evaluated.items()),
        )
        return Overview(self._name, record, processes, tuple(_alerts(record, processes)))

    def close(self) -> None:
        """Close the connection that was opened for this reader."""
        if self._is_own:
            self._aside.close()


def _expected(record: RunStatus) -> int:
    """Return how many actors the run should have."""
    if record.crews:
        return record.crews[-1].nb_actor
    wanted = record.settings.get("nb_actor")
    return min(wanted, MAX_ACTORS) if type(wanted) is int and wanted > 0 else 0


def _process(role: Role, number: int, raw: RawReport | None) -> Process:
    """Return a process; a report that is damaged, or another process's, counts as none."""
    if raw is None:
        return Process(role, number, None, 0.0)
    try:
        report = decode(raw.data)
    except ReportError:
        return Process(role, number, None, raw.age)
    own = (report.role, report.number) == (role, number)
    return Process(role, number, report if own else None, raw.age)


def _alerts(record: RunStatus, processes: tuple[Process, ...]) -> list[str]:
    """Return what a person should look at."""
    learner = processes[0]
    alerts = [event.text for event in (learner.report.events if learner.report else ()) if event.is_alarm]
    if record.over:
        return alerts
    for process in processes:
        if process.state == "missing":
            alerts.append(f"{process.title} has not reported")
        elif process.state == "silent":
            alerts.append(f"{process.title} has been silent for {process.age:.0f} s")
        elif process.state == "left" and process.role != "evaluation actor":
            alerts.append(f"{process.title} has left")
    if (learner.value("share/wait") or 0.0) > _STARVED and learner.value("train/n_updates"):
        waits_for = learner.report.waits_for if learner.report else ""
        alerts.append(f"the learner is starved: it waits for {waits_for or 'experience'}")
    used, limit = learner.value("redis/used_memory"), learner.value("redis/max_memory")
    if used and limit and used > _NEAR * limit:
        alerts.append(f"Redis uses {used / limit:.0%} of its maxmemory")
    return alerts
