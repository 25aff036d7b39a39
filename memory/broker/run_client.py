"""The end of the transport that a process has which follows a run: its record, its weights, and a lease of its own."""

import threading
from typing import Any, Self, cast

from rainbow_iqn_apex.common.errors import DamagedError, Stopped, UserError
from rainbow_iqn_apex.common.waiting import FOR_WEIGHTS, WaitReporter
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.connection import BLOCK_MS, Client, believed
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import Lease
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_record, read_run, server_id
from rainbow_iqn_apex.memory.broker.reports import PLAIN_COMMANDS, Commands, MissingProcesses, ReportStore
from rainbow_iqn_apex.memory.broker.scripts import newest_version
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.memory.wire import Packet

_MOST_LEASE = 400  # bytes: longer than a lease of ours


class RunOver(Stopped):
    """The learner has finished, was stopped, or leads another run; the text names which."""


def wait_for_run(
    client: Client,
    name: str,
    settings: dict[str, Any],
    stop: threading.Event,
    commands: Commands = PLAIN_COMMANDS,
) -> RunStatus:
    """Wait until a learner leads the run of this name; raises UserError if the learner's settings differ from ours.

    A killed learner leaves its record and, for a while, its lease. So other settings are refused only in a record that
    was written during this wait.
    """
    first = read_run(client, name)
    missing = MissingProcesses(client, Keys(name, ""), (), commands)
    waiting = WaitReporter(f"the learner of run {name!r}", hint=missing.all)
    while True:
        record = read_run(client, name)
        if record and record.is_led_by(read_leader(client, Keys(name, ""))):
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


def follow(client: Client, keys: Keys) -> RunStatus | None:
    """Return the run's record; raises RunOver if the learner has left in good order, or leads another run now."""
    return believed(client, lambda: _follow(client, keys), RunOver, DamagedError, UserError)


def _follow(client: Client, keys: Keys) -> RunStatus | None:
    record = read_record(client, keys)
    if record and record.run_id != keys.run_id:
        raise RunOver("begun another run")
    if record:
        _refuse_other_version(record, keys.name)
    if record and record.over:
        raise RunOver(record.status)
    return record


def read_leader(client: Client, keys: Keys) -> bytes:
    """Return whose the learner's lease is, or the beginning of what others have written there; empty for none."""
    return cast(bytes, client.getrange(keys.learner_lease, 0, _MOST_LEASE - 1))


def _is_version(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


class RunClient:
    """Follows a run under a lease of its own, which its subclass gives; use as a context manager.

    `number` is that of the process among those of its kind, whose keys these are. `crews` are those of the run in
    lockstep; the process has to leave if the learner goes on with other crews. While it waits for the learner,
    lines name the processes that are `missing`. `break_stale` is as in `Lease`. With `replicas`, replicas serve the
    weights.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        number: int,
        stop: threading.Event,
        crews: tuple[Crew, ...] = (),
        *,
        own_number: str,
        missing: MissingProcesses | None = None,
        break_stale: bool = False,
        replicas: bool = False,
    ) -> None:
        """`own_number` is the option that gives each process of the kind its number."""
        self.keys = keys
        self.title = keys.title(number)
        self._client = client
        server = client.of(keys.run)
        self._weights_from = [server.replica(), server] if replicas else [server]
        self._stop = stop
        self._crews = crews
        advice = f"give each {keys.title(number).rpartition(' ')[0]} its own {own_number}"
        self.lease = Lease(
            client, keys.actor_lease(number), f"{self.title} of run {keys.name!r}", advice, break_stale=break_stale
        )
        self._missing = missing or MissingProcesses(client, keys, ())

    def __enter__(self) -> Self:
        self.lease.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.lease.__exit__(*error)

    def record(self) -> RunStatus:
        """Return the run's record, and raise what `follow` does.

        Raises UserError if the learner goes on with another number of actors in lockstep.
        """
        record = follow(self._client, self.keys)
        if record and self._crews and record.crews != self._crews:
            raise UserError(
                f"--nb-actor: the learner of run {self.keys.name!r} goes on with another number of actors: start this "
                "one again with the same"
            )
        return record or RunStatus(self.keys.run_id, "running", {}, 0, 0)

    def written_record(self) -> RunStatus:
        """Return the run's record, once the learner has written it to the server as it is now.

        A server that was started again may have lost the record, or have an older one.
        """
        waiting = self.wait_reporter("the learner to write the run's record again")
        server = self._client.of(self.keys.run)
        while (record := self.record()).written is None or record.server not in ("", server_id(server)):
            self.pause(waiting)
            self._stop.wait(0.2)
        return record

    def reports(self) -> ReportStore:
        """Return where the processes of this run keep their reports, on a connection of its own."""
        return ReportStore(self._client, self.keys)

    def newest_version(self) -> int:
        """Return the newest version of the weights that is published, -1 if none is."""
        return newest_version(self._client, self.keys)

    def wait_reporter(self, what: str) -> WaitReporter:
        """Return a reporter of waits for the learner; its lines name the processes that are missing."""
        return WaitReporter(what, hint=self._missing.all)

    def wait_for_version(self, version: int) -> int:
        """Wait until this or a later version is published, and return the newest; raises RunOver, Stopped."""
        waiting = self.wait_reporter(f"{FOR_WEIGHTS}{version}")
        while (newest := self.newest_version()) < version:
            self.wait_for_change(version, waiting)
        return newest

    def wait_for_change(self, version: int, waiting: WaitReporter) -> None:
        """Wait a moment for this version; the learner writes what it has read at the same time; raises as `pause`."""
        self.pause(waiting)
        self.wait_a_moment(version)

    def wait_a_moment(self, version: int) -> None:
        """Wait for this version, a second at most."""
        self._client.xread({self.keys.versions: f"{version}-0"}, count=1, block=BLOCK_MS)

    def pause(self, waiting: WaitReporter) -> None:
        """Call again and again while waiting: prints what for.

        Raises RunOver, Stopped, RunError or UserError when the wait can bring nothing any more.
        """
        self.record()
        self.lease.check()
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
        while (packet := self.newest_packet(version, max_bytes)) is None or packet.meta["version"] < version:
            self.pause(waiting)
            self._stop.wait(0.1)
            if or_newest:
                version = max(0, self.newest_version())
        return packet

    def newest_packet(self, version: int, max_bytes: int) -> Packet | None:
        """Return the weights that a replica has, or the master if the replica lags behind."""
        packet = None
        for server in self._weights_from:
            if packet is None or packet.meta["version"] < version:
                packet = self._packet(server, version, max_bytes)
        return packet

    def weights_checksum(self, version: int) -> bytes:
        """Return the checksum of the weights that the master has in the place of this version; empty for none."""
        return cast(bytes, self._weights_from[-1].getrange(self.keys.weights(version), -4, -1))

    def _packet(self, server: Client, version: int, max_bytes: int) -> Packet | None:
        return believed(server, lambda: self._read_packet(server, version, max_bytes), DamagedError)

    def _read_packet(self, server: Client, version: int, max_bytes: int) -> Packet | None:
        key = self.keys.weights(version)
        data = server.get(key)
        if data is None:
            return None
        try:
            packet = wire.decode(cast(bytes, data), max_bytes)
            if packet.tag is not wire.Tag.WEIGHTS or not _is_version(packet.meta.get("version")):
                raise wire.WireError("it is no packet of weights")
        except wire.WireError as error:
            raise DamagedError(f"the weights in Redis, {key}, cannot be used: {error}") from error
        return packet
