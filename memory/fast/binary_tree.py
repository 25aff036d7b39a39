"""The sum tree for replay in the machine's memory: binary, compiled by numba, with the interface of `SegmentTree`.

On a CPU, the call of a torch operation takes longer than finding a leaf, and a wide tree needs fifteen calls a batch.
Here a batch is one call. Nodes stand in one array, root at 1, the children of i at 2i and 2i + 1. An update of a leaf
recomputes every sum above the leaf from its children. Letters: B batch.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.fast.compiled import compiled
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.segment_tree import Drawn

_OK, _NO_LEAF, _NO_PRIORITY = 0, 1, 2
_NO_GROUPS: Array = np.zeros(1, np.int64)  # one for all leaves


class DrawnFromGroups(NamedTuple):
    """A prioritised batch of leaves that belong to groups."""

    indices: Tensor  # [B] int64
    ratios: Tensor  # [B] float64, the least probability of the batch divided by each: see `importance_weights`
    numbers: Tensor  # [B] int64, of the leaves' groups


class BinaryTree:
    """Priorities of `capacity` leaves, all 0 at first, and draws in proportion to them.

    Takes and gives what `SegmentTree` does, and refuses wrong values and indices, too.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._first = 1 << max(0, capacity - 1).bit_length()  # node of leaf 0
        self._nodes: Array = np.zeros(2 * self._first)
        self._leaves: Array = self._nodes[self._first : self._first + capacity]

    @property
    def total(self) -> Tensor:
        """The sum of all priorities: 0-d float64, a copy that later updates leave alone."""
        return torch.tensor(self._nodes[1], dtype=torch.float64)

    def get(self, indices: Tensor) -> Tensor:
        """Read the priorities [B], float64, of the leaves [B], int64; IndexError if one does not exist."""
        if len(indices) and int(indices.min()) < 0:
            raise IndexError(f"there is no leaf {int(indices.min())}")
        return torch.from_numpy(self._leaves[indices.numpy()])

    def set(self, indices: Tensor, values: Tensor, where: Tensor | None = None) -> None:
        """Write priorities; of equal indices the last wins.

        Raises ValueError for one that is negative, infinite or NaN, and IndexError for a leaf that does not exist, with
        nothing written.
        """
        if indices.dim() != 1 or indices.shape != values.shape:
            raise ValueError(f"indices {tuple(indices.shape)} and values {tuple(values.shape)} must both be [B]")
        leaves, new = indices.numpy(), values.detach().to(torch.float64).numpy()
        if where is not None and not (mask := where.numpy()).all():
            leaves, new = leaves[mask], new[mask]
        wrong, at = _write(self._nodes, self._first, self.capacity, leaves, new)
        if wrong == _NO_LEAF:
            raise IndexError(f"there is no leaf {leaves[at]} in a tree of {self.capacity}")
        if wrong == _NO_PRIORITY:
            raise ValueError(f"priorities must be finite and >= 0, not {new[at]}")

    def sample(self, values: Tensor) -> Tensor:
        """Find the leaves [B], int64, as `SegmentTree.sample`; one of priority 0 is never found."""
        self._check_total()
        return torch.from_numpy(_search(self._nodes, self._first, values.to(torch.float64).numpy()))

    def stratified(self, batch_size: int, generator: torch.Generator | None = None) -> Drawn:
        """Cut the total into B = `batch_size` equal segments and draw one value in each, as `SegmentTree` does."""
        found, probabilities, _, _ = self._draw(batch_size, generator, _NO_GROUPS, self.capacity)
        return Drawn(torch.from_numpy(found), torch.from_numpy(probabilities))

    def draw_from_groups(
        self, batch_size: int, generator: torch.Generator | None, groups: Array, size: int
    ) -> DrawnFromGroups:
        """Draw as `stratified`, with all that replay needs of the leaves in one call of compiled code.

        `groups` [capacity / size] int64 has a number for each group of `size` leaves.
        """
        found, _, ratios, numbers = self._draw(batch_size, generator, groups, size)
        return DrawnFromGroups(torch.from_numpy(found), torch.from_numpy(ratios), torch.from_numpy(numbers))

    def _draw(self, batch_size: int, generator: torch.Generator | None, groups: Array, size: int) -> Any:
        offsets = torch.rand(batch_size, generator=generator, dtype=torch.float64)  # [B]
        self._check_total()
        return _stratified(self._nodes, self._first, offsets.numpy(), groups, size)

    def _check_total(self) -> None:
        if not self._nodes[1] > 0:
            raise RunError(f"nothing to sample: the priorities sum to {self._nodes[1]}; the agent gives no others")

    def tensors(self) -> list[Tensor]:
        """Return what `set` changes, no copies."""
        return [torch.from_numpy(self._nodes)]


@compiled()
def _write(nodes: Any, first: int, capacity: int, indices: Any, values: Any) -> tuple[int, int]:
    for at in range(len(indices)):
        if not 0 <= indices[at] < capacity:
            return _NO_LEAF, at
        if not 0 <= values[at] < np.inf:
            return _NO_PRIORITY, at
    for at in range(len(indices)):
        node = first + indices[at]
        nodes[node] = values[at]
        node //= 2
        while node > 0:
            nodes[node] = nodes[2 * node] + nodes[2 * node + 1]
            node //= 2
    return _OK, 0


@compiled()
def _search(nodes: Any, first: int, values: Any) -> Any:
    """Go down one level with all values before the next: so the processor waits for many nodes at a time."""
    rest = np.maximum(values, 0.0)
    found = np.ones(len(values), np.int64)
    level = 1
    while level < first:
        level *= 2
        for at in range(len(values)):
            node = 2 * found[at]
            left = nodes[node]
            # Rounding may leave a value that is not below its node's sum, so never enter a child without priority.
            right = (rest[at] >= left) & (nodes[node + 1] != 0)
            rest[at] -= left * right
            found[at] = node + right
    return found - first


@compiled(
    "Tuple((int64[::1], float64[::1], float64[::1], int64[::1]))(float64[::1], int64, float64[::1], int64[::1], int64)"
)
def _stratified(nodes: Any, first: int, offsets: Any, groups: Any, size: int) -> Any:
    """Draw at the given offset [B] in each of B equal segments: leaves, probabilities, ratios, numbers of groups."""
    batch = len(offsets)
    segment = nodes[1] / batch
    places = np.empty(batch)
    for at in range(batch):
        places[at] = (offsets[at] + at) * segment
    found = _search(nodes, first, places)
    probabilities, ratios, numbers = np.empty(batch), np.empty(batch), np.empty(batch, np.int64)
    least = np.inf
    for at in range(batch):
        probabilities[at] = nodes[first + found[at]] / nodes[1]
        least = min(least, probabilities[at])
    for at in range(batch):
        ratios[at] = least / probabilities[at]
        numbers[at] = groups[found[at] // size]
    return found, probabilities, ratios, numbers
