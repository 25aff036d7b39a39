"""A simulation of many actors, by the costs that `costs.py` measures: which process gives first, at which size.

Redis's servers, each learner's reader and its loop serve one job after the other, in the order in which jobs come. An
actor computes its commit, and the server of its shard appends it. A reader reads what its shards hold when it is idle,
and decodes it. The loop adds the chunks to the replay, and makes no updates; a reader that is 256 messages ahead of the
loop waits. Where `cores` says so, all jobs share these cores, as on one machine.
"""

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

_AHEAD = 256  # messages that a reader is ahead of the loop, at most
_AT_ONCE = 512  # messages of one read, at most: about READ_BYTES would be more
_PORTION = 32  # messages that are simulated together
_TICK_S = 0.1  # between two portions of what actors cost by being there


class Each(NamedTuple):
    """Holds processor seconds of one cause, by the process that spends them."""

    redis: float = 0.0
    reader: float = 0.0
    loop: float = 0.0
    actor: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Holds what each cause costs."""

    commit: Each  # a script's call with an actor's state
    chunk: Each  # from the commit to the replay
    read: Each  # of streams
    stream: Each  # of these, each that is asked for
    present: Each  # a second of an actor's lease, and the look whether its messages are gone
    announced: Each  # of an actor: the number of its last message, in the run's record
    report: Each  # an actor's own, each second
    fetch: Each  # of weights
    publish: Each  # of weights, to one server
    weights_bytes: float
    chunk_bytes: float
    state_bytes: float


@dataclass(frozen=True)
class Setting:
    """Describes a run: all numbers that are none of a learner's are over all its ranks."""

    actors: int
    chunks: int  # of a commit
    interval_s: float  # between two commits of an actor; 0: as fast as it can
    shards: int = 1
    ranks: int = 1  # of the learner
    replicas: int = 0  # of each shard, which weights are fetched from
    fetch_s: float = math.inf  # between two fetches of weights of an actor
    publish_s: float = math.inf
    announcements: float = 1.0  # a second
    reports: bool = True
    cores: float = math.inf  # for everything


@dataclass(frozen=True)
class Load:
    """Holds what a run came to: processor seconds a second, of the busiest where there are several, and rates."""

    redis: float
    replica: float
    reader: float
    loop: float
    actors: float  # all together
    offered: float  # chunks a second
    taken: float  # of these, into the replay
    reads: float  # a second
    wait_s: float  # for an acknowledged commit, on average
    network: float  # bits a second, of the busiest server

    @property
    def learner(self) -> float:
        """Return the processor seconds of a learner's two threads."""
        return self.reader + self.loop


class _Server:
    """Serves one job at a time, in the order of the calls; on `cores`, if these are few."""

    def __init__(self, cores: list[float]) -> None:
        self.busy = self.free_at = 0.0
        self._cores = cores  # when each is free

    def serve(self, now: float, seconds: float) -> float:
        """Return when a job of now will be done."""
        start = max(now, self.free_at)
        if self._cores:
            start = max(start, self._cores[0])
            heapq.heapreplace(self._cores, start + seconds)
        self.busy += seconds
        self.free_at = start + seconds
        return self.free_at


class _Rank:
    """Holds a learner: what it has not read yet of each shard, and whether it reads there."""

    def __init__(self, cores: list[float], shards: int) -> None:
        self.reader, self.loop = _Server(cores), _Server(cores)
        self.unread = [0] * shards
        self.reads_now = [False] * shards


