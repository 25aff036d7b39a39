"""The Redis server as this project uses it: key names and scripts.

All keys of a run carry the hash tag `{<run name>}`: they live on one node of a cluster and a script may touch several.
A run of S > 1 shards has, beside these, the tags `{<run name>/<k>}`, k < S, some with a further number, see slots.py.
Actor i lives in shard i mod S: all that a script of an actor touches has one tag.

    riqx:{name}                     hash: run id, settings, status, progress - the registry's record of the run
    riqx:{name}:learner             lease of the learner: a random value and its owner, see memory/broker/lease_owner.py
    riqx:{name}:rank:<r>            lease of learner r of several, from 1 on, as of the learner, which is number 0
    riqx:{name/k}:run               copy of the record in a shard, with the fields `read:<actor>` of its actors
    riqx:{name/k}:leader            copy of the learner's lease

With several shards the following have the tag of a shard, but for the learner's report and films.

    riqx:{name}:<id>:versions       stream of published weights versions, entry id = version-1, as 0-0 is none
    riqx:{name}:<id>:weights:<k>    packet with the weights of version v, k = v mod 2
    riqx:{name}:<id>:actors         stream of the actors' numbers, one entry when an actor's log begins
    riqx:{name}:<id>:log:<actor>    stream of the actor's messages, entry id = sequence number
    riqx:{name}:<id>:state:<actor>  hash: state, sequence, owner - what the actor needs to go on after its last message
    riqx:{name}:<id>:actor:<actor>  lease of the actor
    riqx:{name}:<id>:quarantine:<actor>  stream of messages that could not be read, see quarantine.py
    riqx:{name}:<id>:actor:<actor>:report  what the actor last reported of itself, see reports.py
    riqx:{name}:<id>:learner:report        and the learner
    riqx:{name}:<id>:actor:<actor>:view    what the actor sees, while a channel of that name has listeners, see views.py
    riqx:{name}:<id>:evaluation:...      actors, log, state, actor and quarantine again, of the evaluation actors
    riqx:{name}:<id>:inference:...       actors and actor again, of the inference servers, see inference_servers.py
    riqx:{name}:<id>:evaluation:actor:film:<place>  film of the best or the newest evaluation episode, see films.py

The run id is new with every fresh start, so that nothing of an abandoned run can reach its successor. Only commands of
Redis 6.2 are used, and none that touches the keys of others.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

from rainbow_iqn_apex.common.errors import LeaseLostError, RunError
from rainbow_iqn_apex.memory.broker import lua
from rainbow_iqn_apex.memory.broker.connection import Argument, Client, ResponseError, believed
from rainbow_iqn_apex.memory.broker.script import Script
from rainbow_iqn_apex.memory.broker.slots import tag_of_shard

READ_BYTES = 1 << 24  # of one read of streams, however many entries of however many actors
CUT_BYTES = 1 << 14  # what is read of a message that is too large
MAX_SEQUENCE = 2**53  # of a message: the scripts in Redis count with floating-point numbers

_Key = TypeVar("_Key", str, bytes)


@dataclass(frozen=True)
class Keys:
    """Names of a run's keys (bytes-safe ASCII): with `evaluation`, its evaluation actors' in the place of its actors'.

    With `inference`, those of its inference servers. Learner, weights and the run's record are the same for all.
    """

    name: str
    run_id: str
    evaluation: bool = False
    shards: int = 1
    shard: int | None = None  # whose keys these are; None: those that a run has once, which are all keys of one shard
    inference: bool = False

    def every_shard(self) -> list["Keys"]:
        """Return the keys of each shard."""
        return [self] if self.shards == 1 else [replace(self, shard=shard) for shard in range(self.shards)]

    def everywhere(self) -> list["Keys"]:
        """Return the keys that a run has once, and those of each shard."""
        return [self] if self.shards == 1 else [self, *self.every_shard()]

    def beside(self, actor: int) -> "Keys":
        """Return the keys of the shard in which an actor lives."""
        return self if self.shards == 1 else replace(self, shard=actor % self.shards)

    def holds(self, actor: int) -> bool:
        """Return whether an actor lives in this shard."""
        return self.shards == 1 or actor % self.shards == self.shard

    @property
    def tag(self) -> str:
        """Beginning of all these keys, which decides where a cluster has them."""
        tag = self.name if self.shard is None else tag_of_shard(self.name, self.shard, self.shards)
        return f"riqx:{{{tag}}}"

    @property
    def run(self) -> str:
        """The registry's record of the run, or a shard's copy of it."""
        return self.tag if self.shard is None else f"{self.tag}:run"

    @property
    def learner_lease(self) -> str:
        """Lease of the learner, shared by all runs of this name, or a shard's copy of it."""
        return f"{self.tag}:learner" if self.shard is None else f"{self.tag}:leader"

    @property
    def beginning(self) -> str:
        """Beginning of all keys with the run's id."""
        return f"{self.tag}:{self.run_id}:"

    def lease_of(self, rank: int) -> str:
        """Return the lease of one of several learners; that of the first is the learner's."""
        return f"{self.run}:rank:{rank}" if rank else self.learner_lease

    @property
    def _group(self) -> str:
        kind = "inference:" if self.inference else "evaluation:" if self.evaluation else ""
        return f"{self.beginning}{kind}"

    def _of(self, what: str, actor: int) -> str:
        return f"{self.beside(actor)._group}{what}:{actor}"

    def title(self, actor: int) -> str:
        """Name of an actor, or of an inference server, for people."""
        if self.inference:
            return f"inference server {actor}"
        return f"evaluation actor {actor}" if self.evaluation else f"actor {actor}"

    def read_field(self, actor: int) -> str:
        """Field of the run's record with the number of the actor's last message that the learner has read."""
        return f"evaluated:{actor}" if self.evaluation else f"read:{actor}"

    @property
    def versions(self) -> str:
        """Stream of weights versions."""
        return f"{self.beginning}versions"

    def weights(self, version: int) -> str:
        """Weights of a version; two slots, for in lockstep the actors are at most one version behind."""
        return f"{self.beginning}weights:{version % 2}"

    @property
    def actors(self) -> str:
        """Stream of the numbers of the actors that have a log."""
        return f"{self._group}actors"

    def log(self, actor: int) -> str:
        """Stream of an actor's messages."""
        return self._of("log", actor)

    def state(self, actor: int) -> str:
        """State that goes with the last message."""
        return self._of("state", actor)

    def actor_lease(self, actor: int) -> str:
        """Lease of an actor id."""
        return self._of("actor", actor)

    def report(self, actor: int) -> str:
        """Newest report of an actor; it begins as the lease does, whose right covers it."""
        return f"{self.actor_lease(actor)}:report"

    @property
    def learner_report(self) -> str:
        """Newest report of the learner."""
        return f"{self.beginning}learner:report"

    def view(self, actor: int) -> str:
        """What the actor sees, and the channel whose listeners want it; it begins as the lease does, as `report`."""
        return f"{self.actor_lease(actor)}:view"

    def film(self, place: str) -> str:
        """Film of the best or the newest episode; it begins as a lease does, whose right covers it."""
        return f"{self._group}actor:film:{place}"

    def quarantine(self, actor: int) -> str:
        """Stream of an actor's messages that could not be read."""
        return self._of("quarantine", actor)


