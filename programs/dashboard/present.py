"""What the page shows of a run at this moment, as plain values for JSON."""

from typing import Any

from rainbow_iqn_apex.environments.registry import task_name
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.monitoring.metrics import PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.overview import Overview, Process
from rainbow_iqn_apex.programs.dashboard.happenings import Happening
from rainbow_iqn_apex.programs.dashboard.watcher import LastOverview
from rainbow_iqn_apex.saber.results.task import Task

SHOWN_EVENTS = 60
_MAX_TEXT = 300  # characters
_MAX_PROBLEM = 1000  # with a server's words, and what to do
_MAX_NAME = 100
_MOST_STEPS = 2**53  # that a browser counts exactly


def present(last: LastOverview) -> dict[str, Any]:
    """Return the present state of the run, as far as Redis has shown it."""
    shown: dict[str, Any] = {"problem": text(last.problem, _MAX_PROBLEM), "at": last.at}
    if overview := last.overview:
        shown |= {
            "run": _run(overview),
            "metrics": overview.learner.report.values if overview.learner.report else {},
            "priorities": _priorities(overview.learner),
            "alerts": [text(alert) for alert in overview.alerts],
            "processes": [_process(process, overview.learner) for process in overview.processes],
        }
    return shown


def events(happenings: list[Happening]) -> list[dict[str, Any]]:
    """Return events for the page, in their order."""
    return [event._asdict() | {"text": text(event.text)} for event in happenings[:SHOWN_EVENTS]]


def task_of(overview: Overview) -> str:
    """Return the task in the names of the run's files."""
    return task_name(str(overview.setting("env") or "atari"), str(overview.setting("game") or ""))


def text(value: object, most: int = _MAX_TEXT) -> str:
    """Return a text that any peer may have written into Redis, short and printable."""
    return printable(str(value)[:most])


def _run(overview: Overview) -> dict[str, Any]:
    record = overview.record
    return {
        "name": text(overview.name, _MAX_NAME),
        "id": text(record.run_id, _MAX_NAME),
        "status": overview.status or record.status,
        "is_over": record.over or overview.status == "abandoned",
        "owner": text(record.owner) if record.owner else "",
        "agent": text(overview.setting("agent") or "", _MAX_NAME),
        "task": text(Task(task_of(overview), str(overview.setting("env") or "atari")).title, _MAX_NAME),
        "lockstep": overview.setting("synchronize_actors_with_learner") is True,
        "t_max": _steps(overview.setting("T_max")),
    }


def _steps(value: object) -> int | None:
    """Return a number of agent steps that any peer may have written into Redis; None if it is none."""
    return int(value) if isinstance(value, int | float) and 0 <= value <= _MOST_STEPS else None  # not NaN, either


def _priorities(learner: Process) -> dict[str, Any] | None:
    counts = learner.report.histograms.get("buffer/priorities") if learner.report else None
    return {"bounds": PRIORITY_BOUNDS, "counts": counts} if counts else None


def _process(process: Process, learner: Process) -> dict[str, Any]:
    report = process.report
    shown: dict[str, Any] = {"title": process.title, "role": process.role, "number": process.number}
    shown |= {"state": process.state, "age": round(process.age, 1)}
    if report:
        newest, own = learner.value("train/version"), process.value("actor/version")
        shown |= {
            "host": report.host,
            "process": report.process,
            "began": report.began,
            "waits_for": report.waits_for,
            "lag": None if newest is None or own is None else max(0.0, newest - own),
            "values": {name: value for name, value in report.values.items() if not name.startswith("share/")},
            "shares": {name[6:]: value for name, value in report.values.items() if name.startswith("share/")},
        }
    return shown
