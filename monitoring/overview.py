"""What a run's processes do, as their reports and the run's record in Redis show it, and what is wrong with it."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from rainbow_iqn_apex.common.waiting import FOR_ROUND, FOR_WEIGHTS
from rainbow_iqn_apex.memory.broker.connection import Aside
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run
from rainbow_iqn_apex.memory.broker.reports import RawReport, ReportStore
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.monitoring.report import MAX_BYTES, Report, ReportError, Role, decode, title_of

STARTS_S = 30.0  # from the learner's start, within which the others need not have reported
SILENT_S = 15.0  # without a new report, after which a process counts as gone
_NEAR = 0.9  # share of a limit
_STARVED = 0.9  # share of the time that a learner waits
_ABANDONED_S = 24 * 3600.0  # without a new record or report, as which these are kept
_MOST_NAMED = 4  # processes in a line
_MOST_EVALUATING = 16  # evaluation actors that are found before they have finished an episode


State = Literal["starting", "missing", "left", "silent", "lockstep", "waiting", "working"]


@dataclass(frozen=True)
class Process:
    """A process of a run: one that has reported, or one that is expected and has not."""

    role: Role
    number: int
    state: State  # starting: the run has just been started; lockstep: takes turns with others
    report: Report | None = None
    age: float = 0.0  # seconds since its last report

    @property
    def title(self) -> str:
        """The process's name, for people."""
        return title_of(self.role, self.number)

    def value(self, name: str) -> float | None:
        """Return a metric, None if it was not reported; raises ValueError for an unknown name."""
        return self.report.value(name) if self.report else None


@dataclass(frozen=True)
class Overview:
    """A run at a moment."""

    name: str
    record: RunStatus
    processes: tuple[Process, ...]  # the learner, actors, evaluation actors, inference servers
    alerts: tuple[str, ...]  # what a person should look at; empty: the run is healthy
    status: str  # the record's, or abandoned: its learner has gone long ago, and not in good order

    @property
    def learner(self) -> Process:
        """The learner."""
        return self.processes[0]

    def setting(self, name: str) -> Any:
        """Return a setting that all processes share, None for one that the learner's release does not have."""
        return self.record.settings.get(name)


class OverviewReader:
    """Looks at a run again and again, on a connection that gives up at once; `close` closes that."""

    def __init__(self, aside: Aside, name: str) -> None:
        self._aside = aside
        self._name = name

    def read(self) -> Overview | None:
        """Return the run as it is now, None if the server has none of this name.

        Raises BrokerError if the server does not answer, RunError for a damaged record.
        """
        record = read_run(self._aside, self._name)
        if record is None:
            return None
        keys = Keys(self._name, record.run_id, shards=record.shards)
        groups = (keys, replace(keys, evaluation=True), replace(keys, inference=True))
        training, evaluating, serving = (ReportStore(self._aside, group) for group in groups)
        expected = range(_expected(record))
        actors = sorted({*expected} | training.registered())
        found = training.read([None, *actors], MAX_BYTES)
        learner = _learner(record, found.get(None))
        up = _up(record, learner)
        evaluated = evaluating.read(sorted({*range(_MOST_EVALUATING)} | evaluating.registered()), MAX_BYTES)
        servers = serving.read(sorted(serving.registered()), MAX_BYTES)
        playing = [_process("actor", i, found.get(i), up) for i in actors if i in found or not record.over]
        others = [_process("evaluation actor", actor or 0, raw, up) for actor, raw in evaluated.items()]
        others += [_process("inference server", number or 0, raw, up) for number, raw in servers.items()]
        processes = _paired(
            learner,
            # One beyond --nb-actor takes part unless an earlier learner had it, or it has left.
            *(one for one in playing if one.number in expected or (one.age <= up and one.state != "left")),
            *(other for other in others if other.age <= up or other.state == "starting"),  # not an earlier learner's
        )
        is_old = record.written is not None and time.time() - record.written > _ABANDONED_S
        if is_old and learner.report is None and not record.over:
            return Overview(self._name, record, processes, (), "abandoned")
        alerts = [*_alerts(record, processes), *_cut_off(training, processes)]
        return Overview(self._name, record, processes, tuple(alerts), record.status)

    def close(self) -> None:
        """Close the connection."""
        self._aside.close()


def _expected(record: RunStatus) -> int:
    """Return how many actors the run should have."""
    if record.crews:
        return record.crews[-1].nb_actor
    wanted = record.settings.get("nb_actor")
    return min(wanted, MAX_ACTORS) if type(wanted) is int and wanted > 0 else 0


def _learner(record: RunStatus, raw: RawReport | None) -> Process:
    """Return the learner; one that has led the run just now, and not reported since, starts."""
    learner = _process("learner", 0, raw, math.inf)
    led = record.written or 0
    starts = record.status == "starting" and abs(time.time() - led) < STARTS_S
    if learner.state == "left" and not record.over and learner.report:  # a successor leads, and reports in a moment
        starts |= led > learner.report.written
    if starts and (raw is None or learner.state in ("silent", "left")):
        return replace(learner, state="starting")
    is_gone = record.over and learner.report is None  # reports are not kept for ever
    return replace(learner, state="left") if is_gone else learner


