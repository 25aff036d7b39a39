"""An actor's end of the transport: joins a run, appends experience, fetches weights."""

import threading
import time
from collections import deque
from typing import Any, NamedTuple, cast

from rainbow_iqn_apex.common.errors import DamagedError, RunError
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.connection import Client, believed
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import is_fresh
from rainbow_iqn_apex.memory.broker.log import round_in
from rainbow_iqn_apex.memory.broker.record import whole_number
from rainbow_iqn_apex.memory.broker.reports import MissingProcesses
from rainbow_iqn_apex.memory.broker.run_client import RunClient, read_leader
from rainbow_iqn_apex.memory.broker.scripts import (
    Commit,
    Scripts,
)
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.memory.messages import Message, encode_message

_KEPT_S = 5.0  # for sending again what a broker's restart has lost: the broker syncs its file every second


class Saved(NamedTuple):
    """State of an actor, and the number of its last message."""

    state: bytes
    sequence: int

    @property
    def round(self) -> int:
        """Return the round that the actor plays next; raises WireError for a state that does not hold it."""
        return round_in(self.state).number


class ActorClient(RunClient):
    """Appends one actor's messages under its lease; use as a context manager.

    With `evaluation` the actor is an evaluation actor, whose messages go to a log of their own. All keys that the
    client reads and writes are in the shard of the actor, one of `shards`. The rest is as in `RunClient`.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        run_id: str,
        actor: int,
        stop: threading.Event,
        crews: tuple[Crew, ...] = (),
        *,
        evaluation: bool = False,
        missing: MissingProcesses | None = None,
        break_stale: bool = False,
        shards: int = 1,
        replicas: bool = False,
    ) -> None:
        keys = Keys(name, run_id, evaluation, shards).beside(actor)
        super().__init__(
            client,
            keys,
            actor,
            stop,
            crews,
            own_number="--id-eval-actor" if evaluation else "--id-actor",
            missing=missing,
            break_stale=break_stale,
            replicas=replicas,
        )
        self.actor = actor
        self._scripts = Scripts(client)
        self.sequence = 0  # of the last message
        self.known_read = 0  # of the last message that the learner had read when this client last looked
        self._kept: deque[tuple[float, Commit]] = deque()

    def wait_for_living_learner(self) -> None:
        """Where there is a state, wait until the learner has renewed its lease of late; raises as `pause` does.

        A killed learner leaves its record and its lease. If Redis has been restarted, both may be from before what the
        checkpoint holds, as the state is, and only the next learner tells how far it goes on from.
        """
        if not self._client.exists(self.keys.state(self.actor)):
            return
        waiting = self.wait_reporter("the learner to renew its lease")
        while not self._learner_lives():
            self.pause(waiting)
            self._stop.wait(0.2)

    def _learner_lives(self) -> bool:
        leader = read_leader(self._client, self.keys)
        return self.record().is_led_by(leader) and is_fresh(self._client.pttl(self.keys.learner_lease))

    def saved(self, *, repeats: bool = False) -> Saved | None:
        """Return the state that this actor's predecessor stored with its last message, None to join anew.

        The learner may have read messages that a broker's restart has lost since; it goes on with the number after
        them. An actor that `repeats` exactly what its predecessor did gives the lost messages their old numbers again.
        Any other actor joins anew, and gives its messages the numbers after the lost ones.
        """
        state, sequence = self._client.hmget(self.keys.state(self.actor), "state", "sequence")
        known = self.sequence = self._count(sequence or b"0")
        is_whole = known >= self._read()  # else the state is older than what the learner goes on from
        if state is None or not repeats:
            self.pass_read()
        if state is None or not (is_whole or repeats):
            return None
        return Saved(cast(bytes, state), known)

    def pass_read(self) -> None:
        """Give the next messages numbers after all that the learner has read, also where Redis has lost those."""
        if self.known_read > self.sequence:
            unknown = f"messages {self.sequence + 1} to {self.known_read} of {self.title}"
            print(f"The learner has read {unknown}, which Redis does not hold: going on after them", flush=True)
            self.sequence = self.known_read

    def _count(self, text: Any) -> int:
        try:
            return whole_number(text)
        except ValueError as error:
            what = f"what Redis holds of {self.title} in run {self.keys.name!r}"
            raise DamagedError(f"{what} is damaged: {error}") from error

    def commit(self, messages: list[Message], state: bytes) -> None:
        """Append messages and store the state after them, exactly once; raises RunError if that is impossible."""
        self.lease.check()
        commit = Commit(self.sequence + 1, [encode_message(message) for message in messages], state)
        written = self._append(commit)
        now = time.monotonic()
        self._kept.append((now, written))
        while self._kept[0][0] < now - _KEPT_S:
            self._kept.popleft()

    def _append(self, commit: Commit, *, allow_gap: bool = False) -> Commit:
        """Append a commit, after those that Redis has lost, and return the commit with its final numbers."""
        try:
            known = self._scripts.commit(self.keys, self.actor, self.lease.token, commit, allow_gap=allow_gap)
        except RunError:
            self.record()  # raises RunOver if the learner has left, or leads another run
            raise
        if known is None:
            self.sequence = commit.last
            return commit
        if known < commit.first:
            self._send_again(known)
            return self._append(commit, allow_gap=True)
        log = self.keys.log(self.actor)
        print(f"Going on with the next number: another client has written message {known} to {log}", flush=True)
        return self._append(commit._replace(first=known + 1), allow_gap=True)

    def _send_again(self, known: int) -> None:
        print(f"Redis holds the messages of {self.title} up to {known} of {self.sequence}: sending again", flush=True)
        lost = [(at, self._append(commit, allow_gap=True)) for at, commit in self._kept if commit.last > known]
        self._kept = deque([kept for kept in self._kept if kept[1].last <= known] + lost)

    def unread(self) -> int:
        """Return how many messages of this actor the learner has not read yet."""
        return max(0, self.sequence - self._read())

    def _read(self) -> int:
        field = self.keys.read_field(self.actor)
        self.known_read = believed(
            self._client, lambda: self._count(self._client.hget(self.keys.run, field) or b"0"), DamagedError
        )
        return self.known_read

    def pause(self, waiting: WaitReporter) -> None:
        """Send again what Redis has lost, beside what `RunClient` does while it waits."""
        super().pause(waiting)
        if self._kept:
            known = self._count(self._client.hget(self.keys.state(self.actor), "sequence") or b"0")
            if known < self._kept[-1][1].last:
                self._send_again(known)
