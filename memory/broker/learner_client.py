"""The learner's end of the transport: takes a run over, publishes weights, writes progress, trims the actors' logs."""

import threading
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rainbow_iqn_apex.common.checkout import present
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.broker.admin import forget_run, forget_strays, rewrite_file
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import Lease
from rainbow_iqn_apex.memory.broker.log import READ_AHEAD, ExperienceReader, RoundUnderWay, round_under_way
from rainbow_iqn_apex.memory.broker.record import (
    Owner,
    RunStatus,
    actors_read,
    read_record,
    read_run,
    record_fields,
    server_id,
)
from rainbow_iqn_apex.memory.broker.reports import PLAIN_COMMANDS, Commands, MissingProcesses, ReportStore
from rainbow_iqn_apex.memory.broker.scripts import Scripts, newest_version
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.memory.messages import MessageSchema
from rainbow_iqn_apex.memory.wire import VERSION, WireError, other_version


class Origin(NamedTuple):
    """Where a checkpoint was written; a server without the run's record, or with an older one, cannot go on from it."""

    server: str
    saves: int  # checkpoints of the run, this one among them


def renew(run_id: str) -> str:
    """Return an id for a run that goes on without what a server holds of it: nothing of that can reach it then."""
    return f"{begun_as(run_id)}-{uuid.uuid4().hex[:6]}"


def begun_as(run_id: str) -> str:
    """Return the id with which a run began."""
    return run_id.partition("-")[0]


