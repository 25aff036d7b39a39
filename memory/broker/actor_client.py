"""An actor's end of the transport: joins a run, appends experience, fetches weights."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.waiting import FOR_WEIGHTS, WaitReporter
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.actor_state import round_in
from rainbow_iqn_apex.memory.broker.connection import BLOCK_MS, Client
from rainbow_iqn_apex.memory.broker.expected_actors import ExpectedActors, plain_command
from rainbow_iqn_apex.memory.broker.lease import Lease
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.memory.broker.run_status import RunStatus, read_record, read_run, whole_number
from rainbow_iqn_apex.memory.broker.transport import (
    MAX_SEQUENCE,
    Commit,
    Keys,
    NumberTakenError,
    Scripts,
    last_sequence,
    newest_version,
    sequence_of,
)
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.memory.messages import Message, encode_message
from rainbow_iqn_apex.memory.wire import Packet

_MOST_LEASE = 200  # bytes that are compared: a lease begins with a random value
_KEPT_S = 5.0  # for sending again what a broker's restart has lost: the broker syncs its file every second


class Saved(NamedTuple):
    """State of an actor, and the number of its last message."""

    state: bytes
    sequence: int

    @property
    def round(self) -> int:
        """Return the round that the actor plays next; raises WireError for a state that does not hold it."""
        return round_in(self.state, MAX_SEQUENCE).number


class RunOver(Stopped):
    """The learner has finished, was stopped, or leads another run; the text names which."""


def wait_for_run(
    client: Client, name: str, settings: dict[str, Any], stop: threading.Event,
    command: Callable[[int], str] = plain_command,
) -> RunStatus:  # fmt: skip
    """Wait until a learner leads the run of this name; raises UserError if the learner's settings differ from ours.

    A killed learner leaves its record and, for a while, its lease. So other settings are refused only in a record that
    was written during this wait. `command` returns the command that starts the learner, see `ExpectedActors`.
    """
    first = read_run(client, name)
    waiting = WaitReporter(
        f"the learner of run {name!r}", hint=ExpectedActors(client, Keys(name, ""), 0, command).absent
    )
    while True:
        record = read_run(client, name)
        leader = client.getrange(Keys(name, "").learner_lease, 0, _MOST_LEASE - 1)  # others may have written more
        # A learner takes the lease before it decides whether it goes on with the run of the record.
        if record and record.status == "running" and leader and record.leader[:_MOST_LEASE] in (b"", leader):
            _refuse_other_version(record, name)
            if not (differing := _differing(record, name, settings)):
                return record
            if first is None or (record, record.written) != (first, first.written):
                raise UserError("\n".join(differing))
        waiting.check()
        if stop.wait(0.5):
            raise Stopped


def _differing(record: RunStatus, name: str, settings: dict[str, Any]) -> list[str]:
    return [
        f"--{key.replace('_', '-')} is {settings.get(key)!r} here and {record.settings.get(key)!r} at the learner of "
        f"run {name!r}: start both with the same settings, or use another --run-name"
        for key in sorted(settings.keys() | record.settings.keys())
        if settings.get(key) != record.settings.get(key)
    ]


def _refuse_other_version(record: RunStatus, name: str) -> None:
    if record.wire_version != wire.VERSION:
        raise UserError(
            f"the learner of run {name!r} is of another release: its {wire.other_version(record.wire_version)}"
        )


def _is_version(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


class ActorClient:
    """Appends one actor's messages under its lease; use as a context manager.

    `crews` are those of the run in lockstep; the actor has to leave if the learner goes on with other crews. With
    `evaluation` the actor is an evaluation actor, whose messages go to a log of their own. While the actor waits for
    the learner, `expected` names the processes that are missing. `break_stale` is as in `Lease`. All keys that the
    client reads and writes are in the shard of the actor, one of `shards`. With `replicas`, replicas serve the weights.
    """

    def __init__(
        self, client: Client, name: str, run_id: str, actor: int, stop: threading.Event, crews: tuple[Crew, ...] = (),
        *, evaluation: bool = False, expected: ExpectedActors | None = None, break_stale: bool = False, shards: int = 1,
        replicas: bool = False,
    ) -> None:  # fmt: skip
        self.keys = Keys(name, run_id, evaluation, shards).beside(actor)
        self.actor = actor
        self.title = self.keys.title(actor)
        self._client = client
        self._scripts = Scripts(client)
        server = client.of(self.keys.run)
        self._weights_from = [server.replica(), server] if replicas else [server]
        self._stop = stop
        self._crews = crews
        self._sequence = 0  # of the last message
        self.known_read = 0  # of the last message that the learner had read when this client last looked
        self._kept: deque[tuple[float, Commit]] = deque()
        self.lease = Lease(
            client,
            self.keys.actor_lease(actor),
            f"{self.title} of run {name!r}",
            f"give each {'evaluation actor its own --id-eval-actor' if evaluation else 'actor its own --id-actor'}",
            break_stale=break_stale,
        )
        self._absent = (expected or ExpectedActors(client, self.keys, 0)).absent

    def __enter__(self) -> "ActorClient":
        self.lease.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.lease.__exit__(*error)

    @property
    def sequence(self) -> int:
        """Return the number of the last message."""
        return self._sequence

    def saved(self, *, repeats: bool = False) -> Saved | None:
        """Return the state that this actor's predecessor stored with its last message, None to join anew.

        The learner may have read messages that a broker's restart has lost since; it goes on with the number after
        them. An actor that `repeats` exactly what its predecessor did gives the lost messages their old numbers again.
        Any other actor joins anew, and gives its messages the numbers after the lost ones.
        """
        state, sequence = self._client.hmget(self.keys.state(self.actor), "state", "sequence")
        read, newest = self._read(), last_sequence(self._client, self.keys.log(self.actor))
        known = min(self._count(sequence or b"0"), max(newest, read))  # another client wrote a greater one
        self._sequence = known
        is_whole = newest >= read  # else the state is older than what the learner goes on from
        if state is None or not repeats:
            self.pass_read()
        if state is None or sequence is None or not (is_whole or repeats):
            return None
        return Saved(cast(bytes, state), known)

    def pass_read(self) -> None:
        """Give the next messages numbers after all that the learner has read, also where Redis has lost those."""
        if self.known_read > self._sequence:
            unknown = f"messages {self._sequence + 1} to {self.known_read} of {self.title}"
            print(f"The learner has read {unknown}, which Redis does not hold: going on after them", flush=True)
            self._sequence = self.known_read

    def _count(self, text: Any) -> int:
        try:
            return whole_number(text)
        except ValueError as error:
            raise RunError(f"what Redis holds of {self.title} in run {self.keys.name!r} is damaged: {error}") from error

    def commit(self, messages: list[Message], state: bytes) -> None:
        """Append messages and store the state after them, exactly once; raises RunError if that is impossible."""
        self.lease.check()
        commit = Commit(self._sequence + 1, [encode_message(message) for message in messages], state)
        written = self._append(commit)
        now = time.monotonic()
        self._kept.append((now, written))
        while self._kept[0][0] < now - _KEPT_S:
            self._kept.popleft()

    def _append(self, commit: Commit, *, allow_gap: bool = False) -> Commit:
        """Append a commit, after those that Redis has lost, and return the commit with its final numbers."""
        try:
            known = self._scripts.commit(self.keys, self.actor, self.lease.token, commit, allow_gap=allow_gap)
        except NumberTakenError as taken:
            if taken.last > MAX_SEQUENCE // 2:  # below that, the learner takes all messages numbered from there on
                raise RunError(f"{taken}, and no number is left: start the run afresh") from taken
            print(f"Going on with the next number: {taken}", flush=True)
            return self._append(commit._replace(first=taken.last + 1), allow_gap=True)
        except RunError:
            self.record()  # raises RunOver if the learner has left, or leads another run
            raise
        if known is not None:
            self._send_again(known)
            return self._append(commit, allow_gap=True)
        self._sequence = commit.last
        return commit

    def _send_again(self, known: int) -> None:
        print(
            f"Redis holds the messages of {self.title} up to {known} of {self._sequence}: sending again",
            flush=True,
        )
        known = max(known, self._trimmed())
        lost = [(at, self._append(commit, allow_gap=True)) for at, commit in self._kept if commit.last > known]
        self._kept = deque([kept for kept in self._kept if kept[1].last <= known] + lost)

    def _trimmed(self) -> int:
        """Return the number up to which the learner has read this actor's messages and trimmed the log.

        If another client has made the number in the state smaller, these look lost. Sent again they would count twice.
        """
        log: Any = self._client.xread({self.keys.log(self.actor): "0-0"}, count=1)
        return min(self._read(), sequence_of(log[0][1][0][0]) - 1) if log else 0

    def _known(self) -> int:
        """Return the number of this actor's last message that Redis holds.

        The log gives the number; where others have added to the log, the number stored with the state does.
        """
        log = self.keys.log(self.actor)
        self._client.xread({log: "$"}, count=1)  # returns nothing, but raises RunError if the key holds no stream
        stored = self._client.hget(self.keys.state(self.actor), "sequence")
        if stored == b"%d" % self._sequence:  # nearly always so, and cheap for Redis
            return self._sequence
        newest = last_sequence(self._client, log)
        return newest if newest <= self._sequence else self._count(stored or b"0")

    def record(self) -> RunStatus:
        """Return the run's record; raises RunOver if the learner has left in good order, or leads another run now.

        Raises UserError if the learner goes on with another number of actors in lockstep.
        """
        record = read_record(self._client, self.keys)
        if record and record.run_id != self.keys.run_id:
            raise RunOver("begun another run")
        if record:
            _refuse_other_version(record, self.keys.name)
        if record and record.over:
            raise RunOver(record.status)
        if record and self._crews and record.crews != self._crews:
            raise UserError(
                f"--nb-actor: the learner of run {self.keys.name!r} goes on with another number of actors: start this "
                "one again with the same"
            )
        return record or RunStatus(self.keys.run_id, "running", {}, 0, 0)

    def written_record(self) -> RunStatus:
        """Return the run's record, which a restarted server may have lost: waits until the learner has written it."""
        waiting = self.wait_reporter("the learner to write the run's record again")
        while (record := self.record()).written is None:
            self.pause(waiting)
            self._stop.wait(0.2)
        return record

    def unread(self) -> int:
        """Return how many messages of this actor the learner has not read yet."""
        return max(0, self._sequence - self._read())

    def _read(self) -> int:
        self.known_read = self._count(self._client.hget(self.keys.run, self.keys.read_field(self.actor)) or b"0")
        return self.known_read

    def reports(self) -> ReportStore:
        """Return where the processes of this run keep their reports, on a connection of its own."""
        return ReportStore(self._client, self.keys)

    def newest_version(self) -> int:
        """Return the newest version of the weights that is published, -1 if none is."""
        return newest_version(self._client, self.keys)

    def wait_reporter(self, what: str) -> WaitReporter:
        """Return a reporter of waits for the learner; its lines name the processes that are missing."""
        return WaitReporter(what, hint=self._absent)

    def wait_for_version(self, version: int) -> int:
        """Wait until this or a later version is published, and return the newest; raises RunOver, Stopped."""
        waiting = self.wait_reporter(f"{FOR_WEIGHTS}{version}")
        while (newest := self.newest_version()) < version:
            self.wait_for_change(version, waiting)
        return newest

    def wait_for_change(self, version: int, waiting: WaitReporter) -> None:
        """Wait a moment for this version; the learner writes what it has read at the same time; raises as `pause`."""
        self.pause(waiting)
        self._client.xread({self.keys.versions: f"{version}-0"}, count=1, block=BLOCK_MS)

    def pause(self, waiting: WaitReporter) -> None:
        """Call again and again while waiting: prints what for, and sends again what Redis has lost.

        Raises RunOver, Stopped, RunError or UserError when the wait can bring nothing any more.
        """
        self.record()
        self.lease.check()
        if self._kept and self._kept[-1][1].last > (known := self._known()):
            self._send_again(known)
        waiting.check()
        if self._stop.is_set():
            raise Stopped

    def weights(self, version: int, max_bytes: int = wire.MAX_PAYLOAD_BYTES, *, or_newest: bool = False) -> Packet:
        """Return the weights of this version, or newer ones that have replaced them: see the packet's "version".

        Redis holds older weights after a killed learner was resumed from an earlier checkpoint. Then this call waits
        until the learner publishes the version again; with `or_newest`, it returns the newest weights instead.
        Raises RunError for a value that is no packet of weights, or holds more than `max_bytes` of weights.
        """
        waiting = self.wait_reporter(f"{FOR_WEIGHTS}{version} again")
        while (packet := self._newest_packet(version, max_bytes)) is None or packet.meta["version"] < version:
            self.pause(waiting)
            self._stop.wait(0.1)
            if or_newest:
                version = max(0, self.newest_version())
        return packet

    def _newest_packet(self, version: int, max_bytes: int) -> Packet | None:
        """Return the weights that a replica has, or the master if the replica lags behind."""
        packet = None
        for server in self._weights_from:
            if packet is None or packet.meta["version"] < version:
                packet = self._packet(server, version, max_bytes)
        return packet

    def _packet(self, server: Client, version: int, max_bytes: int) -> Packet | None:
        key = self.keys.weights(version)
        data = server.get(key)
        if data is None:
            return None
        try:
            packet = wire.decode(cast(bytes, data), max_bytes)
            if packet.tag is not wire.Tag.WEIGHTS or not _is_version(packet.meta.get("version")):
                raise wire.WireError("it is no packet of weights")
        except wire.WireError as error:
            raise RunError(f"the weights in Redis, {key}, cannot be used: {error}") from error
        return packet
