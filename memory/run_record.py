"""The registry's record of a run: what the learner says of it to the actors, and to a learner that comes after it."""

import json
import re
from dataclasses import dataclass, replace
from typing import Any, cast

from memory import wire
from memory.connection import Client
from memory.errors import RunError
from memory.limiter import Crew, check_crews
from memory.transport import Keys

_STATUSES = (b"starting", b"running", b"stopped", b"finished")
_FIRST_VERSION = b"1"  # of the wire, by those who did not write it down yet


@dataclass(frozen=True)
class RunRecord:
    """The registry's record of a run, as its learner last wrote it."""

    run_id: str
    status: str  # starting, running, stopped, finished
    settings: dict[str, Any]
    t_learner: int  # agent steps
    t_actors: int  # agent steps in the replay's log
    crews: tuple[Crew, ...] = ()  # none: the actors of the settings have played all rounds
    wire_version: int = wire.VERSION  # of another one, settings and counts are not read

    @property
    def over(self) -> bool:
        """Whether the learner has left in good order."""
        return self.status in ("stopped", "finished")


def read_run(client: Client, name: str) -> RunRecord | None:
    """The record of the run of this name, None if there is none; raises RunError if it is none that we have written."""
    key = Keys(name, "").run
    run_id, status, version, *rest = cast(
        list[bytes | None], client.hmget(key, "run_id", "status", "wire", "settings", "t_learner", "t_actors", "crews")
    )
    if run_id is None:
        return None
    try:
        if not re.fullmatch(rb"[A-Za-z0-9_-]{1,64}", run_id):
            raise ValueError("its run id is no name")
        if status not in _STATUSES:
            raise ValueError("its status is unknown")
        wire_version = whole_number(version or _FIRST_VERSION)
        record = RunRecord(run_id.decode(), status.decode(), {}, 0, 0, wire_version=wire_version)
        if record.wire_version != wire.VERSION:
            return record
        settings, t_learner, t_actors, crews = rest
        return replace(
            record,
            settings=_settings(settings),
            t_learner=whole_number(t_learner),
            t_actors=whole_number(t_actors),
            crews=check_crews(_json(crews or b"[]", "crews")),
        )
    except ValueError as error:
        raise RunError(
            f"the record of run {name!r} in Redis, {key}, is damaged: {error}; delete it with redis-cli "
            "(docs/access.md, as administrator), and start the learner again"
        ) from error


def _settings(text: bytes | None) -> dict[str, Any]:
    settings = _json(text or b"", "settings")
    if not isinstance(settings, dict) or not all(isinstance(v, str | int | float | None) for v in settings.values()):
        raise ValueError("its settings are no JSON object of plain values")
    return settings


def _json(text: bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {what} are no JSON") from error


def whole_number(text: bytes | None) -> int:
    """A number as this project writes it into Redis; raises ValueError for anything else."""
    if text is None or not re.fullmatch(rb"[0-9]{1,20}", text):
        raise ValueError("a count is no whole number")
    return int(text)


def write_run(client: Client, name: str, record: RunRecord, read: dict[int, int]) -> None:
    """Write the record, and up to which sequence number each actor's log was read."""
    client.hset(Keys(name, "").run, mapping=record_fields(record, read))


def record_fields(record: RunRecord, read: dict[int, int]) -> dict[Any, Any]:
    """The record as the registry holds it."""
    fields = {
        "run_id": record.run_id,
        "status": record.status,
        "wire": record.wire_version,
        "settings": json.dumps(record.settings),
        "t_learner": record.t_learner,
        "t_actors": record.t_actors,
        "crews": json.dumps(record.crews),
    }
    return fields | {f"read:{actor}": sequence for actor, sequence in read.items()}
