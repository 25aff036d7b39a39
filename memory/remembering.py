"""What queue and replay remember of a restored checkpoint until its chunks have come again."""

from collections.abc import Mapping

from torch import Tensor

from rainbow_iqn_apex.memory.buffer import Buffer, Checkpoint, check_checkpoint
from rainbow_iqn_apex.memory.chunk import ChunkId


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
