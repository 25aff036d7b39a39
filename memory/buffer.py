"""What a buffer is, by the loop that uses it:

    buffer.add(chunk_id, chunk)                # whatever comes from the actors' streams, in the order of the protocol
    while not buffer.ready(): ...
    batch = buffer.sample(batch_size, progress)
    buffer.learned(batch, update.priorities)
    save(buffer.checkpoint()); trim the streams to buffer.oldest()

A buffer is a view of the streams: its checkpoint names the chunks that it holds, but the streams hold their rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Protocol

import torch
from msgspec import Meta, Struct
from torch import Tensor

from rainbow_iqn_apex.common.schema import Count
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec

_EXTRA = 16  # tables of a checkpoint, and numbers of a table where there are no chunks


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """A buffer's chunks by name, in their order and with their priorities; the log holds their rows."""

    first: Count  # insertions before the oldest chunk: it decides the slots of a replay
    ids: Tensor  # [chunks, 2] int64: actor, sequence
    priorities: Tensor  # [chunks, samples] float32
    extra: Annotated[dict[str, Tensor], Meta(max_length=_EXTRA)] = {}  # 1-d each: what else a mixture needs

    def __post_init__(self) -> None:
        if not self.ids.dim() == self.priorities.dim() == 2:
            raise ValueError("its replay has no chunks")
        most = max(_EXTRA, len(self.ids))  # of a table's numbers
        if not all(table.dim() == 1 and len(table) <= most for table in self.extra.values()):
            raise ValueError("its replay has tables that are none")


class FreshChunks(Protocol):
    """Holds chunks that wait for their first update, and so decides when there is one."""

    spec: ChunkSpec
    slots: int  # chunks that can wait

    @property
    def wanted(self) -> int:
        """Fresh chunks of a batch."""

    def ready(self) -> bool:
        """Whether they wait."""

    def next_steps(self, most: int) -> list[int]:
        """Count the agent steps of the fresh chunks of each of the next batches, `most` of them at most."""


class SmallerBatches(Protocol):
    """Makes batches smaller where memory is short."""

    batch_size: int

    def shrink(self) -> int | None:
        """Make batches smaller by the smallest step; return the new size, None if none is smaller."""

    def put_back(self, batches: Sequence[Batch]) -> None:
        """Take back batches that could not be learned from, the oldest first."""


class Buffer(Protocol):
    """Holds chunks for the learner, and gives batches of them; a buffer inherits None for what it does not have."""

    spec: ChunkSpec
    device: torch.device
    generator: torch.Generator  # of all that it draws, on its device
    turnover: int  # chunks, after whose insertion a checkpoint is due, as the log holds them until then
    inserted: int  # chunks, ever
    capacity: int  # rows of a full buffer, LAST rows among them, without prefixes and bootstrap rows

    @property
    def steps(self) -> int:
        """Agent steps held: `ChunkSpec.steps` of the chunks."""

    @property
    def chunks(self) -> int:
        """Chunks held."""

    @property
    def room(self) -> int:
        """Chunks that can be added now without losing any that no update has seen."""

    @property
    def fresh(self) -> FreshChunks | None:
        """Return the fresh chunks, if these decide when a buffer has an update; None for updates at a pace of steps."""
        return None

    @property
    def smaller(self) -> SmallerBatches | None:
        """Return what makes batches smaller; None for a buffer that cannot."""
        return None

    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        """Take the next chunk."""

    def ready(self) -> bool:
        """Whether there is enough to learn from."""

    def sample(self, batch_size: int | None, progress: float | Tensor) -> Batch:
        """Return the next batch; `progress` is the share of learning that is done, from 0 to 1.

        A queue gives all that waits for the batch size None.
        """

    def sampled_age(self) -> float | None:
        """Return how many chunks came after those of the newest batch, on average; None without such a batch."""
        return None

    def priorities(self, most: int) -> Tensor | None:  # noqa: ARG002 - of a buffer with priorities
        """Return the priorities of at most `most` samples, spread over all; None without priorities."""
        return None

    def recorded(self) -> list[Tensor] | None:
        """Return what `learned` changes, if a GPU can record `sample` and `learned` as a graph; None if it cannot."""
        return None

    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        """Note that a batch was learned from, and its new priorities [B] if the agent has any."""

    def oldest(self) -> dict[int, int]:
        """Return, by actor, the sequence number of its oldest chunk held, or still to come of a checkpoint."""

    def checkpoint(self) -> Checkpoint:
        """Name all chunks held, and those of a restored checkpoint that are still to come."""

    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        """Prepare an empty buffer for the chunks of a checkpoint, which are added next, in their old order.

        Chunks beyond the `newest` sequence number of their actor are lost, and others may come under their ids. Raises
        ValueError for a checkpoint that no buffer of this spec has written.
        """

    def remembers(self, chunk_id: ChunkId) -> bool:
        """Whether a chunk belongs to the restored checkpoint and has not come yet."""

    def forget(self, read: Mapping[int, int]) -> None:
        """Drop what is remembered of messages that will not come any more: up to the last one `read` of each actor."""


def oldest_of(ids: Iterable[ChunkId]) -> dict[int, int]:
    """Return, by actor, the least sequence number of these chunks."""
    return dict(sorted(ids, reverse=True))  # of an actor's chunks the last one counts, which is the oldest


def check_checkpoint(checkpoint: Checkpoint, spec: ChunkSpec, newest: Mapping[int, int]) -> None:
    """Raise ValueError for a checkpoint that no buffer of this spec has written; `newest` as of `Buffer.restore`."""
    ids = checkpoint.ids
    stored = checkpoint.priorities
    if not 0 <= checkpoint.first < 2**62:
        raise ValueError("the replay has a wrong count of chunks")
    if ids.shape != (len(stored), 2) or ids.dtype != torch.int64:
        raise ValueError("the replay's chunks are not listed as they should be")
    if stored.shape[1:] != (spec.samples,) or stored.dtype != torch.float32:
        raise ValueError("the replay's priorities are not those of its chunks")
    if not (stored.isfinite() & (stored >= 0)).all():
        raise ValueError("the replay has a priority that is negative or not finite")
    if not set(ids[:, 0].tolist()) <= newest.keys():
        raise ValueError("the replay has a chunk of an actor that has sent none")


class RememberingBuffer(Buffer):
    """Base of buffers that take a chunk up again as a new one, at most with the priorities that it had."""

    def __init__(self) -> None:
        self._remembered: dict[ChunkId, Tensor] = {}  # priorities by chunk

    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        """As `Buffer.restore`."""
        check_checkpoint(checkpoint, self.spec, newest)
        self.inserted = checkpoint.first
        for (actor, sequence), priorities in zip(checkpoint.ids.tolist(), checkpoint.priorities, strict=True):
            if sequence <= newest[actor]:
                self._remembered[ChunkId(actor, sequence)] = priorities

    def remembers(self, chunk_id: ChunkId) -> bool:
        """Return whether a chunk belongs to the restored checkpoint and has not come yet."""
        return chunk_id in self._remembered

    def forget(self, read: Mapping[int, int]) -> None:
        """Drop what is remembered of messages that will not come any more: up to the last one `read` of each actor."""
        for kept in [kept for kept in self._remembered if kept.sequence <= read.get(kept.actor, 0)]:
            del self._remembered[kept]
