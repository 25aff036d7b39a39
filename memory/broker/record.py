"""The registry's record of a run: the learner writes it for the actors, and for learners after this one."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from msgspec import Meta

from rainbow_iqn_apex.common.checkout import Code
from rainbow_iqn_apex.common.errors import DamagedError
from rainbow_iqn_apex.common.schema import Number, parse, parse_json
from rainbow_iqn_apex.common.schema import read_record as read_json
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.access import MAX_SHARDS, is_run_name
from rainbow_iqn_apex.memory.broker.admin import keys_from
from rainbow_iqn_apex.memory.broker.connection import Argument, Aside, Client, ReplyTooLargeError
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import MAX_HOST, is_moment, local_time, printable, this_host
from rainbow_iqn_apex.memory.broker.scripts import READ_BYTES
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS, Crew, check_crews

_Setting = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Number | str | None
_MAX_FOLDER = 4096  # bytes of a path, as Linux has it
_MOST_CODE = 1000  # bytes of the release and the commit
_FIELDS = tuple(
    "run_id status wire settings t_learner t_actors crews folder host written saves leader code server".split()
)


@dataclass(frozen=True)
class Owner:
    """Where the results of a run are; runs with results elsewhere may not take its name."""

    folder: str  # absolute
    host: str

    @classmethod
    def of(cls, folder: Path) -> "Owner":
        """Return the owner of a run with its results in this folder of this machine."""
        return cls(os.fsdecode(os.fsencode(folder.resolve())[:_MAX_FOLDER]), this_host())

    def __str__(self) -> str:
        return f"{printable(self.folder)} on {self.host}"


@dataclass(frozen=True)
class RunStatus:
    """The registry's record of a run, as its learner last wrote it."""

    run_id: str
    status: str  # starting, running, stopped, finished
    settings: dict[str, Any]
    t_learner: int  # agent steps
    t_actors: int  # agent steps in the replay's log
    crews: tuple[Crew, ...] = ()  # none: the actors of the settings have played all rounds
    wire_version: int = wire.VERSION  # settings and counts of another version are not read
    owner: Owner | None = None  # None: not known
    saves: int = 0  # checkpoints that its learners have written, up to the one before this record
    leader: bytes = field(default=b"", compare=False)  # its writer's lease; empty: not known
    written: int | None = field(default=None, compare=False)  # seconds since 1970 by the learner's clock
    code: Code | None = field(default=None, compare=False)  # that the learner runs; None: not known
    server: str = field(default="", compare=False)  # that it was written to, by Redis's own id; empty: not known

    @property
    def shards(self) -> int:
        """Shards of the run on the server; one if the record does not hold their number."""
        shards = self.settings.get("redis_shards")
        return shards if type(shards) is int and 1 <= shards <= MAX_SHARDS else 1

    @property
    def over(self) -> bool:
        """Whether the learner has left in good order."""
        return self.status in ("stopped", "finished")

    def is_led_by(self, leader: bytes) -> bool:
        """Return whether the holder of the learner's lease, empty for none, wrote this record and has begun to learn.

        A learner takes the lease before it decides whether it goes on with the run of the record.
        """
        return self.status == "running" and leader != b"" and self.leader in (b"", leader)

    @property
    def whose(self) -> str:
        """Whose run it is, and when its learner wrote the record."""
        owner = self.owner or "a folder that is not recorded"
        return f"{owner}, last written {local_time(self.written)}" if self.written is not None else str(owner)


def read_run(client: Client | Aside, name: str) -> RunStatus | None:
    """Return the record of the run of this name, None if there is none; raises DamagedError for a damaged one."""
    return read_record(client, Keys(name, ""))


def read_record(client: Client | Aside, keys: Keys) -> RunStatus | None:
    """Return the record of a run, or a shard's copy of it; as `read_run`."""
    key = keys.run
    values = dict(zip(_FIELDS, cast(list[bytes | None], client.hmget(key, *_FIELDS)), strict=True))
    if values["run_id"] is None:
        return None
    try:
        return _record(values)
    except (ValueError, TypeError, AttributeError) as error:  # no bytes, where bits of the answer were flipped
        raise DamagedError(
            f"the record of run {keys.name!r} in Redis, {key}, is damaged: {error}; delete it with redis-cli "
            "(docs/access.md, as administrator), and start the learner again"
        ) from error


