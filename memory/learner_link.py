"""The learner's end of the transport: takes the run over, publishes weights and progress, trims what replay evicted."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from memory.connection import Client
from memory.errors import UserError
from memory.inbox import Decoder, Inbox
from memory.lease import Lease
from memory.limiter import Crew
from memory.run_record import RunRecord, read_run, record_fields, write_run
from memory.story import Reach
from memory.transport import Keys, Scripts, forget_run, last_sequence, newest_version
from memory.wire import VERSION, other_version


class LearnerLink:
    """Holds the lease of a run's name; use as a context manager, and `lead` before everything else."""

    keys: Keys

    def __init__(self, client: Client, name: str, settings: dict[str, Any], nb_actor: int) -> None:
        self._client = client
        self._name = name
        self._settings = settings
        self._scripts = Scripts(client)
        self._nb_actor = nb_actor
        self._weights: dict[int, bytes] = {}  # of the two newest versions: an actor may be one behind
        self._publishing = threading.Lock()  # a thread publishes new versions while another restores lost ones
        self.lease = Lease(
            client,
            Keys(name, "").learner_lease,
            f"a learner of run {name!r}",
            "stop it first, or name this run differently with --run-name",
        )

    def __enter__(self) -> "LearnerLink":
        self.lease.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.lease.__exit__(*error)

    def lead(self, run_id: str, crews: tuple[Crew, ...] = ()) -> None:
        """Lead this run with these crews; abandon one of another id that had the name, and delete its keys."""
        self.keys = Keys(self._name, run_id)
        self._record = RunRecord(run_id, "starting", self._settings, 0, 0, crews)
        before = read_run(self._client, self._name)
        if before and before.run_id == run_id and before.wire_version != VERSION:
            raise UserError(
                f"the experience of run {self._name!r} is of another release ({other_version(before.wire_version)}): "
                "go on with that one, or start afresh in another --path-to-results"
            )
        if before and before.run_id == run_id:  # its actors go on meanwhile, and look how far the run is
            self._record = replace(self._record, t_learner=before.t_learner, t_actors=before.t_actors)
        # A Redis user without the learner's rights is refused now, not when the replay is full: this trims nothing.
        known = Keys(self._name, before.run_id) if before else self.keys
        self._scripts.trim(known, self.lease.token, dict.fromkeys(range(self._nb_actor), 0))
        write_run(self._client, self._name, self._record, {})  # first, so that actors of the old run write no more
        if before and before.run_id != run_id:
            forget_run(self._client, self._name, before.run_id)

    def inbox(
        self, decode: Decoder, stop: threading.Event, idle: Callable[[], None], reach: Callable[[], Reach], *,
        known: int = 0, joining: bool = False,
    ) -> Inbox:  # fmt: skip
        """All messages of the actors, within their `reach`; `idle` is called while the learner waits for them.

        Logs of as many actors as `known` are read, also of those that have left. With `joining`, actors of other
        numbers are taken in.
        """
        return Inbox(
            self._client, self.keys, self._nb_actor, decode, stop, idle, reach=reach, known=known, joining=joining
        )

    @property
    def told(self) -> int:
        """Most agent steps that the run's record has ever told the actors, also for learners before this one."""
        return self._record.t_actors

    def last_sequence(self, actor: int) -> int:
        """Number of the newest message of an actor that Redis knows, 0 for none."""
        return last_sequence(self._client, self.keys.log(actor))

    def publish(self, version: int, weights: bytes, *, restart: bool = False) -> None:
        """Publish weights as `version`; `restart` makes it the only one known."""
        self.lease.check()
        with self._publishing:
            last = {} if restart else dict(list(self._weights.items())[-1:])
            announced = self._scripts.publish(self.keys, self.lease.token, {version: weights}, restart=restart)
            self._weights = last | {version: weights}
            if announced < max(last, default=-1):  # a restarted broker has lost it, and an actor may need it still
                self._scripts.publish(self.keys, self.lease.token, self._weights, restart=False)

    def progress(self, status: str, t_learner: int, t_actors: int, read: dict[int, int]) -> None:
        """Write the run's record; publish the weights again if they are not the newest, as after a broker's restart.

        `t_actors` of the record never falls: a learner that resumes goes back, but no actor has played less since.
        """
        self.lease.check()
        most = max(t_actors, self.told)
        self._record = replace(self._record, status=status, t_learner=t_learner, t_actors=most)
        self._scripts.write_record(self.keys, self.lease.token, record_fields(self._record, read))
        with self._publishing:
            if self._weights and newest_version(self._client, self.keys) != max(self._weights):
                self._scripts.publish(self.keys, self.lease.token, self._weights, restart=False)

    def trim(self, oldest: dict[int, int]) -> None:
        """Drop the messages of each actor that are older than the given sequence number."""
        self._scripts.trim(self.keys, self.lease.token, oldest)
