"""The buffer of mixed replay: each batch has fixed shares from a queue and from tables of older sequences.

CLEAR (Rolnick et al. 2019, arXiv 1811.11682) and LASER (Schmitt et al. 2020, arXiv 1909.11583) mix the queue with a
uniform table, attentive replay (Sun et al. 2020, AAAI 34) chooses what is similar to the present. Every sequence goes
to every table. The queue's share is the on-policy share, and it alone throttles the actors. Letters: B batch.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Buffer, Checkpoint, check_checkpoint, oldest_of
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.mixture.features import FEATURES, Features, Measure
from rainbow_iqn_apex.memory.mixture.pool import Pool, WaitingLine
from rainbow_iqn_apex.memory.mixture.spec import (
    ELITE,
    QUEUE,
    Sampling,
    TableSpec,
    counts,
    longest_held,
    most_chunks,
    shrunk,
    step,
)
from rainbow_iqn_apex.memory.mixture.tables import EliteTable, PrioritisedTable, Table, make_table
from rainbow_iqn_apex.memory.queue import LOG_ROWS

_MOST = 2**62  # of any number


class Mixture(Buffer):
    """Buffer whose batches are mixed of several tables; a batch has the queue's sequences first, then table by table.

    `queue_capacity` counts rows, as a queue's does. `generator` draws the samples and lives on `device`. `measure`
    computes the present features [rows, B, F] of sequences, from the first row with a full stack on; attentive and
    elite tables need it. Raises ValueError for a batch size whose shares are no whole numbers, and for chunks without
    recorded features where a table is elite.

    A batch counts as given until `learned` or `put_back` has been called with it; a checkpoint leaves it out.
    """

    def __init__(
        self,
        spec: ChunkSpec,
        environment: EnvironmentSpec,
        mix: tuple[TableSpec, ...],
        batch_size: int,
        generator: torch.Generator,
        device: torch.device,
        *,
        queue_capacity: int,
        settings: Sampling,
        measure: Measure | None = None,
    ) -> None:
        self._mix = tuple(sorted(mix, key=lambda part: part.table != QUEUE))
        fresh = counts(self._mix, batch_size)[0]
        if any(part.table == ELITE for part in mix) and FEATURES not in dict(spec.extras):
            raise ValueError("an elite table compares features, and the chunks have none")
        self.spec = spec
        self.device = device
        self.generator = generator
        self.batch_size = batch_size
        self.slots = max(fresh, -(-queue_capacity // spec.period))  # of the queue
        self.capacity = max(self.slots, *(part.capacity or 0 for part in mix)) * spec.period
        self.turnover = max(longest_held(mix, self.slots, settings), LOG_ROWS // spec.period) // 2
        self.inserted = 0
        self._added = 0  # sequences with a row to learn from, ever
        self._updates = 0
        self._sampled: Tensor | None = None  # insertions before each replayed sequence of the newest batch
        self._pool = Pool(spec, environment, most_chunks(mix, self.slots, settings), device)
        self._queue = WaitingLine(self._pool, self.slots)
        self.features = Features(self._pool, settings, measure)
        self._tables = [make_table(part, self._pool, generator, self.features, settings) for part in self._mix[1:]]
        self._prioritised = next((table for table in self._tables if isinstance(table, PrioritisedTable)), None)
        self._elite = next((table for table in self._tables if isinstance(table, EliteTable)), None)
        self._chooses = self._elite if settings.elite_insertion else None  # elsewhere the numbers are the places
        self._wanted_size = batch_size  # before memory was short

    @property
    def steps(self) -> int:
        """Agent steps held."""
        return int(self._pool.steps[self._pool.here].sum())

    @property
    def chunks(self) -> int:
        """Chunks held."""
        return int(self._pool.here.sum())

    @property
    def room(self) -> int:
        """Chunks that can be added before the queue drops one, not counting those of a checkpoint, which have room."""
        return self.slots - len(self._queue)

    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        """Hand a chunk to all tables, or a remembered one to its old place; leave out one without a row to learn."""
        if self.remembers(chunk_id):
            slot = self._pool.fill(chunk_id, chunk)
            if self._prioritised:
                self._prioritised.arrive(slot)
            return
        self.inserted += 1
        if not self.spec.learnable(chunk.rows["step_type"]).any():
            return
        slot = self._pool.put(chunk_id, chunk, self._added)
        self._queue.add(slot)
        for table in self._tables:
            table.add(slot, self._added)
        self._added += 1

    @property
    def fresh(self) -> "Mixture":
        """Return the mixture itself: the queue's share of a batch decides when there is an update."""
        return self

    @property
    def smaller(self) -> "Mixture":
        """Return the mixture itself."""
        return self

    @property
    def wanted(self) -> int:
        """Fresh sequences of a batch."""
        return counts(self._mix, self.batch_size)[0]

    def ready(self) -> bool:
        """Return whether the queue's share of a batch waits."""
        return len(self._queue.next(self.wanted)) == self.wanted

    def next_steps(self, most: int = 1) -> list[int]:
        """Count the agent steps of the fresh sequences of each of the next batches, `most` of them at most."""
        size = self.wanted
        waiting = self._queue.next(most * size)
        starts = range(0, len(waiting) - size + 1, size)
        return [int(self._pool.steps[waiting[start : start + size]].sum()) for start in starts]

    def sample(self, batch_size: int | None, progress: float | Tensor = 0.0) -> Batch:  # noqa: ARG002 - a replay's
        """Take the queue's oldest sequences and draw the others, time-major: [T, B, ...].

        The batch size None is the present one. Raises ValueError if the queue has too few sequences, or for a batch
        size whose shares are no whole numbers.
        """
        fresh, *others = counts(self._mix, batch_size or self.batch_size)
        oldest = self._queue.next(fresh)
        if len(oldest) < fresh:
            raise ValueError(f"a batch takes {fresh} sequences of the queue, and {len(oldest)} wait")
        parts = [self._pool.tensor(oldest)]
        for table, n in zip(self._tables, others, strict=True):
            parts.append(self._draw(table, n, parts[0]))
        slots = torch.cat(parts)  # [B]
        rows, state, numbers = self._pool.gather(slots)
        self._sampled = numbers[fresh:] if others else None
        replayed = torch.arange(len(slots), device=self.device) >= fresh  # [B]
        versions = self._queue.give(oldest)  # last: a batch for which memory is too short takes none
        return Batch(rows, state, indices=slots, generations=numbers, versions=versions, replayed=replayed)

    def _draw(self, table: Table, n: int, fresh: Tensor) -> Tensor:
        """Draw n of a table, or repeat the fresh ones if the log has lost all that the table held: slots [n]."""
        if len(table.here()):
            return table.sample(n, self._updates)
        return fresh[torch.arange(n, device=self.device) % len(fresh)]

    def put_back(self, batches: Sequence[Batch]) -> None:
        """Return the fresh sequences of batches that could not be learned from to the queue's front, newest last."""
        for batch in reversed(batches):
            assert batch.versions is not None, "a batch of another buffer"
            self._queue.put_back(batch.versions)

    def shrink(self) -> int | None:
        """Make batches smaller by the smallest step that keeps the shares whole; return the new size, None if none."""
        smaller = shrunk(self._mix, self.batch_size)
        self.batch_size = smaller or self.batch_size
        return smaller

    def sampled_age(self) -> float | None:
        """Return how many sequences came after the replayed ones of the newest batch, on average; None without any."""
        return None if self._sampled is None else self._added - 1 - self._sampled.double().mean().item()

    def priorities(self, most: int) -> Tensor | None:
        """Return the priorities of at most `most` sequences, spread over all; None without a prioritised table."""
        if self._prioritised is None:
            return None
        held = self._prioritised.priorities()
        held = held[held > 0]
        return held[:: max(1, -(-len(held) // most))].cpu()

    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        """Note an update, and its new priorities [B], if any; sequences that are overwritten are left alone."""
        assert batch.versions is not None, "a batch of another buffer"
        self._updates += 1
        self._queue.settle(batch.versions)
        if self._prioritised and priorities is not None and batch.generations is not None:
            self._prioritised.learned(batch.generations, priorities)

    def oldest(self) -> dict[int, int]:
        """Return, by actor, the sequence number of its oldest chunk held, or still to come of a checkpoint."""
        return oldest_of(filter(None, self._pool.ids))

    def checkpoint(self) -> Checkpoint:
        """Name all sequences held and still to come, and all that a successor needs to continue identically.

        `extra` holds columns with one entry a chunk, in the order of `ids`: `numbers`, insertions before each; `slots`
        of the pool; `sampled`, how often an elite table has given each; `positions` in a table with elite insertion, -1
        for none. All other tables hold the newest sequences in the order in which they were inserted, so the number of
        a sequence is its place there. `counts` are sequences inserted, updates, the batch size, and the one that was
        wanted before memory was short; `waiting` the chunks that wait in the queue, oldest first; `largest` the largest
        priority that there has been. What no table needs is empty.
        """
        tables = {slot for table in self._tables for slot in table.references()}
        held = sorted(tables | {*self._queue.waiting}, key=lambda slot: self._pool.numbers[slot])
        rank = {slot: at for at, slot in enumerate(held)}
        priorities = torch.zeros(len(held), self.spec.samples)
        if self._prioritised:
            for slot, priority in self._prioritised.saved_priorities().items():
                priorities[rank[slot]] = priority
        none = torch.zeros(0, dtype=torch.int64)
        elite = self._elite
        chooses = self._chooses
        extra = {
            "counts": torch.tensor([self._added, self._updates, self.batch_size, self._wanted_size]),
            "numbers": torch.from_numpy(self._pool.numbers[held]),
            "slots": torch.tensor(held, dtype=torch.int64),
            "waiting": torch.tensor([rank[slot] for slot in self._queue.waiting], dtype=torch.int64),
            "largest": self._prioritised.largest.cpu().reshape(1) if self._prioritised else none.double(),
            "sampled": self._column(elite, held, elite.sampled.tolist(), 0) if elite else none,
            "positions": self._column(chooses, held, range(chooses.capacity), -1) if chooses else none,
        }
        ids = torch.tensor([self._pool.ids[slot] for slot in held], dtype=torch.int64).reshape(-1, 2)
        return Checkpoint(self.inserted - len(held), ids, priorities, extra)

    def _column(self, table: Table, held: list[int], values: Sequence[int], absent: int) -> Tensor:
        """Return the values that a table has by position, for the slots that are held: [chunks] int64."""
        by_slot = {int(slot): value for slot, value in zip(table.slots, values, strict=True) if slot >= 0}
        return torch.tensor([by_slot.get(slot, absent) for slot in held], dtype=torch.int64)

    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        """Prepare an empty mixture for the chunks of a checkpoint, which are added next; each goes to its old place.

        Once they have come, the mixture gives the batches that it would have given. Chunks beyond the `newest`
        sequence number of their actor are lost. Raises ValueError for a checkpoint that no such mixture has written,
        UserError for one of a larger batch size whose queue has more sequences than this one has room for.
        """
        check_checkpoint(checkpoint, self.spec, newest)
        self._check_extra(checkpoint)
        self._check_ranges(checkpoint)
        extra = checkpoint.extra
        self.inserted = checkpoint.first + len(checkpoint.ids)
        self._added, self._updates, batch_size, wanted_size = extra["counts"].tolist()
        if wanted_size == self._wanted_size:  # else the run goes on with other batches
            self.batch_size = batch_size
        if self._prioritised:
            self._prioritised.largest = extra["largest"][0].to(self.device)
        ids = [ChunkId(*numbers) for numbers in checkpoint.ids.tolist()]
        slots, numbers = extra["slots"].tolist(), extra["numbers"].tolist()
        coming = [at for at, chunk_id in enumerate(ids) if chunk_id.sequence <= newest[chunk_id.actor]]
        self._pool.reserve((ids[at], slots[at], numbers[at]) for at in coming)
        for at in coming:
            self._reserve(slots[at], numbers[at], float(checkpoint.priorities[at, 0]))
            if self._chooses and extra["positions"][at] >= 0:
                self._chooses.hold(int(extra["positions"][at]), slots[at])
        if self._elite:
            times = dict(zip(slots, extra["sampled"].tolist(), strict=True))
            self._elite.sampled.copy_(torch.tensor([times.get(int(slot), 0) for slot in self._elite.slots]))
        for at in (at for at in extra["waiting"].tolist() if ids[at] in self._pool.awaited):
            self._queue.add(slots[at])

    def _check_extra(self, checkpoint: Checkpoint) -> None:
        """Raise ValueError unless a mixture of these tables has written the checkpoint's tensors."""
        chunks = len(checkpoint.ids)
        lengths = {
            "counts": 4,
            "numbers": chunks,
            "slots": chunks,
            "waiting": None,
            "largest": 1 if self._prioritised else 0,
            "sampled": chunks if self._elite else 0,
            "positions": chunks if self._chooses else 0,
        }
        if checkpoint.extra.keys() != lengths.keys():
            raise ValueError("the replay is not one of a mixture of tables")
        for name, tensor in checkpoint.extra.items():
            dtype = torch.float64 if name == "largest" else torch.int64
            if tensor.dtype != dtype or lengths[name] not in (None, len(tensor)):
                raise ValueError(f"the {name} of the replay's tables are not as they should be")

    def _check_ranges(self, checkpoint: Checkpoint) -> None:
        """Raise ValueError for a number that no such mixture has written, UserError for a queue too short."""
        extra = checkpoint.extra
        chunks = len(checkpoint.ids)
        waiting = extra["waiting"]
        added, updates, batch_size, wanted_size = extra["counts"].tolist()
        if not (0 <= added <= checkpoint.first + chunks and 0 <= updates < _MOST):
            raise ValueError("the replay counts more sequences than chunks, or a wrong number of updates")
        if not 0 < batch_size <= wanted_size < _MOST or batch_size % step(self._mix):
            raise ValueError(f"the replay's batches of {batch_size} are none of this mixture")
        if not (extra["largest"].isfinite() & (extra["largest"] > 0)).all():
            raise ValueError("the replay's largest priority is none")
        if not ((extra["sampled"] >= 0) & (extra["sampled"] < _MOST)).all():
            raise ValueError("the replay has a chunk that was sampled less than never")
        standing = extra["positions"][extra["positions"] != -1]
        _check_places(extra["numbers"], added, "numbers")
        _check_places(extra["slots"], self._pool.size, "slots")
        _check_places(standing, self._chooses.capacity if self._chooses else 0, "positions")
        _check_places(waiting, chunks, "waiting chunks")
        if len(waiting) > self.slots:
            raise UserError(
                f"--batch-size: {len(waiting)} sequences of the checkpoint wait, and the queue of this one has room "
                f"for {self.slots}: resume with the one of its run"
            )

    def _reserve(self, slot: int, number: int, priority: float) -> None:
        """Reserve the places of a sequence in all tables where its number is its place."""
        for table in self._tables:
            if table is not self._chooses and number >= self._added - table.capacity:
                table.hold(number % table.capacity, slot)
                if isinstance(table, PrioritisedTable):
                    table.reserve_priority(slot, priority)

    def remembers(self, chunk_id: ChunkId) -> bool:
        """Return whether a chunk belongs to the restored checkpoint and has not come yet."""
        return chunk_id in self._pool.awaited

    def forget(self, read: Mapping[int, int]) -> None:
        """Drop what is remembered of messages that will not come any more: up to the last one `read` of each actor."""
        gone = {slot for name, slot in self._pool.awaited.items() if name.sequence <= read.get(name.actor, 0)}
        if gone:
            self._queue.forget(gone)
            for table in self._tables:
                table.forget(gone)


def _check_places(places: Tensor, below: int, what: str) -> None:
    if not ((places >= 0) & (places < below)).all() or len(set(places.tolist())) != len(places):
        raise ValueError(f"the {what} of the replay's tables are beyond their range, or there twice")