def _record(values: dict[str, bytes | None]) -> RunStatus:
    record = RunStatus(
        _matching(values["run_id"], rb"[A-Za-z0-9_-]{1,64}", "its run id is no name"),
        _matching(values["status"], rb"starting|running|stopped|finished", "its status is unknown"),
        {},
        0,
        0,
        wire_version=whole_number(values["wire"]),
        owner=_owner(values["folder"], values["host"]),
        leader=values["leader"] or b"",
        written=_moment(values["written"]),
    )
    if record.wire_version != wire.VERSION:
        return record
    code = values["code"]
    with _named("its settings are no plain values"):
        settings = parse(parse_json(values["settings"] or b""), dict[str, _Setting])
    with _named("its code is none"):
        known_code = None if code is None else read_json(code, Code, _MOST_CODE)
    return replace(
        record,
        settings=settings,
        t_learner=whole_number(values["t_learner"]),
        t_actors=whole_number(values["t_actors"]),
        crews=check_crews(parse_json(values["crews"] or b"")),
        saves=whole_number(values["saves"]),
        code=known_code,
        server=""
        if values["server"] is None
        else _matching(values["server"], rb"[0-9a-f]{1,64}", "its server is none"),
    )


def _matching(text: bytes | None, pattern: bytes, fault: str) -> str:
    if not re.fullmatch(pattern, text or b""):
        raise ValueError(fault)
    return (text or b"").decode()


@contextmanager
def _named(fault: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{fault} ({error})") from error


def _owner(folder: bytes | None, host: bytes | None) -> Owner | None:
    if folder is None and host is None:
        return None
    if not folder or not folder.startswith(b"/") or len(folder) > _MAX_FOLDER:
        raise ValueError("its folder is no absolute path")
    return Owner(os.fsdecode(folder), _matching(host, rb"[!-~]{1,%d}" % MAX_HOST, "its host is no name"))


def _moment(text: bytes | None) -> int | None:
    if text is not None and not is_moment(whole_number(text)):
        raise ValueError("the time at which it was written is too large")
    return None if text is None else whole_number(text)


def whole_number(text: bytes | None) -> int:
    """Parse a number as this project writes it into Redis; raises ValueError for anything else."""
    if not isinstance(text, bytes) or not re.fullmatch(rb"[0-9]{1,20}", text):
        raise ValueError("a count is no whole number")
    return int(text)


def server_id(client: Client) -> str:
    """Return the id that a server has given itself when it was started."""
    return str(client.info("server")["run_id"])


def actors_read(client: Client, keys: Keys) -> list[int]:
    """Return the actors of these keys whose last message read is in the record of the run."""
    read = client.hmget(keys.run, [keys.read_field(actor) for actor in range(MAX_ACTORS)])
    return [actor for actor, sequence in enumerate(cast(list[bytes | None], read)) if sequence is not None]


def record_fields(
    record: RunStatus, read: dict[int, int], evaluated: dict[int, int] | None = None
) -> dict[Any, Argument]:
    """Return the fields of the record as the registry holds them.

    `read` and `evaluated` hold, by actor and by evaluation actor, the number up to which the log was read.
    """
    fields: dict[Any, Argument] = {
        "run_id": record.run_id,
        "status": record.status,
        "wire": record.wire_version,
        "settings": json.dumps(record.settings),
        "t_learner": record.t_learner,
        "t_actors": record.t_actors,
        "crews": json.dumps(record.crews),
        "saves": record.saves,
    }
    if record.owner:
        fields |= {"folder": os.fsencode(record.owner.folder), "host": record.owner.host}
    if record.leader:
        fields["leader"] = record.leader
    if record.written is not None:
        fields["written"] = record.written
    if record.server:
        fields["server"] = record.server
    if record.code:
        fields["code"] = json.dumps(asdict(record.code))
    for keys, numbers in ((Keys("", ""), read), (Keys("", "", evaluation=True), evaluated or {})):
        fields |= {keys.read_field(actor): sequence for actor, sequence in numbers.items()}
    return fields


_PREFIX = Keys("", "").run.removesuffix("}")


class Runs(NamedTuple):
    """The runs of which the servers hold a record."""

    names: list[str]
    left_out: int  # records under names that no run may have, which another client has written


def find_runs(client: Aside) -> Runs:
    """Return the runs that have a record on the servers."""
    records = {key[len(_PREFIX) : -1] for key in keys_from(client, _PREFIX) if key.endswith(b"}")}
    names = {record.decode(errors="replace") for record in records}
    valid = sorted(filter(is_run_name, names))
    return Runs(valid, len(records) - len(valid))


class Registered(NamedTuple):
    """The actors that have a log, and the position in their stream after which others will come."""

    actors: set[int]
    position: bytes


def registered_actors(client: Client | Aside, keys: Keys) -> Registered:
    """Read the stream to which each actor adds its number with its first message; too large a reply counts as none."""
    reply: Any = None
    with suppress(ReplyTooLargeError), client.replies_up_to(READ_BYTES):
        reply = client.xread({keys.actors: "0-0"})
    entries = reply[0][1] if reply else []
    numbers = {actor_number(fields.get(b"actor", b"")) for _, fields in entries}
    return Registered({number for number in numbers if number is not None}, entries[-1][0] if entries else b"0-0")


def actor_number(text: bytes) -> int | None:
    """Parse an actor's number as an actor writes it; None for anything else."""
    return int(text) if re.fullmatch(rb"[0-9]{1,9}", text) and int(text) < MAX_ACTORS else None