def _up(record: RunStatus, learner: Process) -> float:
    """Return for how many seconds the learner has been there; no clocks of two machines are compared."""
    if learner.state == "starting":
        return 0.0
    if record.over or learner.report is None:
        return math.inf
    up = learner.report.written - learner.report.began + learner.age
    return up if up >= 0 else math.inf  # the learner's clock was set back meanwhile


def _process(role: Role, number: int, raw: RawReport | None, up: float) -> Process:
    """Return a process of a run that is `up`; a report that is damaged, or another process's, counts as none."""
    report = None
    age = raw.age if raw else 0.0
    if raw:
        with suppress(ReportError):
            found = decode(raw.data)
            report = found if (found.role, found.number) == (role, number) else None
    return Process(role, number, _state(report, age, starts=up < STARTS_S and (raw is None or age > up)), report, age)


def _state(report: Report | None, age: float, *, starts: bool) -> State:
    if starts:
        return "starting"
    if report is None:
        return "missing"
    if report.ended:
        return "left"
    if age > SILENT_S:
        return "silent"
    return "waiting" if report.waits_for else "working"


def _paired(learner: Process, *others: Process) -> tuple[Process, ...]:
    """Return all processes; a learner and actors that wait for each other, and still make steps, are in lockstep."""
    waiting = [
        other
        for other in others
        if other.state == "waiting"
        and (other.report.waits_for if other.report else "").startswith(FOR_WEIGHTS)
        and other.value("actor/steps_per_second")
    ]
    learner_waits = learner.report.waits_for if learner.report and learner.state == "waiting" else ""
    if not waiting or FOR_ROUND not in learner_waits:
        return learner, *others
    turns = {(each.role, each.number) for each in (learner, *waiting)}
    return tuple(
        replace(each, state="lockstep") if (each.role, each.number) in turns else each for each in (learner, *others)
    )


def names_of(processes: Sequence[Process]) -> str:
    """Name processes: the first numbers of each role, and how many more there are."""
    names = []
    for role in dict.fromkeys(process.role for process in processes):
        numbers = [process.number for process in processes if process.role == role]
        if len(numbers) == 1:
            names.append(title_of(role, numbers[0]))
        else:
            more = len(numbers) - _MOST_NAMED
            named = ", ".join(map(str, numbers[:_MOST_NAMED]))
            names.append(f"{role}s {named}" + (f" and {more} more" if more > 0 else ""))
    return ", ".join(names)


def _alerts(record: RunStatus, processes: tuple[Process, ...]) -> list[str]:
    """Return what a person should look at."""
    learner = processes[0]
    alerts = [text for process in processes for text in _alarms(process)]
    if record.over:
        return alerts
    missing = [process for process in processes if process.state == "missing"]
    silent = [process for process in processes if process.state == "silent"]
    left = [process for process in processes if process.state == "left" and process.role in ("learner", "actor")]
    if missing:
        alerts.append(f"{names_of(missing)} {_has(missing)} not reported")
    if silent:
        ages = f"{'up to ' if len(silent) > 1 else ''}{max(process.age for process in silent):.0f} s"
        alerts.append(f"{names_of(silent)} {_has(silent)} been silent for {ages}")
    if left:
        alerts.append(f"{names_of(left)} {_has(left)} left")
    if (learner.value("share/wait") or 0.0) > _STARVED and _has_trained(learner, STARTS_S):
        waits_for = learner.report.waits_for if learner.report else ""
        alerts.append(f"the learner is starved: it waits for {waits_for or 'experience'}")
    used = learner.value("redis/used_memory")
    limit = learner.value("redis/max_memory")
    if used and limit and used > _NEAR * limit:
        alerts.append(f"Redis uses {used / limit:.0%} of its maxmemory")
    return alerts


def _has_trained(learner: Process, seconds: float) -> bool:
    """Return whether the learner has been training for so long that the shares of its time can be judged."""
    updates = learner.value("train/n_updates")
    speed = learner.value("train/updates_per_second")
    return bool(updates and speed is not None and updates > speed * seconds)


def _alarms(process: Process) -> list[str]:
    """Return the alarms of a process; the learner's concern the run, and do not name it."""
    who = "" if process.role == "learner" else f"{process.title} has "
    return [who + event.text for event in (process.report.events if process.report else ()) if event.is_alarm]


def _cut_off(store: ReportStore, processes: tuple[Process, ...]) -> Iterator[str]:
    """Yield a line if actors wait for the learner to read messages that were deleted."""
    waiting = [process for process in processes if process.role == "actor" and process.state == "waiting"]
    cut_off = store.cut_off(process.number for process in waiting if process.value("actor/unread"))
    if named := [process for process in waiting if process.number in cut_off]:
        wait = "waits for" if len(named) == 1 else "wait for"
        yield f"{names_of(named)} {wait} unread messages that have gone from Redis"


def _has(processes: Sequence[Process]) -> str:
    return "has" if len(processes) == 1 else "have"
