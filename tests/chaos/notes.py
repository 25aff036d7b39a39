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
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.broker.log import Entry, ExperienceReader
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.programs.learner.checkpointer import Checkpointer, SavedRun
from rainbow_iqn_apex.programs.learner.trainers import EagerTrainer, Metrics, MixtureTrainer, Turn

READ, LEARNED = "read.txt", "learned.txt"
_Buffer = Queue | Replay | Mixture


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
    place: int  # in the batch
    replayed: bool  # drawn of a mixture's table
    age: int  # chunks that a mixture had taken in after it; -1: this one was not among them


class Learned(NamedTuple):
    """What the last weights have learned from, and what their mixture was given, both in their order."""

    draws: list[Draw]
    added: list[ChunkId]  # chunks with a row to learn from; of other buffers nothing is written down


def write_down(folder: Path) -> None:
    """Let the learner of this process write down what it does."""
    _what_is_read(folder / READ)
    _what_is_learned(folder / LEARNED)


def read_messages(folder: Path) -> list[Taken]:
    """Return all messages that learners have taken in, in their order."""
    lines = (line.split() for line in (folder / READ).read_text().splitlines())
    return [Taken(process, int(actor), int(sequence), float(at)) for process, actor, sequence, at in lines]


def read_learned(folder: Path) -> Learned:
    """Return the chunks that the last weights have learned from.

    A learner that resumes from a checkpoint has none of what its predecessors learned after that checkpoint, nor of
    what they took in after it.
    """
    draws: list[Draw] = []
    numbers: dict[ChunkId, int] = {}  # by what was added, in its order
    for line in (folder / LEARNED).read_text().splitlines():
        what, step, *chunks = line.split()
        if what == "added":
            name = ChunkId(int(step), int(chunks[0]))
            assert name not in numbers, f"{name} was taken in twice"
            numbers[name] = len(numbers)
        elif what == "resumed":
            while draws and draws[-1].step > int(step):
                draws.pop()
            counted = {int(actor): int(last) for actor, last in (chunk.split(":") for chunk in chunks)}
            kept = [name for name in numbers if name.sequence <= counted.get(name.actor, 0)]
            numbers = {name: number for number, name in enumerate(kept)}
        else:
            draws += [_draw(int(step), place, chunk, numbers) for place, chunk in enumerate(chunks)]
    return Learned(draws, list(numbers))


def _draw(step: int, place: int, chunk: str, numbers: dict[ChunkId, int]) -> Draw:
    actor, sequence, fingerprint, replayed = map(int, chunk.split(":"))
    name = ChunkId(actor, sequence)
    age = len(numbers) - 1 - numbers[name] if name in numbers else -1
    return Draw(step, name, fingerprint, place, bool(replayed), age)


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
        if not self._keys.evaluation:
            os.write(file, f"{os.getpid()} {actor} {self.read[actor]} {time.monotonic()}\n".encode())
        return entries

    ExperienceReader._pop = pop_and_write  # type: ignore[method-assign]


def _what_is_learned(path: Path) -> None:
    """Write a line an update, of buffers whose samples are whole chunks, and a line for each checkpoint resumed."""
    file = _open(path)
    drawn: list[str] = []  # the batches of the updates under way
    resume = Checkpointer.resume
    for buffer in (Queue, Replay, Mixture):
        _note_batches(buffer, drawn)
    for trainer in (EagerTrainer, MixtureTrainer):
        _note_updates(trainer, drawn, file)
    _note_what_is_added(file)

    def resume_and_write(self: Checkpointer, saved: SavedRun) -> bool:
        counted = " ".join(f"{actor}:{last}" for actor, last in saved.ranks[0].counted.items())
        os.write(file, f"resumed {saved.progress.T_learner} {counted}\n".encode())
        return resume(self, saved)

    Checkpointer.resume = resume_and_write  # type: ignore[method-assign]


def _note_updates(trainer: type[EagerTrainer], drawn: list[str], file: int) -> None:
    call: Callable[..., list[Metrics]] = trainer.__call__

    def call_and_write(self: EagerTrainer, turns: list[Turn]) -> list[Metrics]:
        drawn.clear()
        metrics = call(self, turns)
        for turn, batch in zip(turns, drawn, strict=False):  # none are drawn of transitions
            os.write(file, f"learned {turn.step} {batch}\n".encode())
        return metrics

    trainer.__call__ = call_and_write  # type: ignore[method-assign]


def _note_what_is_added(file: int) -> None:
    """Write a line for each chunk that a mixture has not held at a checkpoint before."""
    add = Mixture.add

    def add_and_write(self: Mixture, chunk_id: ChunkId, chunk: Chunk) -> None:
        if not self.remembers(chunk_id) and self.spec.learnable(chunk.rows["step_type"]).any():
            os.write(file, f"added {chunk_id.actor} {chunk_id.sequence}\n".encode())
        add(self, chunk_id, chunk)

    Mixture.add = add_and_write  # type: ignore[method-assign]


def _note_batches(buffer: type[_Buffer], drawn: list[str]) -> None:
    sample: Callable[..., Batch] = buffer.sample

    def sample_and_note(self: _Buffer, batch_size: int | None, progress: float | Tensor = 0.0) -> Batch:
        if self.spec.samples > 1:
            return sample(self, batch_size, progress)
        waiting = [chunk_id for chunk_id, _ in self._waiting] if isinstance(self, Queue) else []
        batch = sample(self, batch_size, progress)
        if not isinstance(self, Queue):
            names = self._pool.ids if isinstance(self, Mixture) else self._ids
            assert batch.indices is not None
            waiting = [names[slot] for slot in batch.indices.tolist()]
        size = batch.step_type.shape[1]
        again = [False] * size if batch.replayed is None else batch.replayed.tolist()
        chunks = []
        for i, (actor, sequence) in zip(range(size), waiting, strict=False):
            rows = {name: batch.rows[name][:, i].numpy() for name in batch.rows}
            state = {name: batch.state[name][i].numpy() for name in batch.state}
            chunks.append(f"{actor}:{sequence}:{fingerprint_of(rows, state)}:{int(again[i])}")
        drawn.append(" ".join(chunks))
        return batch

    buffer.sample = sample_and_note  # type: ignore[method-assign]