class LearnerClient:
    """Holds the lease of a run's name; use as a context manager, and `lead` before everything else.

    `folder` is where the run's results are. The experience of another folder's run of this name is deleted only with
    `abandon_other`. Lines about waits name the `commands` of missing actors. With `replicas`, those serve the weights.
    Of `ranks` learners of the run, this is number `rank`: it reads the actors with number mod `ranks` = `rank`. Number
    0 leads, and alone writes; the others `follow`.
    """

    keys: Keys
    record: RunStatus  # as last written; its `t_actors` is the most that it has ever held

    def __init__(
        self,
        client: Client,
        name: str,
        settings: dict[str, Any],
        nb_actor: int,
        *,
        folder: Path = Path(),
        abandon_other: bool = False,
        commands: Commands = PLAIN_COMMANDS,
        shards: int = 1,
        replicas: bool = False,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self._client = client
        self._shards = shards
        self._replicas = replicas
        self._name = name
        self._settings = settings
        self._scripts = Scripts(client)
        self._nb_actor = nb_actor
        self._owner = Owner.of(folder)
        self._code = present()
        self._abandon_other = abandon_other
        self._commands = commands
        self._rank = rank
        self._ranks = ranks
        self._saves = 0  # checkpoints of the run
        self.packets: dict[int, bytes] = {}  # of the two newest versions: an actor may be one behind
        self._publishing = threading.Lock()  # a thread publishes new versions while another restores lost ones
        self.lease = Lease(
            client,
            Keys(name, "").lease_of(rank),
            f"learner {rank} of run {name!r}" if rank else f"a learner of run {name!r}",
            "stop it first, or name this run differently with --run-name",
            break_stale=abandon_other,
            copies=[] if rank else [keys.learner_lease for keys in self._keys_of("").everywhere()[1:]],
        )

    def _keys_of(self, run_id: str) -> Keys:
        return Keys(self._name, run_id, shards=self._shards)

    def __enter__(self) -> "LearnerClient":
        self.lease.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.lease.__exit__(*error)

    def check_name(self, run_id: str, *, afresh: bool = False, origin: Origin | None = None) -> RunStatus | None:
        """Return this run's record, None if there is none; raises UserError if the run may not have its name here.

        A run may replace its own record, and that of a run that has finished. A run that begins `afresh` may also
        replace a run of the same folder: to start afresh there, a person has moved the results away. A run that goes on
        from a checkpoint needs the server of its `origin`: where that is another one, or has come back older, a caller
        who gets None has to go on under an id from `renew`.
        """
        before = read_run(self._client, self._name)
        own = before is not None and before.run_id == run_id
        if before and own and before.wire_version != VERSION:
            raise UserError(
                f"the experience of run {self._name!r} is of another release "
                f"({other_version(before.wire_version)}): go on with that one, or start afresh in another "
                "--path-to-results under another --run-name"
            )
        lacks = self._lacks(before, run_id, origin) if origin else ""
        if own and origin and not lacks:
            lacks = self._shards_lack(run_id, origin)
        if origin and lacks and not self._abandon_other:
            same = origin.server == self._client.where
            raise UserError(
                f"{self._client.where}: this server holds {lacks}, whose checkpoint was written with "
                f"{'it: bring its file back' if same else f'{origin.server}: go on there'}, or give "
                "--abandon-other-run to go on here without the experience from which the run was to go on"
            )
        own_place = afresh and before is not None and before.owner == self._owner
        if not (before is None or own or self._abandon_other or own_place or before.status == "finished"):
            raise UserError(
                f"--run-name: run {self._name!r} on the Redis server is another one than that of {self._owner}: its "
                f"results are in {before.whose}; name this run differently, or give --abandon-other-run to delete what "
                "the server holds of the other"
            )
        return before if own and not lacks else None

    def _shards_lack(self, run_id: str, origin: Origin) -> str:
        """Return what one of several shards holds if that is too old, as `_lacks`: its server may have lost all."""
        shards = self._keys_of("").everywhere()[1:]
        found = (self._lacks(read_record(self._client, keys), run_id, origin) for keys in shards)
        return next(filter(None, found), "")

    def _lacks(self, before: RunStatus | None, run_id: str, origin: Origin) -> str:
        """Return what the server holds if that is too old to go on from a checkpoint; empty if it is not.

        The record may lack the newest checkpoint: a crash may cost the last second of the server's file.
        """
        if before is None:
            return f"nothing of run {self._name!r}"
        if begun_as(before.run_id) != begun_as(run_id):
            return f"nothing of this run {self._name!r}" if before.status == "finished" else ""
        is_older = before.saves + 1 < origin.saves
        if before.run_id == run_id and not is_older:
            return ""
        return f"{'an older' if is_older else 'another'} state of run {self._name!r}, of {before.whose}"

    def lead(
        self, run_id: str, crews: tuple[Crew, ...] = (), *, afresh: bool = False, saves: int = 0, played: int = 0
    ) -> None:
        """Lead this run with these crews; abandon a run of another id that had the name, and delete its keys.

        `saves` counts the checkpoints of the run. `played` are the agent steps after which its newest episode ended:
        actors number their episodes after it where no record of the run does. Raises UserError as `check_name` does.
        """
        own = self.check_name(run_id, afresh=afresh)
        self.keys = self._keys_of(run_id)
        reached = (own.t_learner, own.t_actors) if own else (0, played)  # its actors go on meanwhile, and read it here
        self._saves = max(saves, own.saves) if own else saves
        self.record = RunStatus(
            run_id,
            "starting",
            self._settings,
            *reached,
            crews,
            owner=self._owner,
            saves=self._saves,
            leader=self.lease.token,
            written=int(time.time()),
            code=self._code,
        )
        others = self._take_over()
        rewrite_file(self._client)  # the server may have been started again while no learner ran
        for other in others.values():
            print(f"Deleting the experience of the other run {self._name!r}, of {other.whose}", flush=True)
            forget_run(self._client, self._name, other.run_id)
        forget_strays(self._client, self.keys)

    def _take_over(self) -> dict[str, RunStatus]:
        """Write the run's record, so that actors of another run write no more; return the records of others, by id.

        The record of all comes last: a learner that is killed meanwhile leaves it to its successor, which finds the
        same others. Another run of this name may have had more shards.
        """
        before = read_run(self._client, self._name)
        others = {}
        former = replace(self.keys, shards=before.shards if before else 1).everywhere()
        own = {keys.run: keys for keys in self.keys.everywhere()}
        for keys in reversed(({keys.run: keys for keys in former} | own).values()):
            there = read_record(self._client, keys)
            if keys.run in own:
                self._check_rights(keys, there)
            groups = (keys, replace(keys, evaluation=True))
            other = there is not None and there.run_id != keys.run_id
            void = [dict.fromkeys(actors_read(self._client, group), 0) if other else {} for group in groups]
            self._client.hset(keys.run, mapping=record_fields(self.record, *void))
            if there and other:
                others[there.run_id] = there
        return others

    def _check_rights(self, keys: Keys, there: RunStatus | None) -> None:
        """Trim nothing: so a Redis user without the learner's rights is refused now, not when the replay is full."""
        known = replace(keys, run_id=there.run_id) if there else keys
        mine = (actor for actor in range(self._nb_actor) if keys.holds(actor))
        self._scripts.trim(known, self.lease.token, dict.fromkeys(mine, 0))

    def follow(self, run_id: str) -> None:
        """Take part in this run, which another learner leads."""
        self.keys = self._keys_of(run_id)
        self.record = RunStatus(run_id, "starting", self._settings, 0, 0)

    def missing(self) -> MissingProcesses:
        """Return what names the actors of this learner that are not running."""
        own = range(self._rank, self._nb_actor, self._ranks)
        return MissingProcesses(self._client, self.keys, own, self._commands)

    def inbox(
        self,
        schema: MessageSchema,
        stop: threading.Event,
        *,
        known: int = 0,
        joining: bool = False,
        ahead: int = READ_AHEAD,
        clock: LoopClock | None = None,
    ) -> ExperienceReader:
        """Return a reader of the actors' messages; the arguments are as in `ExperienceReader`."""
        return ExperienceReader(
            self._client,
            self.keys,
            self._nb_actor,
            schema,
            stop,
            missing=self.missing(),
            known=known,
            joining=joining,
            rank=self._rank,
            ranks=self._ranks,
            ahead=ahead,
            clock=clock,
        )

    def evaluation_inbox(self, schema: MessageSchema, stop: threading.Event) -> ExperienceReader:
        """Return a reader of the evaluation actors' messages, whatever their numbers are and whenever they come."""
        return ExperienceReader(self._client, self._evaluation_keys, 0, schema, stop, joining=True)

    @property
    def _evaluation_keys(self) -> Keys:
        return replace(self.keys, evaluation=True)

    def rounds_under_way(self, run_id: str, nb_actor: int) -> tuple[int, dict[int, RoundUnderWay]]:
        """Return the newest round whose weights are published, and the round of each actor that has a state.

        Reads the states of actors 0 to `nb_actor` - 1.
        """
        keys = self._keys_of(run_id)
        playing = {}
        for actor in range(nb_actor):
            with suppress(WireError):
                if round_ := round_under_way(self._client, keys, actor):
                    playing[actor] = round_
        return max(self._newest_versions(keys)), playing

    def _newest_versions(self, keys: Keys) -> list[int]:
        """Return the newest version that is published, by shard: a killed learner may have left some behind."""
        return [newest_version(self._client, shard) for shard in keys.every_shard()]

    def origin(self) -> Origin:
        """Return what a checkpoint of this moment holds of its server; the next record written counts the checkpoint.

        Two checkpoints without a record between them have the same number, so none is ahead of the record by two.
        """
        self._saves = self.record.saves + 1
        return Origin(self._client.where, self._saves)

    def publish(self, version: int, weights: bytes) -> None:
        """Publish weights as `version`, which follows the last.

        Even if publishing fails, `packets` hold the weights afterwards, so that a checkpoint can hold them.
        """
        with self._publishing:
            last = dict(list(self.packets.items())[-1:])
            self.packets = last | {version: weights}
            self.lease.check()
            announced = self._publish({version: weights})
            if announced < max(last, default=-1):  # a restarted broker has lost `last`, and an actor may still need it
                self._publish(self.packets)
                rewrite_file(self._client)

    def publish_alone(self, packets: dict[int, bytes]) -> None:
        """Publish these packets, by version and oldest first, as the only ones."""
        with self._publishing:
            self.packets = packets
            self.lease.check()
            self._publish(packets, restart=True)

    def _publish(self, packets: dict[int, bytes], *, restart: bool = False) -> int:
        """Publish these packets in every shard; return the newest version that all shards had announced before."""
        return min(
            self._scripts.publish(keys, self.lease.token, packets, restart=restart, replicate=self._replicas)
            for keys in self.keys.every_shard()
        )

    def write_progress(
        self, status: str, t_learner: int, t_actors: int, read: dict[int, int], evaluated: dict[int, int] | None = None
    ) -> None:
        """Write the run's record, in which actors read how far the learner is.

        `read` and `evaluated` hold, by actor and by evaluation actor, the number of the last message read. `t_actors`
        of the record never falls: a resumed learner goes back to its checkpoint, but its actors do not.
        """
        self.lease.check()
        now = int(time.time())
        most = max(t_actors, self.record.t_actors)
        record = replace(self.record, status=status, t_learner=t_learner, t_actors=most, saves=self._saves, written=now)
        for keys in reversed(self.keys.everywhere()):  # the record of all comes last: what it holds is true of all
            own = [_of_shard(keys, numbers) for numbers in (read, evaluated or {})]
            record = replace(record, server=server_id(self._client.of(keys.run)))
            self._scripts.write_record(keys, self.lease.token, record_fields(record, *own))
        self.record = record

    def restore_weights(self) -> None:
        """Publish the weights again if they are lost, or not the newest, as after a broker's restart: actors wait."""
        self.lease.check()
        with self._publishing:
            newest = max(self.packets, default=-1)
            known = self._newest_versions(self.keys) if self.packets else [newest]
            places = [shard.weights(version) for shard in self.keys.every_shard() for version in self.packets]
            if not all(map(self._client.exists, places)) or {*known} != {newest}:
                self._publish(self.packets)
            if min(known) < newest:  # a server has been started again
                rewrite_file(self._client)

    def reports(self) -> ReportStore:
        """Return where the processes of this run keep their reports, on a connection of its own."""
        return ReportStore(self._client, self.keys)

    def trim(self, oldest: dict[int, int], *, evaluation: bool = False) -> None:
        """Drop the messages of each actor, or evaluation actor, that are older than the given sequence number."""
        keys = self._evaluation_keys if evaluation else self.keys
        for shard in keys.every_shard():
            if own := _of_shard(shard, oldest):
                self._scripts.trim(shard, self.lease.token, own)


def _of_shard(keys: Keys, numbers: dict[int, int]) -> dict[int, int]:
    """Return the numbers of the actors that live in a shard."""
    return {actor: number for actor, number in numbers.items() if keys.holds(actor)}
