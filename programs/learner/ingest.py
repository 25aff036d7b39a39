"""Takes what the actors have sent into the replay and the training log."""

from collections.abc import Generator, Iterable, Iterator

from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.schema import MOST_COUNTED
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.stream_reader import READ_AHEAD, Decoder, Entry
from rainbow_iqn_apex.memory.broker.stream_validator import ProgressBound
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.messages import Episode
from rainbow_iqn_apex.programs.learner.episodes import Episodes
from rainbow_iqn_apex.programs.learner.pace import Pace
from rainbow_iqn_apex.programs.learner.progress import bound_of_earlier
from rainbow_iqn_apex.programs.learner.run import Run

# What takes experience in yields about every second of a wait, so that the loop can do what must not wait so long.
# After an error in between, close it: at its end it counts what it has taken.
Waits = Generator[None, None, None]


class Ingest:
    """Hands each message to the replay or to the training log, in the order that the protocol fixes.

    `counted` holds, by actor, the number of the last message that the run has counted. A resumed learner reads older
    messages again: of these, the buffer takes the chunks that it held at the checkpoint.
    """

    def __init__(self, run: Run, buffer: Buffer, pace: Pace, decode: Decoder, clock: LoopClock) -> None:
        args, client, _, progress, limiter, stop, team = run
        self.counted: dict[int, int] = {}
        self._after_checkpoint: dict[int, int] = {}  # the same of the checkpoint, also of what Redis has lost since
        self._buffer = buffer
        self._absent = client.absent
        self.episodes = Episodes(run)
        self._is_shared = team.size > 1
        self._progress = progress
        self._limiter = limiter
        self._pace = pace
        self._most_rows = _most_rows(limiter, buffer.spec)
        self._gathered = -1  # last round whose rows were taken in; a resumed learner takes its old rounds one by one
        self._earlier = bound_of_earlier(args, progress, limiter, client.record.t_actors, client.record.t_learner)
        self.reader = client.inbox(
            decode,
            stop,
            self.bound,
            known=max(crew.nb_actor for crew in limiter.crews),
            joining=not limiter.synchronize,
            ahead=min(READ_AHEAD, max(16, buffer.room // 2)),
            clock=clock,
        )

    @property
    def received(self) -> dict[int, int]:
        """By actor, the number of the last message that the run has read, handed out or not."""
        done, read = self._after_checkpoint, self.reader.received
        return {actor: max(done.get(actor, 0), read.get(actor, 0)) for actor in done.keys() | read.keys()}

    def bound(self) -> ProgressBound:
        """Return how far actors can have come; `progress.round` is raised before the round's weights are published."""
        progress, earlier, limiter = self._progress, self._earlier, self._limiter
        round_ = max(progress.round, earlier.round)
        published = limiter.steps_before(round_) if limiter.synchronize else 0
        return ProgressBound(round_, max(progress.T_actors, earlier.steps, published), self._most_rows)

    def take_backlog(self) -> Waits:
        """Fill the buffer again from what was in the log when this learner began; in lockstep `gather` does so.

        First come all messages that a learner has counted, as those of the buffer's chunks need no room. What has not
        come of these chunks is lost, and keeps no room. Of the others, a buffer takes no more than it has room for.
        """
        if not self._limiter.synchronize:
            yield from self._take(self._backlog())

    def _backlog(self) -> Iterator[Entry | None]:
        yield from self.reader.take_backlog(self.counted)
        self._buffer.forget(self.counted)
        self._pace.note_loss()  # before new messages fill the buffer again
        new = self.reader.take_backlog()
        while self._buffer.room:
            try:
                yield next(new)
            except StopIteration:
                return

    def gather(self) -> Waits:
        """Take in what the round needs: in lockstep all rows that the limiter names, else enough rows for an update."""
        progress, limiter = self._progress, self._limiter
        if limiter.synchronize:
            while not limiter.may_train(progress.round, self._gathered):
                yield from self._take_round(self._gathered + 1)
                self._gathered += 1
            progress.T_actors = limiter.steps_before(self._gathered + 1)
            return
        self.take_meanwhile()
        waiting = WaitReporter(self._pace.awaited, hint=self._absent)
        while not self._pace.may_update():
            if self.reader.wait(waiting) or self._is_shared:  # the steps of others' actors may have come
                yield
            self.take_meanwhile()

    def take_meanwhile(self) -> None:
        """Take in what has arrived meanwhile; in lockstep do nothing, as the order of messages is fixed there."""
        if not self._limiter.synchronize:
            list(self._take(self.reader.take_all(self._buffer.room)))  # waits for nothing, so it yields nothing

    def gather_last(self) -> Waits:
        """Wait for the steps of T-max: in lockstep, the round under way is played to its end."""
        if self._limiter.synchronize:
            yield from self.gather()  # a learner that was stopped here, and resumed, has not gathered yet
            if self._gathered < self._progress.round:
                yield from self._take_round(self._progress.round)

    def take_rest(self) -> None:
        """Log the episodes of all messages that actors have appended to the log; no more can come."""
        rest = (entry for entry in self.reader.take_rest() if self._is_new(entry.id))  # a stop comes at any time
        episodes = [entry.message for entry in rest if isinstance(entry.message, Episode)]
        self.episodes.add(episodes)

    def close(self) -> None:
        """Stop reading."""
        self.reader.close()

    def needs(self) -> dict[int, int]:
        """Return, by actor, the first message that a checkpoint of this moment needs of the log."""
        return {actor: read + 1 for actor, read in self.reader.read.items()} | self._buffer.oldest()

    def resume(self, counted: dict[int, int]) -> bool:
        """Go on after the messages that a checkpoint counts; returns whether Redis has lost none of them."""
        self._after_checkpoint = dict(counted)  # an actor whose state is older begins anew
        for actor, last in counted.items():
            known = self.reader.last.get(actor, 0)
            if known < last:  # in lockstep, new messages use the lost numbers again
                print(f"Redis has lost messages {known + 1} to {last} of actor {actor}", flush=True)
            self.counted[actor] = min(known, last)
        self.reader.settle(counted)
        return self.counted == counted

    def _take_round(self, round_: int) -> Waits:
        crew, before = self._limiter.crew_of(round_), self._limiter.crew_of(max(0, round_ - 1))
        stayed = None
        if crew != before:
            stayed = min(before.nb_actor, crew.nb_actor)
            if round_ >= self._progress.round - 1:  # not a round that an earlier learner has taken in
                self.episodes.settle(crew.nb_actor)
        yield from self._take(self.reader.take_round(round_, crew.nb_actor, stayed))

    def _take(self, entries: Iterable[Entry | None]) -> Waits:
        episodes = []
        try:
            for entry in entries:
                if entry is None:
                    yield
                    continue
                chunk_id, message, _ = entry
                new = self._is_new(chunk_id)
                if isinstance(message, Episode) and new:  # others were logged before the checkpoint
                    episodes.append(message)
                elif isinstance(message, Chunk):
                    self._add(chunk_id, message, new=new)
        finally:  # waiting for more may end in Stopped
            for actor, read in self.reader.read.items():
                self.counted[actor] = max(read, self.counted.get(actor, 0))
            self.episodes.add(episodes)

    def _is_new(self, message: ChunkId) -> bool:
        return message.sequence > self.counted.get(message.actor, 0)

    def _add(self, chunk_id: ChunkId, chunk: Chunk, *, new: bool) -> None:
        if new or self._buffer.remembers(chunk_id):  # others were evicted before the checkpoint
            self._buffer.add(chunk_id, chunk)
        if new and not self._limiter.synchronize:
            self._progress.T_actors += self._buffer.spec.steps(chunk.rows["step_type"])


def _most_rows(limiter: RateLimiter, spec: ChunkSpec) -> int:
    """Return more rows than an actor sends in a round, also twice, with a lost end, or in episodes of a step."""
    if not limiter.synchronize:
        return MOST_COUNTED
    chunks = max(crew.env_steps for crew in limiter.crews) // spec.period + 2  # of an environment
    return 10 * chunks * spec.window * limiter.nb_env_per_actor
