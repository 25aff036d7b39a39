"""What a checkpoint holds of a mixture beside names and priorities, and the checks of it.

All tables but one with elite insertion hold the newest sequences in the order in which they were inserted, so the
number of a sequence says where it stands. Columns have one entry a chunk, in the order of `Checkpoint.ids`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.buffer import Checkpoint

_COUNTS = 4
_MOST = 2**62  # of any number


class Layout(NamedTuple):
    """Holds what a mixture has room for, as far as its checkpoint depends on it."""

    pool_size: int
    queue_slots: int
    ring: int  # capacity of the largest table that holds the newest sequences; 0 without one
    elite: int  # capacity of the elite table, 0 without one
    chooses: bool  # the elite table has elite insertion
    prioritised: bool
    batch_step: int  # batch sizes are its multiples


class Saved(NamedTuple):
    """The state of a mixture, apart from names and priorities."""

    added: int  # sequences inserted, ever
    updates: int
    batch_size: int
    wanted_size: int  # of batches, before memory was short
    numbers: Tensor  # [chunks] int64, insertions before each
    slots: Tensor  # [chunks] int64, of the pool
    waiting: Tensor  # [n] int64, the chunks that wait in the queue, oldest first
    largest: Tensor  # [1] float64, the largest priority that there has been; [0] without a prioritised table
    sampled: Tensor  # [chunks] int64, how often the elite table has given each; [0] without one
    positions: Tensor  # [chunks] int64 in a table with elite insertion, -1 for none; [0] without one

    def extra(self) -> dict[str, Tensor]:
        """Return it as a checkpoint holds it."""
        columns = {name: getattr(self, name) for name in self._fields[_COUNTS:]}
        return {"counts": torch.tensor([self.added, self.updates, self.batch_size, self.wanted_size])} | columns


def read(checkpoint: Checkpoint, layout: Layout) -> Saved:
    """Return the state that a mixture has saved; raises ValueError for any other, UserError for a queue too short."""
    chunks = len(checkpoint.ids)
    lengths = {
        "counts": _COUNTS,
        "numbers": chunks,
        "slots": chunks,
        "waiting": None,
        "largest": int(layout.prioritised),
        "sampled": chunks if layout.elite else 0,
        "positions": chunks if layout.chooses else 0,
    }
    extra = checkpoint.extra
    if extra.keys() != lengths.keys():
        raise ValueError("the replay is not one of a mixture of tables")
    for name, length in lengths.items():
        dtype = torch.float64 if name == "largest" else torch.int64
        if extra[name].dtype != dtype or extra[name].dim() != 1 or length not in (None, len(extra[name])):
            raise ValueError(f"the {name} of the replay's tables are not as they should be")
    saved = Saved(*extra["counts"].tolist(), *(extra[name] for name in Saved._fields[_COUNTS:]))
    _check_counts(saved, checkpoint.first + chunks, layout)
    _check_columns(saved, chunks, layout)
    if len(set(map(tuple, checkpoint.ids.tolist()))) != chunks:
        raise ValueError("the replay holds a chunk twice")
    return saved


def _check_counts(saved: Saved, inserted: int, layout: Layout) -> None:
    if not (0 <= saved.added <= inserted and 0 <= saved.updates < _MOST):
        raise ValueError("the replay counts more sequences than chunks, or a wrong number of updates")
    if not 0 < saved.batch_size <= saved.wanted_size < _MOST or saved.batch_size % layout.batch_step:
        raise ValueError(f"the replay's batches of {saved.batch_size} are none of this mixture")
    if not (saved.largest.isfinite() & (saved.largest > 0)).all():
        raise ValueError("the replay's largest priority is none")


def _check_columns(saved: Saved, chunks: int, layout: Layout) -> None:
    _check_places(saved.numbers, saved.added, "numbers")
    _check_places(saved.slots, layout.pool_size, "slots")
    _check_places(saved.waiting, chunks, "waiting chunks")
    if len(saved.waiting) > layout.queue_slots:
        raise UserError(
            f"--batch-size: {len(saved.waiting)} sequences of the checkpoint wait, and the queue of this one has room "
            f"for {layout.queue_slots}: resume with the one of its run"
        )
    if not ((saved.sampled >= 0) & (saved.sampled < _MOST)).all():
        raise ValueError("the replay has a chunk that was sampled less than never")
    held = saved.numbers >= saved.added - layout.ring
    held[saved.waiting] = True
    if layout.chooses:
        standing = saved.positions != -1
        _check_places(saved.positions[standing], layout.elite, "positions")
        held |= standing
    if not held.all():
        raise ValueError("the replay has a chunk that no table holds")


def _check_places(places: Tensor, below: int, what: str) -> None:
    if not ((places >= 0) & (places < below)).all() or len(set(places.tolist())) != len(places):
        raise ValueError(f"the {what} of the replay's tables are beyond their range, or there twice")