class Commit(NamedTuple):
    """Messages `first`, `first + 1`, ... of an actor, at least one, and its state after them."""

    first: int
    messages: list[bytes]
    state: bytes

    @property
    def last(self) -> int:
        """Sequence number of the last message."""
        return self.first + len(self.messages) - 1


class HeldLease(NamedTuple):
    """A lease as read by a process that does not hold it."""

    value: bytes  # its beginning; empty for none
    left_ms: float  # infinite for one that never expires


class RawMessage(NamedTuple):
    """An entry of an actor's log, or of the stream of actors, as it was read."""

    id: bytes
    size: int  # of the message in the log
    data: bytes  # the message, or its beginning if it is too large


def raw_message(entry_id: bytes, fields: dict[bytes, bytes]) -> RawMessage:
    """Return an entry from its parts in XREAD's reply."""
    data = fields.get(b"m", fields.get(b"actor", b""))
    return RawMessage(entry_id, len(data), data)


class NumberTakenError(Exception):
    """Another client has written to an actor's log up to this number: the actor must use the numbers after it."""

    def __init__(self, keys: Keys, actor: int, last: int) -> None:
        super().__init__(f"another client has written message {last} to {keys.log(actor)}")
        self.last = last


class Scripts:
    """Runs the server-side scripts, one method each."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._commit = Script(client, lua.COMMIT, durable=True)
        self._publish = Script(client, lua.PUBLISH)
        self._record = Script(client, lua.RECORD, durable=True)
        self._trim = Script(client, lua.TRIM)
        self._enlist = Script(client, lua.ENLIST)
        self._passed = Script(client, lua.PASSED)
        self._renew = Script(client, lua.RENEW)
        self._read_lease = Script(client, lua.READ_LEASE)
        self._break_lease = Script(client, lua.BREAK_LEASE)
        self._read = Script(client, lua.READ)

    def commit(self, keys: Keys, actor: int, token: bytes, commit: Commit, *, allow_gap: bool) -> int | None:
        """Append messages and store the state in one step, if the lease is held.

        Returns None when the commit is done, or was done before. If Redis has lost the message before `commit.first`,
        and `allow_gap` is not set, returns the number of the last message that Redis holds. Raises NumberTakenError if
        another client has used one of these numbers or a later one, RunError if the lease is lost or Redis refuses.
        """
        names = [keys.log(actor), keys.state(actor), keys.actor_lease(actor), keys.run, keys.actors]
        values: list[Argument] = [token, commit.first, int(allow_gap), actor, commit.state, *commit.messages]
        try:
            known = believed(self._client, lambda: int(self._commit(names, values)), TypeError, ValueError)
        except ResponseError as error:
            if "LEASELOST" in str(error):
                raise LeaseLostError(
                    f"{keys.title(actor)} lost its lease: another process may have taken its place"
                ) from error
            if taken := re.search(r"TAKEN (\d+)", str(error)):
                raise NumberTakenError(keys, actor, int(taken[1])) from error
            if "last possible ID" in str(error):
                raise RunError(
                    f"{keys.title(actor)} cannot join: another client has written the greatest id to the Redis key "
                    f"{keys.actors}; start the learner again, which writes that key anew"
                ) from error
            raise RunError(f"Redis refused the messages of {keys.title(actor)}: {error}") from error
        return None if known == -1 else known

    def publish(
        self, keys: Keys, token: bytes, weights: dict[int, bytes], *, restart: bool, replicate: bool = False
    ) -> int:
        """Store the weights of these versions, oldest first, and announce the versions, in one step.

        Returns the newest version that was announced before, -1 for none; `restart` first deletes all announced before.
        With `replicate`, the server's replicas get them, too.
        Only a learner may call this method, `write_record`, `trim` and `enlist`. They raise RunError if the learner's
        lease is lost, or the run was abandoned.
        """
        slots = [keys.weights(version) for version in weights]
        values = [part for item in weights.items() for part in item]
        return self._lead(self._publish, keys, token, [keys.versions, *slots], [int(restart), int(replicate), *values])

    def write_record(self, keys: Keys, token: bytes, fields: dict[str, Argument]) -> None:
        """Write fields of the run's record."""
        self._lead(self._record, keys, token, [], [part for field in fields.items() for part in field])

    def trim(self, keys: Keys, token: bytes, oldest: dict[int, int]) -> None:
        """Drop the messages of each actor that are older than the given sequence number."""
        self._lead(self._trim, keys, token, [keys.log(actor) for actor in oldest], list(oldest.values()))

    def enlist(self, keys: Keys, token: bytes, actors: list[int]) -> None:
        """Replace the stream of actors by one of these."""
        self._lead(self._enlist, keys, token, [keys.actors], actors)

    def passed(self, positions: dict[_Key, bytes]) -> dict[_Key, bytes]:
        """Return, by stream, the position after which all entries will come: later than given if unread ones are gone.

        A server that was started again may have lost the entries up to a position: then an earlier one is returned.
        """
        return dict(zip(positions, self._passed(list(positions), list(positions.values())), strict=True))

    def read(self, positions: dict[_Key, bytes], most: int) -> list[tuple[_Key, list[RawMessage]]]:
        """Return the messages after these positions, by stream: at most `most` bytes of them, but at least one message.

        A message that is larger than `most` by itself is cut to its beginning.
        """
        found = self._read(list(positions), [most, CUT_BYTES, *positions.values()])
        streams = zip(positions, found, strict=True)
        return [(stream, [RawMessage(*message) for message in messages]) for stream, messages in streams if messages]

    def _lead(self, script: Script, keys: Keys, token: bytes, more: list[str], arguments: Sequence[Argument]) -> int:
        try:
            return int(script([keys.learner_lease, keys.run, *more], [token, keys.run_id, *arguments]))
        except ResponseError as error:
            if "LEASELOST" not in str(error):
                raise
            raise LeaseLostError(f"the learner of run {keys.name!r} lost its lease to another process") from error

    def renew(self, key: str, token: bytes, ttl_ms: int) -> bool:
        """Prolong a lease, also one that a broker's restart has lost; False if another process holds it."""
        return bool(self._renew([key], [token, ttl_ms]))

    def read_lease(self, key: str) -> HeldLease:
        """Return who holds a lease, and how long the lease still lasts."""
        value, left = self._read_lease([key])
        return HeldLease(value, math.inf if left == -1 else max(0, left))

    def break_lease(self, key: str, value: bytes, longest_ms: int) -> None:
        """Take a lease from the holder with this value if it lasts for longer than `longest_ms`."""
        self._break_lease([key], [value, longest_ms])


