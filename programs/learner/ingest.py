"""Takes what actors and evaluation actors have sent into the replay and the logs.

Several ranks take episodes in, each of its own actors, and rank 0 writes the log. They keep episodes until all of them
have taken in what an update waits for: in lockstep, a round. Then the episodes are logged rank by rank, so the order of
the log depends on no process's speed. An only rank logs its episodes at once.

Messages of evaluation actors are validated and counted as those of actors are. The learner waits for none of them; a
log that cannot be written, or messages that cannot be read from Redis, end no run.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.schema import parse_record
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.log import READ_AHEAD, Entry, ExperienceReader
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.messages import ChunkSchema, Episode, MessageSchema, Record
from rainbow_iqn_apex.programs.learner.budget import chunk_bytes
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.update_scheduler import Pace, Run

# What takes experience in yields about every second of a wait, so that the loop can do what must not wait so long.
# After an error in between, close it: at its end it counts what it has taken.
Waits = Generator[None, None, None]

# Messages of evaluation actors: the actor's own numbers and the place of the message make the record whole.
EVALUATION_MESSAGES = MessageSchema(
    record=VersionedRecord, added={"actor": 0, "env": 0, "episode": 0}, episodes_only=True
)
_INTERVAL_S = 1.0  # between writes of the log of evaluations
_RETRY_S = 60.0  # until that log is written again after a failure
_MOST_TAKEN = 1000  # messages of evaluation actors at once


def actor_messages(spec: ChunkSpec, environment: EnvironmentSpec, nb_env: int) -> MessageSchema:
    """Return what the messages of actors with these chunks and `nb_env` environments each must look like."""
    return MessageSchema(
        max_payload=2 * chunk_bytes(spec, environment) + 65536,
        chunk=ChunkSchema(spec, spec.row_fields(environment), environment.action),
        record=EpisodeRecord,
        added={"T_learner": 0},
        nb_env=nb_env,
    )


class Ingest:
    """Hands each message to the replay or to the training log, in the order that the protocol fixes.

    `counted` holds, by actor, the number of the last message that the run has counted. A resumed learner reads older
    messages again: of these, the buffer takes the chunks that it held at the checkpoint.
    """

    def __init__(self, run: Run, buffer: Buffer, pace: Pace, schema: MessageSchema, clock: LoopClock) -> None:
        client = run.client
        limiter = run.limiter
        self.counted: dict[int, int] = {}
        self._after_checkpoint: dict[int, int] = {}  # the same of the checkpoint, also of what Redis has lost since
        self._buffer = buffer
        self._missing = client.missing()
        self.episodes: list[Record] = []  # not logged yet; a checkpoint holds those of an interrupted round
        self._results = run.results
        self._is_alone = run.world.size == 1
        self._progress = run.progress
        self._limiter = limiter
        self._pace = pace
        self._gathered = -1  # last round whose rows were taken in; a resumed learner takes its old rounds one by one
        self.reader = client.inbox(
            schema,
            run.stop,
            known=max(crew.nb_actor for crew in limiter.crews),
            joining=not limiter.synchronize,
            ahead=min(READ_AHEAD, max(16, buffer.room // 2)),
            clock=clock,
        )

    @property
    def received(self) -> dict[int, int]:
        """By actor, the number of the last message that the run has read, handed out or not."""
        done = self._after_checkpoint
        read = self.reader.received
        return {actor: max(done.get(actor, 0), read.get(actor, 0)) for actor in done.keys() | read.keys()}

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
        limiter = self._limiter
        if limiter.synchronize:
            while not limiter.may_train(self._progress.round, self._gathered):
                yield from self._take_round(self._gathered + 1)
                self._gathered += 1
            self._progress.T_actors = limiter.steps_before(self._gathered + 1)
            return
        self.take_meanwhile()
        waiting = WaitReporter(self._pace.awaited, hint=self._missing.actors)
        while not self._pace.may_update():
            if self.reader.wait(waiting) or not self._is_alone:  # the steps of others' actors may have come
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
        self._add_episodes(episodes)

    def log(self, records: list[Record]) -> None:
        """Log episodes of all ranks, this one's among them."""
        if self._results:
            self._results.add_episodes([Episode(record) for record in records], self._progress.T_learner)
        self.episodes = []

    def close(self) -> None:
        """Stop reading."""
        self.reader.close()

    def needs(self) -> dict[int, int]:
        """Return, by actor, the first message that a checkpoint of this moment needs of the log."""
        return {actor: read + 1 for actor, read in self.reader.read.items()} | self._buffer.oldest()

    def state_dict(self) -> dict[str, Any]:
        """Return how far this rank has read its actors' messages, and the episodes that are not logged yet."""
        return {"counted": self.counted, "episodes": self.episodes}

    def load_state_dict(self, counted: dict[int, int], episodes: list[Record]) -> bool:
        """Continue after the messages that a checkpoint counts; returns whether Redis has lost none of them."""
        self.episodes = [*episodes]
        self._after_checkpoint = dict(counted)  # an actor whose state is older begins anew
        for actor, last in counted.items():
            known = self.reader.last.get(actor, 0)
            if known < last:  # in lockstep, new messages use the lost numbers again
                print(f"Redis has lost messages {known + 1} to {last} of actor {actor}", flush=True)
            self.counted[actor] = min(known, last)
        self.reader.settle(counted)
        return self.counted == counted

    def _take_round(self, round_: int) -> Waits:
        crew = self._limiter.crew_of(round_)
        before = self._limiter.crew_of(max(0, round_ - 1))
        stayed = None
        if crew != before:
            stayed = min(before.nb_actor, crew.nb_actor)
            if self._results and round_ >= self._progress.round - 1:  # not a round that an earlier learner has taken in
                self._results.log.settle(crew.nb_actor)
        yield from self._take(self.reader.take_round(round_, crew.nb_actor, stayed))

    def _take(self, entries: Iterable[Entry | None]) -> Waits:
        episodes = []
        try:
            for entry in entries:
                if entry is None:
                    yield
                    continue
                chunk_id, message = entry
                is_new = self._is_new(chunk_id)
                if isinstance(message, Episode) and is_new:  # others were logged before the checkpoint
                    episodes.append(message)
                elif isinstance(message, Chunk):
                    if is_new or self._buffer.remembers(chunk_id):  # others were evicted before the checkpoint
                        self._buffer.add(chunk_id, message)
                    if is_new and not self._limiter.synchronize:
                        self._progress.T_actors += self._buffer.spec.steps(message.rows["step_type"])
        finally:  # waiting for more may end in Stopped
            for actor, read in self.reader.read.items():
                self.counted[actor] = max(read, self.counted.get(actor, 0))
            self._add_episodes(episodes)

    def _add_episodes(self, episodes: list[Episode]) -> None:
        self.episodes += [episode.record for episode in episodes]
        if self._is_alone:
            self.log(self.episodes)

    def _is_new(self, message: ChunkId) -> bool:
        return message.sequence > self.counted.get(message.actor, 0)


