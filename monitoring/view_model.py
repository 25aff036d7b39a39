"""What is shown of a run, as values and as texts: by `run_status.py`, on terminals, and on the dashboard's page."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.monitoring.overview import Overview, Process, names_of
from rainbow_iqn_apex.monitoring.report import title_of
from rainbow_iqn_apex.saber.results.task import Task, format_points

Settings = Mapping[str, Any]  # of a run, by name; of a record in Redis they may be anything

COLUMNS = ("process", "state", "rate", "version", "lag", "unread", "memory", "seen", "pid", "host", "waits for")
_MOST_SERVERS = 4  # that have a line each
_EXACT = 1e15  # below which a float with a whole value is written as a whole number
_LEVEL = 0.02  # of the larger of two scores, within which they count as equal
# Agent steps of an environment until its first episode has ended, in the runs of Atari games in docs/measured.md.
_FIRST_EPISODE = (200, 4500)


@dataclass(frozen=True)
class ProcessLine:
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
    metrics: dict[str, float]  # by the names of monitoring.metrics

    def cells(self) -> tuple[str, ...]:
        """Return the texts of the line, in the order of COLUMNS."""
        unit = self.rate_unit.replace("updates", "upd")
        return (
            title_of(self.role, self.number),
            self.state,
            "" if self.rate is None else f"{formats.rate(self.rate)} {unit}",
            _text(self.version, formats.number),
            _text(self.lag, formats.number),
            _text(self.unread, formats.number),
            _text(self.memory, formats.size),
            _text(self.seen, formats.duration),
            "" if self.pid is None else str(self.pid),
            self.host or "",
            self.waits_for,
        )


def lines_of(overview: Overview) -> list[ProcessLine]:
    """Return a line for each process of a run, in the order of its processes."""
    newest = overview.learner.value("train/version")
    return [_line_of(process, newest) for process in overview.processes]


def _line_of(process: Process, newest: float | None) -> ProcessLine:
    report = process.report
    learns = process.role == "learner"
    version = process.value("train/version" if learns else "actor/version")
    lag = None if learns or version is None or newest is None else max(0.0, newest - version)
    return ProcessLine(
        role=process.role,
        number=process.number,
        state=process.state,
        host=report.host if report else None,
        pid=report.process if report else None,
        seen=process.age if report else None,
        rate=process.value("train/updates_per_second" if learns else "actor/steps_per_second"),
        rate_unit="updates/s" if learns else "steps/s",
        version=_whole(version),
        lag=_whole(lag),
        unread=_whole(process.value("redis/unread" if learns else "actor/unread")),
        memory=_whole(process.value("process/memory")),
        waits_for="" if report is None or process.state == "lockstep" else report.waits_for,
        metrics=report.values if report else {},
    )


def _text(value: float | None, written: formats.Writer) -> str:
    return "" if value is None else written(value)


def _whole(value: float | None) -> Any:
    return int(value) if value is not None and abs(value) < _EXACT and value == int(value) else value


def content_of(overview: Overview | None) -> dict[str, Any]:
    """Return what is shown of a run as JSON has it; None for a run that cannot be read."""
    if overview is None:
        return {"status": None, "t_learner": None, "t_actors": None, "alerts": [], "processes": []}
    return {
        "status": overview.status,
        "t_learner": overview.record.t_learner,
        "t_actors": overview.record.t_actors,
        "alerts": list(overview.alerts),
        "processes": [asdict(line) for line in lines_of(overview)],
    }


def headline(overview: Overview) -> str:
    """Return one line about a run."""
    record = overview.record
    learner = overview.learner
    T_max = overview.setting("T_max")
    text = f"run {overview.name}: {overview.status}, T = {formats.number(record.t_learner)}"
    if type(T_max) is int and T_max > 0:
        text += f" of {formats.number(T_max)} ({formats.share(min(1.0, record.t_learner / T_max))})"
    if not record.over and (left := learner.value("time/remaining")) is not None:
        text += f", {formats.duration(left)} left"
    if (mean := learner.value("rollout/ep_rew_mean")) is not None:
        text += f", score {score(mean, learner.value('rollout/ep_rew_before'))}"
    return text


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
    """Return what inference servers do, a line each; none of a server that does nothing now."""
    lines = [
        f"{server.title}: {_serving(server, clients)}"
        for server in overview.processes
        if server.role == "inference server" and server.state in ("working", "waiting")
        if (clients := server.value("inference/clients")) is not None
    ]
    more = len(lines) - _MOST_SERVERS
    return lines[:_MOST_SERVERS] + ([f"and {more} more inference servers: --json has all"] if more > 0 else [])


def _serving(server: Process, clients: float) -> str:
    text = f"{formats.number(clients)} {'actor asks' if clients == 1 else 'actors ask'}"
    if (batch := server.value("inference/batch")) is not None:
        text += f", batches of {formats.rate(batch)} environments"
    latency = server.value("inference/latency")
    slowest = server.value("inference/slowest")
    if latency is not None and slowest is not None:
        text += f", answers after {formats.number(1000 * latency, 1)} ms (99 %: {formats.number(1000 * slowest, 1)} ms)"
    return text


def score(mean: float, before: float | None, *, arrow: bool = False) -> str:
    """Write a score and its trend, as in "12.40 up from 9.80", or for terminals "12.40 ↑ from 9.80".

    `before` is None while there is no trend.
    """
    text = formats.number(mean, 2)
    if before is None:
        return text
    if abs(mean - before) <= _LEVEL * max(abs(mean), abs(before)):
        trend = "→ from" if arrow else "level with"
    elif mean > before:
        trend = "↑ from" if arrow else "up from"
    else:
        trend = "↓ from" if arrow else "down from"
    return f"{text} {trend} {formats.number(before, 2)}"


def known_scores(settings: Settings) -> str:
    """Write what random play and a human score in the game of a run; empty if that is not known."""
    game = settings.get("game")
    env = settings.get("env", "atari")
    found = Task(game, env).scores if isinstance(game, str) and isinstance(env, str) else None
    if found is None:
        return ""
    human = "" if found.human is None else f", human {format_points(found.human)}"
    return f"random {format_points(found.random)}{human}"


def first_score(settings: Settings) -> str:
    """Write when the first score can be expected."""
    environments = _count(settings, "nb_actor") * _count(settings, "nb_env_per_actor")
    if settings.get("env") != "atari":
        return "with the first episode that ends"
    first, last = (formats.number(steps * environments) for steps in _FIRST_EPISODE)
    return f"between T = {first} and {last}"


def first_update(settings: Settings) -> str:
    """Write when learning can be expected to begin; agents without a replay have a `learn_start` of 1."""
    begins = _count(settings, "learn_start")
    return f"begins at T = {formats.number(begins)}" if begins > 1 else "begins with the first round that is played"


def expectations(settings: Settings, *, learns: bool, has_score: bool) -> str:
    """Write what is still to come of a run: the first update, the first score, the scores to compare with, the end."""
    known = known_scores(settings)
    text = [] if learns else [f"learning {first_update(settings)}"]
    text += [] if has_score else [f"the first score comes {first_score(settings)}"]
    text += [f"{known} (known scores)"] if known else []
    return "; ".join([*text, f"the run ends at T = {formats.number(_count(settings, 'T_max'))}"])


def _count(settings: Settings, name: str) -> int:
    value = settings.get(name)
    return value if type(value) is int else 1
