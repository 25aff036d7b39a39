"""Takes in what evaluation actors have sent: scores, for a log of their own. Nothing of it takes part in learning.

Messages are validated and counted as those of actors are. The learner waits for none of them; a log that cannot be
written, or messages that cannot be read from Redis, end no run.
"""

import time
from collections.abc import Callable, Iterable

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.schema import MOST_COUNTED, parse_record
from rainbow_iqn_apex.environments.scores import VersionedRecord
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.experience_reader import ExperienceReader
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.stream_reader import Entry
from rainbow_iqn_apex.memory.broker.stream_validator import ProgressBound
from rainbow_iqn_apex.memory.broker.throttled_counter import ThrottledCounter
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.messages import Episode, Message, decode_message
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.run import Run

_INTERVAL_S = 1.0  # between writes of the log
_RETRY_S = 60.0  # until the log is written again after a failure
_MOST_TAKEN = 1000  # messages at once


class EvaluationDecoder:
    """Decodes the messages of evaluation actors; raises ValueError for all that none of ours can have sent.

    `bound` bounds weights versions and steps. The learner's steps may be ahead of the actors': they come to `last`, the
    step at which the run's last update ends at the latest.
    """

    def __init__(self, bound: Callable[[], ProgressBound], last: int) -> None:
        self._bound = bound
        self._last = last

    def __call__(self, data: bytes) -> Message:
        """Decode a message."""
        message = decode_message(data, 0)
        if not isinstance(message, Episode):
            raise ValueError("an evaluation actor sends episodes alone")
        record, bound = evaluation_record(message, ChunkId(0, 1)), self._bound()
        if record.version > bound.round:
            raise ValueError(f"weights version {record.version} has not been published")
        if max(record.T_actors, record.T_learner) > max(bound.steps, self._last):
            raise ValueError("the episode began after more agent steps than the run has made")
        return message


def evaluation_record(episode: Episode, place: ChunkId) -> VersionedRecord:
    """Return the log's record of a message, numbered by its place; raises ValueError for a message that gives none."""
    numbers = {"actor": place.actor, "env": 0, "episode": place.sequence - 1}
    return parse_record(episode.record | numbers, VersionedRecord)


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
        self._left_out = ThrottledCounter(
            lambda new, count: f"Left out {new} evaluation episodes with a number beyond {MOST_COUNTED}, {count} so far"
        )

    @property
    def received(self) -> dict[int, int]:
        """By evaluation actor, the number of its last message that was read, or that is logged: Redis may lose all."""
        read, logged = self._reader.received, self._results.evaluations_logged()
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
        self._left_out.report(now=True)

    def _log(self, read: Callable[[], Iterable[Entry]]) -> None:
        try:
            self._records += [self._record(entry) for entry in read() if self._is_numbered(entry)]
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

    def _is_numbered(self, entry: Entry) -> bool:
        if entry.id.sequence <= MOST_COUNTED:
            return True
        self._left_out.more()
        return False

    @staticmethod
    def _record(entry: Entry) -> VersionedRecord:
        assert isinstance(entry.message, Episode)  # the decoder lets nothing else through
        return evaluation_record(entry.message, entry.id)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def make_evaluations(run: Run, bound: Callable[[], ProgressBound], most_steps: int) -> Evaluations:
    """Return what takes in the messages of evaluation actors, for the learner that leads.

    `bound` is as in `EvaluationDecoder`; an update stands for `most_steps` agent steps at most.
    """
    last = max(run.progress.T_learner, run.args.T_max - 1 + most_steps)  # T-max may have been larger before
    decode = EvaluationDecoder(bound, last)
    return Evaluations(run.client, run.results, run.client.evaluation_inbox(decode, run.stop))