class Extent(NamedTuple):
    """Holds which messages a log had at a moment."""

    newest: int  # sequence number of its newest message, up to MAX_SEQUENCE; 0 for none
    last: int  # of the last message ever appended, trimmed or not; 0 for none
    start: bytes  # position after which all its messages come: of an emptied log the last message's


def log_extent(client: Client, key: str) -> Extent:
    """Return what an actor's log holds now."""
    newest, last, start = cast(list[bytes], client.eval(lua.EXTENT, 1, key, str(MAX_SEQUENCE)))
    return Extent(sequence_of(newest), sequence_of(last), start)


def last_sequence(client: Client, key: str) -> int:
    """Return the sequence number of the last message ever appended to a log, trimmed or not; 0 for none."""
    return log_extent(client, key).last


def sequence_of(entry_id: bytes) -> int:
    """Return the sequence number in an entry's id."""
    return int(entry_id.split(b"-")[0])


def newest_version(client: Client, keys: Keys) -> int:
    """Return the newest weights version published, -1 if there is none."""
    return believed(client, lambda: _newest_version(client, keys), TypeError, ValueError, LookupError, AttributeError)


def _newest_version(client: Client, keys: Keys) -> int:
    reply: Any = client.xrevrange(keys.versions, count=1)
    return int(reply[0][0].split(b"-")[0]) if reply else -1