def evaluation_record(entry: Entry) -> VersionedRecord:
    """Return the log's record of an evaluation actor's message, numbered by its place."""
    assert isinstance(entry.message, Episode)  # the schema lets nothing else pass
    numbers = {"actor": entry.id.actor, "env": 0, "episode": entry.id.sequence - 1}
    return parse_record(entry.message.record | numbers, VersionedRecord)


class Evaluations:
    """Logs the episodes of evaluation actors, and deletes them in Redis when they are on the disk.

    A learner that was killed in between finds some of them again; the log leaves out what it has.
    """

    def __init__(self, client: LearnerClient, results: ResultsFolder, reader: ExperienceReader) -> None:
        self._client = client
        self._results = results
        self._reader = reader
        self._records: list[VersionedRecord] = []  # taken from the reader, and not on the disk yet
        self._trimmed: dict[int, int] = {}  # by evaluation actor, its last message that is not needed any more
        self._next = 0.0
        self._failed = False

    @property
    def received(self) -> dict[int, int]:
        """By evaluation actor, the number of its last message that was read, or that is logged: Redis may lose all."""
        read = self._reader.received
        logged = self._results.evaluations_logged()
        return {actor: max(read.get(actor, 0), logged.get(actor, 0)) for actor in read.keys() | logged.keys()}

    def take(self) -> None:
        """Log what has arrived, but not too often; does not wait for more."""
        if time.monotonic() >= self._next and not self._failed:
            self._next = time.monotonic() + _INTERVAL_S
            self._log(lambda: [] if self._records else self._reader.take_all(_MOST_TAKEN))

    def take_rest(self) -> None:
        """Log the episodes of all messages that are in Redis; no more can come."""
        if not self._failed:
            self._log(self._reader.take_rest)

    def _log(self, read: Callable[[], Iterable[Entry]]) -> None:
        try:
            self._records += [evaluation_record(entry) for entry in read()]
            self._results.add_evaluations(self._records)
            self._records = []
            done = {actor: last for actor, last in self._reader.read.items() if last > self._trimmed.get(actor, 0)}
            if done:
                self._client.trim({actor: last + 1 for actor, last in done.items()}, evaluation=True)
            self._trimmed |= done
        except OSError as error:
            self._next = time.monotonic() + _RETRY_S
            print(f"Evaluation scores are not written yet, and stay in Redis: {error}", flush=True)
        except (RunError, BrokerError) as error:
            self._failed = True
            print(f"Evaluation scores are not read any more, until the next start: {error}", flush=True)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def make_evaluations(run: Run) -> Evaluations:
    """Return what takes in the messages of evaluation actors, for the learner that leads."""
    assert run.results, "rank 0 logs evaluations"
    return Evaluations(run.client, run.results, run.client.evaluation_inbox(EVALUATION_MESSAGES, run.stop))