class _Run:
    """Simulates one run."""

    def __init__(self, costs: Costs, setting: Setting, seconds: float) -> None:
        cores = [0.0] * int(setting.cores) if setting.cores < math.inf else []
        self.costs, self.setting, self.seconds = costs, setting, seconds
        self.random = random.Random(0)
        self.shards = [_Server(cores) for _ in range(setting.shards)]
        self.replicas = [_Server([]) for _ in range(setting.shards * setting.replicas)]
        self.ranks = [_Rank(cores, setting.shards) for _ in range(setting.ranks)]
        self.actors = [_Server(cores) for _ in range(setting.actors)]
        self.offered = self.taken = self.reads = self.commits = 0
        self.waited = self.sent = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[..., None], *given: Any) -> None:
        """Let something happen, after all that happens before."""
        self._count += 1
        heapq.heappush(self._events, (when, self._count, what, given))

    def run(self) -> None:
        """Let everything happen that begins within the time."""
        setting = self.setting
        for actor in range(setting.actors):
            self.at(self.random.random() * setting.interval_s, self.compute, actor)
            if setting.fetch_s < math.inf:
                self.at(self.random.random() * setting.fetch_s, self.fetch, actor)
        self.at(0.0, self.tick)
        if setting.publish_s < math.inf:
            self.at(setting.publish_s, self.publish)
        while self._events and self._events[0][0] < self.seconds:
            when, _, what, given = heapq.heappop(self._events)
            what(when, *given)

    def compute(self, now: float, actor: int) -> None:
        """Let an actor put a commit together."""
        costs, chunks = self.costs, self.setting.chunks
        self.at(self.actors[actor].serve(now, costs.commit.actor + chunks * costs.chunk.actor), self.commit, actor, now)

    def commit(self, now: float, actor: int, began: float) -> None:
        """Append a commit; its actor goes on when that is acknowledged."""
        costs, chunks, shard = self.costs, self.setting.chunks, actor % self.setting.shards
        done = self.shards[shard].serve(now, costs.commit.redis + chunks * costs.chunk.redis)
        self.waited += done - now
        self.commits += 1
        self.offered += chunks
        self.sent += chunks * costs.chunk_bytes + costs.state_bytes
        self.at(done, self.arrive, actor)
        self.at(max(done, began + self.setting.interval_s), self.go_on, actor)

    def go_on(self, now: float, actor: int) -> None:
        """Let an actor commit again, unless a learner that is far behind keeps it waiting."""
        rank = self.ranks[actor % self.setting.ranks]
        if rank.unread[actor % self.setting.shards] > 64 * self.setting.actors:
            self.at(now + 0.01, self.go_on, actor)
        else:
            self.compute(now, actor)

    def arrive(self, now: float, actor: int) -> None:
        """Let the messages of a commit wake its reader."""
        rank, shard = self.ranks[actor % self.setting.ranks], actor % self.setting.shards
        rank.unread[shard] += self.setting.chunks
        if not rank.reads_now[shard]:
            rank.reads_now[shard] = True
            self.read(now, rank, shard)

    def read(self, now: float, rank: _Rank, shard: int) -> None:
        """Let a reader read what its shard holds."""
        costs, setting = self.costs, self.setting
        if not rank.unread[shard]:
            rank.reads_now[shard] = False
            return
        streams = setting.actors / setting.shards / setting.ranks
        found = min(rank.unread[shard], _AT_ONCE)
        rank.unread[shard] -= found
        self.reads += 1
        self.sent += found * costs.chunk_bytes
        done = self.shards[shard].serve(now, costs.read.redis + streams * costs.stream.redis)
        self.at(done, self.decode, rank, shard, found, costs.read.reader + streams * costs.stream.reader)

    def decode(self, now: float, rank: _Rank, shard: int, left: int, reading: float) -> None:
        """Let a reader decode a portion of what it has read; it waits while it is too far ahead of the loop."""
        costs, portion = self.costs, min(left, _PORTION)
        decoded = rank.reader.serve(now, reading + portion * costs.chunk.reader)
        self.at(decoded, self.take, rank, portion, costs.read.loop if reading else 0.0)
        then = max(decoded, rank.loop.free_at - _AHEAD * costs.chunk.loop)
        if left > portion:
            self.at(then, self.decode, rank, shard, left - portion, 0.0)
        else:
            self.at(then, self.read, rank, shard)

    def take(self, now: float, rank: _Rank, found: int, waking: float) -> None:
        """Let the loop add chunks."""
        done = rank.loop.serve(now, waking + found * self.costs.chunk.loop)
        self.taken += found if done < self.seconds else 0

    def tick(self, now: float) -> None:
        """Spend what actors cost by being there."""
        costs, setting = self.costs, self.setting
        for server in self.shards:
            each = setting.actors / setting.shards * _TICK_S
            redis = costs.present.redis + setting.announcements * costs.announced.redis
            server.serve(now, each * (redis + setting.reports * costs.report.redis))
        for rank in self.ranks:
            each = setting.actors / setting.ranks * _TICK_S
            rank.reader.serve(now, each * costs.present.reader)
            rank.loop.serve(now, each * setting.announcements * costs.announced.loop)
        for actor in self.actors:
            actor.serve(now, _TICK_S * (costs.present.actor + setting.reports * costs.report.actor))
        self.at(now + _TICK_S, self.tick)

    def fetch(self, now: float, actor: int) -> None:
        """Let an actor fetch weights, from a replica of its shard where there are any."""
        setting, shard = self.setting, actor % self.setting.shards
        replica = shard * setting.replicas + actor // setting.shards % max(1, setting.replicas)
        server = self.replicas[replica] if setting.replicas else self.shards[shard]
        server.serve(now, self.costs.fetch.redis)
        self.sent += self.costs.weights_bytes / max(1, setting.replicas)
        self.at(now + setting.fetch_s, self.fetch, actor)

    def publish(self, now: float) -> None:
        """Let rank 0 publish weights to each shard."""
        for server in self.shards:
            server.serve(now, self.costs.publish.redis)
        self.at(now + self.setting.publish_s, self.publish)


def simulate(costs: Costs, setting: Setting, seconds: float = 30.0) -> Load:
    """Simulate so many seconds of a run."""
    run = _Run(costs, setting, seconds)
    run.run()

    def busiest(servers: list[_Server]) -> float:
        return max((server.busy for server in servers), default=0.0) / seconds

    return Load(
        redis=busiest(run.shards),
        replica=busiest(run.replicas),
        reader=busiest([rank.reader for rank in run.ranks]),
        loop=busiest([rank.loop for rank in run.ranks]),
        actors=sum(actor.busy for actor in run.actors) / seconds,
        offered=run.offered / seconds,
        taken=run.taken / seconds,
        reads=run.reads / seconds,
        wait_s=run.waited / max(1, run.commits),
        network=8 * run.sent / seconds / setting.shards,
    )
