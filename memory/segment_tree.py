"""The sum tree of prioritised replay (Schaul et al. 2016, arXiv 1511.05952), 128 children wide, as torch tensors.

A wide tree is shallow: of a million leaves it has three levels, and a whole batch goes down each level at once, with a
gather, a prefix sum and a search. An update recomputes the sums of the touched nodes. It never adds differences to
them, so rounding errors do not pile up, however often it is called. Letters: B batch, F fan-out.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Drawn(NamedTuple):
    """A prioritised batch of leaves."""

    indices: Tensor  # [B] int64
    probabilities: Tensor  # [B] float64, p_i / Σp at the moment of the draw


def importance_weights(probabilities: Tensor, beta: float | Tensor) -> Tensor:
    """Compute the weights [B] in (0, 1]: (N · P)^(−β), divided by the largest (Schaul et al. 2016, section 3.4).

    `probabilities` [B] are P(i) > 0 of each sample, and β in [0, 1]; 1 corrects the whole bias. The division cancels N,
    the number of leaves that can be drawn, and the largest weight is that of the least probability.
    """
    return (probabilities.min() / probabilities).pow_(beta)


class SegmentTree:
    """Priorities of `capacity` leaves, all 0 at first, and draws in proportion to them.

    Nothing here loops over a batch, and shapes alone decide what runs, so one code serves CPU and GPU; on a CPU
    `BinaryTree` is faster. Values are not checked: on a GPU each check would wait for the device, and could not be
    captured in a CUDA graph. Bad priorities and an empty tree go unnoticed: draws then make no sense, but stay inside
    the tree. Indices and values are expected on the tree's device; a node has F = `fan_out`
    children.
    """

    def __init__(self, capacity: int, device: torch.device | str = "cpu", fan_out: int = 128):
        self.capacity = capacity
        self._fan_out = fan_out
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        self._levels: list[Tensor] = []  # each [nodes, F], root first: the children of each node of this level
        nodes = capacity
        while nodes > 1 or not self._levels:
            nodes = -(-nodes // fan_out)
            self._levels.insert(0, torch.zeros((nodes, fan_out), dtype=torch.float64, device=device))
        self._leaves = self._levels[-1].view(-1)[:capacity]  # [capacity] without the padding
        self._root = torch.zeros(1, dtype=torch.float64, device=device)
        parents = [self._root, *(level.view(-1) for level in self._levels)]
        self._sums = [sums[: len(level)] for sums, level in zip(parents, self._levels, strict=False)]  # each [nodes]

    @property
    def total(self) -> Tensor:
        """The sum of all priorities: 0-d float64, a copy that later updates leave alone."""
        return self._root[0].clone()

    def get(self, indices: Tensor) -> Tensor:
        """Read the priorities [B], float64, of the leaves [B], int64; on the CPU, IndexError if one does not exist."""
        return self._leaves.index_select(0, indices)

    def set(self, indices: Tensor, values: Tensor, where: Tensor | None = None) -> None:
        """Write priorities and recompute every sum above them.

        Args:
            indices: [B] int64 in [0, capacity). Of equal ones the last wins on the CPU, any one on a GPU and in
                batches so large that torch divides them among threads (32768).
            values: [B] float, finite and >= 0.
            where: [B] bool; leaves where it is false keep what they have. None writes all.

        Raises:
            ValueError: the shapes differ.
        """
        if indices.dim() != 1 or indices.shape != values.shape:
            raise ValueError(f"indices {tuple(indices.shape)} and values {tuple(values.shape)} must both be [B]")
        values = values.detach().to(torch.float64)
        if where is not None:
            values = torch.where(where, values, self.get(indices))
        self._leaves.index_copy_(0, indices, values)
        nodes = indices
        for children, sums in zip(reversed(self._levels), reversed(self._sums), strict=True):
            nodes = nodes // self._fan_out  # [B]
            if len(nodes) < len(children):
                sums.index_copy_(0, nodes, children.index_select(0, nodes).sum(1))
            else:  # a whole level costs less than a gather of B nodes
                torch.sum(children, 1, out=sums)

    def sample(self, values: Tensor) -> Tensor:
        """Find the leaves [B], int64, in which values fall when the priorities are laid end to end.

        A leaf of priority 0 is never found, whatever the rounding. Values are [B] float in [0, total); what lies
        outside counts as the nearest value inside.
        """
        nodes = torch.zeros_like(values, dtype=torch.int64)  # [B]
        value = values.to(torch.float64).clamp(min=0).unsqueeze(1)  # [B, 1] what is left of it inside the node
        for children in self._levels:
            nodes = nodes.clamp_(max=len(children) - 1)  # only a tree without valid priorities overflows
            prefix = _prefix_sums(children, nodes)  # [B, F]
            # Rounding may have left as much as the node holds; the largest value below that is in its last child.
            value = torch.minimum(value, torch.nextafter(prefix[:, -1:], self._zero))  # [B, 1]
            child = _first_above(prefix, value)  # [B, 1]
            before = prefix.gather(1, (child - 1).clamp_(min=0)).masked_fill_(child == 0, 0)  # [B, 1]
            value = value - before
            nodes = nodes * self._fan_out + child.squeeze(1)
        return nodes.clamp_(max=self.capacity - 1)

    def stratified(self, batch_size: int, generator: torch.Generator | None = None) -> Drawn:
        """Cut the total into B = `batch_size` equal segments and draw one value in each (appendix B.2.1).

        The generator lives on the tree's device; None is torch's global one.
        """
        offsets = torch.rand(batch_size, generator=generator, dtype=torch.float64, device=self._root.device)  # [B]
        places = torch.arange(batch_size, device=self._root.device) + offsets  # [B] counted in segments
        indices = self.sample(places * (self._root / batch_size))  # [B]
        return Drawn(indices, self.get(indices) / self._root)

    def tensors(self) -> list[Tensor]:
        """Return what `set` changes, no copies."""
        return [self._root, *self._levels]


def _prefix_sums(children: Tensor, nodes: Tensor) -> Tensor:
    """Sum the children [nodes, F] of B nodes from the first to each: [B, F], never falling, flat where one is 0."""
    if len(children) < len(nodes):
        return _scan(children).index_select(0, nodes)
    return _scan(children.index_select(0, nodes))


def _scan(children: Tensor) -> Tensor:
    prefix = children.cumsum(1)
    return prefix if prefix.device.type == "cpu" else _flatten_scan(prefix, children)


def _first_above(prefix: Tensor, value: Tensor) -> Tensor:
    """Find the first child whose prefix sum [B, F] exceeds the value [B, 1]: [B, 1] int64."""
    return torch.searchsorted(prefix, value, right=True)


def _flatten_scan(prefix: Tensor, children: Tensor) -> Tensor:
    """Undo the rounding of a parallel scan, which may order the additions of every prefix [B, F] differently.

    Neighbours then differ by a rounding error even where the child [B, F] between them is 0, and that child could be
    drawn. A CPU adds one child after the other, and has no such error.
    """
    return prefix.masked_fill(children == 0, 0).cummax(1).values
