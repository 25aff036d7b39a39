"""One line about each process of a run: as values for programs, as texts for people."""

from dataclasses import dataclass
from typing import Any

from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.monitoring.overview import Overview, Process, names_of
from rainbow_iqn_apex.monitoring.report import title_of
from rainbow_iqn_apex.monitoring.terminal import scores

COLUMNS = ("process", "state", "rate", "version", "lag", "unread", "memory", "seen", "pid", "host", "waits for")
_MOST_SERVERS = 4  # that have a line each
_EXACT = 1e15  # below which a float with a whole value is written as a whole number


@dataclass(frozen=True)
class Line:
    """A process at a moment; None for what it has not reported."""

    role: str  # learner, actor, evaluation actor, inference server
    number: int  # among those of this role; 0 of the learner
    state: str  # starting, missing, left, silent, lockstep, waiting, working
    host: str | None
    pid: int | None
    seen: float | None  # seconds since its last report
    rate: float | None
    rate_unit: str  # updates/s of a learner, steps/s of others
    version: float | None  # of the weights: the learner's newest, or those that an actor or a server computes with
    lag: float | None  # versions behind the newest
    unread: float | None  # messages that the learner has not read: all, or the actor's
    memory: float | None  # bytes
    waits_for: str  # empty: nothing


def newest_version(overview: Overview) -> float | None:
    """Return the newest version of the weights that the learner has reported."""
    return overview.learner.value("train/version")


def line_of(process: Process, newest: float | None) -> Line:
    """Return the line of a process; `newest` is the newest version of the weights."""
    learns, report = process.role == "learner", process.report
    version = process.value("train/version" if learns else "actor/version")
    lag = None if learns or version is None or newest is None else max(0.0, newest - version)
    return Line(
        process.role,
        process.number,
        process.state,
        report.host if report else None,
        report.process if report else None,
        process.age if report else None,
        process.value("train/updates_per_second" if learns else "actor/steps_per_second"),
        "updates/s" if learns else "steps/s",
        _whole(version),
        _whole(lag),
        _whole(process.value("redis/unread" if learns else "actor/unread")),
        _whole(process.value("process/memory")),
        "" if report is None or process.in_lockstep else report.waits_for,
    )


def cells(line: Line) -> tuple[str, ...]:
    """Return the texts of a line, in the order of COLUMNS."""
    unit = line.rate_unit.replace("updates", "upd")
    return (
        title_of(line.role, line.number),
        line.state,
        "" if line.rate is None else f"{formats.rate(line.rate)} {unit}",
        _text(line.version, formats.number),
        _text(line.lag, formats.number),
        _text(line.unread, formats.number),
        _text(line.memory, formats.size),
        _text(line.seen, formats.duration),
        "" if line.pid is None else str(line.pid),
        line.host or "",
        line.waits_for,
    )


def alert_lines(overview: Overview) -> list[str]:
    """Return what a person should look at, a line each."""
    return [f"! {alert}" for alert in overview.alerts]


def waiting_lines(overview: Overview) -> list[str]:
    """Return what processes wait for, a line each thing, and who takes turns."""
    waiting: dict[str, list[Process]] = {}
    turns = [process for process in overview.processes if process.state == "lockstep"]
    for process in overview.processes:
        if process.state == "waiting" and process.report:
            waiting.setdefault(process.report.waits_for, []).append(process)
    lines = [f"{names_of(turns)}: in lockstep, taking turns"] if turns else []
    return [*lines, *(f"{names_of(processes)}: waiting for {what}" for what, processes in waiting.items())]


def serving_lines(overview: Overview) -> list[str]:
    """Return what inference servers do, a line each."""
    servers = [process for process in overview.processes if process.role == "inference server"]
    lines = [f"{server.title}: {serving}" for server in servers if (serving := _serving(server))]
    more = len(lines) - _MOST_SERVERS
    return lines[:_MOST_SERVERS] + ([f"and {more} more inference servers: --json has all"] if more > 0 else [])


def _serving(server: Process) -> str:
    """Return what an inference server does, as far as it has reported it; empty for one that does nothing now."""
    clients = server.value("inference/clients")
    if clients is None or server.state not in ("working", "waiting"):
        return ""
    text = f"{formats.number(clients)} {'actor asks' if clients == 1 else 'actors ask'}"
    if (batch := server.value("inference/batch")) is not None:
        text += f", batches of {formats.rate(batch)} environments"
    latency, slowest = server.value("inference/latency"), server.value("inference/slowest")
    if latency is not None and slowest is not None:
        text += f", answers after {formats.number(1000 * latency, 1)} ms (99 %: {formats.number(1000 * slowest, 1)} ms)"
    return text


def headline(overview: Overview) -> str:
    """Return one line about a run."""
    record, learner, T_max = overview.record, overview.learner, overview.setting("T_max")
    text = f"run {overview.name}: {overview.status}, T = {formats.number(record.t_learner)}"
    if type(T_max) is int and T_max > 0:
        text += f" of {formats.number(T_max)} ({formats.share(min(1.0, record.t_learner / T_max))})"
    if not record.over and (left := learner.value("time/remaining")) is not None:
        text += f", {formats.duration(left)} left"
    if (mean := learner.value("rollout/ep_rew_mean")) is not None:
        text += f", score {scores.score(mean, learner.value('rollout/ep_rew_before'))}"
    return text


def _text(value: float | None, written: formats.Writer) -> str:
    return "" if value is None else written(value)


def _whole(value: float | None) -> Any:
    return int(value) if value is not None and abs(value) < _EXACT and value == int(value) else value
