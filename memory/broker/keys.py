"""The Redis server as this project uses it: key names and scripts.

All keys of a run carry the hash tag `{<run name>}`: they live on one node of a cluster and a script may touch several.
A run of S > 1 shards has, beside these, the tags `{<run name>/<k>}`, k < S, see `tag_of_shard`.
Actor i lives in shard i mod S: all that a script of an actor touches has one tag.

    riqx:{name}                     hash: run id, settings, status, progress - the registry's record of the run
    riqx:{name}:learner             lease of the learner: a random value and its owner, see leases.py
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
    riqx:{name}:<id>:actor:<actor>:report  what the actor last reported of itself, see reports.py
    riqx:{name}:<id>:learner:report        and the learner
    riqx:{name}:<id>:actor:<actor>:view    what the actor sees, while a channel of that name has listeners, see reports
    riqx:{name}:<id>:evaluation:...      actors, log, state and actor again, of the evaluation actors
    riqx:{name}:<id>:inference:...       actors and actor again, of the inference servers, see inference_servers.py
    riqx:{name}:<id>:evaluation:actor:film:<place>  film of the best or the newest evaluation episode, see reports.py

The run id is new with every fresh start, so that nothing of an abandoned run can reach its successor. Only commands of
Redis 6.2 are used, and none that touches the keys of others.
"""

from dataclasses import dataclass, replace
from functools import cache

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

SLOTS = REDIS_CLUSTER_HASH_SLOTS


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key, as a cluster computes it."""
    return key_slot(key if isinstance(key, bytes) else key.encode())


@cache
def tag_of_shard(name: str, shard: int, shards: int) -> str:
    """Return the tag of a shard of a run of this name: `<name>/<shard>`, or with a further number behind it.

    The slots are as many equal parts as there are shards, and the tag's slot is in the part of its shard. A new cluster
    has a part for each master: so a run of as many shards as masters has one shard in each, and not by chance two.
    """
    plain = f"{name}/{shard}"
    for number in range(100 * shards):
        tag = f"{plain}.{number}" if number else plain
        if slot_of(f"{{{tag}}}") * shards // SLOTS == shard:
            return tag
    return plain  # a brace in the name ends the tag, so that all shards have the same slot


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
