"""What a learner writes down as it goes, for the checks: the messages it takes in and the chunks it learns from.

Each line is one write, so a process that is killed leaves no part of a line.
"""

import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.eager_trainer import EagerTrainer
from agents.updates import Metrics, Turn
from memory.batch import Batch
from memory.broker.experience_reader import Entry, ExperienceReader
from memory.chunk import ChunkId
from memory.queue import Queue
from memory.replay import Replay
from programs.learner.saved_run import SavedRun
from programs.learner.saving import Saver

READ, LEARNED = "read.txt", "learned.txt"


class Taken(NamedTuple):
    """A message that a learner has taken in."""

    process: str
    actor: int
    sequence: int
    at: float  # time.monotonic(), before the learner went on


class Draw(NamedTuple):
    """A chunk of a batch that was learned from."""

    step: int  # T_learner after the update
    id: ChunkId
    fingerprint: int  # of its rows and its state, as the agent has seen them


def write_down(folder: Path) -> None:
    """Let the learner of this process write down what it does."""
    _what_is_read(folder / READ)
    _what_is_learned(folder / LEARNED)


def read_messages(folder: Path) -> list[Taken]:
    """Return all messages that learners have taken in, in their order."""
    lines = (line.split() for line in (folder / READ).read_text().splitlines())
    return [Taken(process, int(actor), int(sequence), float(at)) for process, actor, sequence, at in lines]


def read_draws(folder: Path) -> list[Draw]:
    """Return the chunks that the last weights have learned from.

    A learner that resumes from a checkpoint has none of what its predecessors learned after that checkpoint.
    """
    draws: list[Draw] = []
    for line in (folder / LEARNED).read_text().splitlines():
        what, step, *chunks = line.split()
        if what == "resumed":
            while draws and draws[-1].step > int(step):
                draws.pop()
            continue
        for chunk in chunks:
            actor, sequence, fingerprint = map(int, chunk.split(":"))
            draws.append(Draw(int(step), ChunkId(actor, sequence), fingerprint))
    return draws


def fingerprint_of(rows: Mapping[str, Any], state: Mapping[str, Any]) -> int:
    """Hash the arrays of a chunk."""
    number = 0
    for arrays in (rows, state):
        for name in sorted(arrays):
            number = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), number)
    return number


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _what_is_read(path: Path) -> None:
    file = _open(path)
    pop: Callable[[ExperienceReader, int], list[Entry]] = ExperienceReader._pop

    def pop_and_write(self: ExperienceReader, actor: int) -> list[Entry]:
        entries = pop(self, actor)
        os.write(file, f"{os.getpid()} {actor} {self.read[actor]} {time.monotonic()}\n".encode())
        return entries

    ExperienceReader._pop = pop_and_write


def _what_is_learned(path: Path) -> None:
    """Write a line an update, of buffers whose samples are whole chunks, and a line for each checkpoint resumed."""
    file = _open(path)
    drawn: list[str] = []  # the batches of the updates under way
    call, resume = EagerTrainer.__call__, Saver.resume
    _note_batches(Queue, drawn)
    _note_batches(Replay, drawn)

    def call_and_write(self: EagerTrainer, turns: list[Turn]) -> list[Metrics]:
        drawn.clear()
        metrics = call(self, turns)
        for turn, batch in zip(turns, drawn, strict=False):  # none are drawn of transitions
            os.write(file, f"learned {turn.step} {batch}\n".encode())
        return metrics

    def resume_and_write(self: Saver, saved: SavedRun) -> bool:
        os.write(file, f"resumed {saved.progress.T_learner}\n".encode())
        return resume(self, saved)

    EagerTrainer.__call__ = call_and_write
    Saver.resume = resume_and_write


def _note_batches(buffer: type[Queue] | type[Replay], drawn: list[str]) -> None:
    sample: Callable[..., Batch] = buffer.sample

    def sample_and_note(self: Queue | Replay, batch_size: int | None, progress: float = 0.0) -> Batch:
        if self.spec.samples > 1:
            return sample(self, batch_size, progress)
        waiting = [chunk_id for chunk_id, _ in self._waiting] if isinstance(self, Queue) else []
        batch = sample(self, batch_size, progress)
        ids = [self._ids[slot] for slot in batch.indices.tolist()] if isinstance(self, Replay) else waiting
        chunks = []
        for i, (actor, sequence) in zip(range(batch.step_type.shape[1]), ids, strict=False):
            rows = {name: batch.rows[name][:, i].numpy() for name in batch.rows}
            state = {name: batch.state[name][i].numpy() for name in batch.state}
            chunks.append(f"{actor}:{sequence}:{fingerprint_of(rows, state)}")
        drawn.append(" ".join(chunks))
        return batch

    buffer.sample = sample_and_note
