"""The tables of a mixture from which sequences are drawn again: uniform, prioritised, attentive and elite.

Each holds slots of the pool in a ring: sequence number k, counted over all that were inserted, stands at position
k mod capacity, in the place of the oldest. Only elite insertion chooses another place. A position may be reserved for a
sequence that is still to come after a restart; it is not drawn from meanwhile. Elite sampling chooses, of some
candidates drawn uniformly, those whose features the present network has changed least. Letters: C candidates, n
sequences to choose.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.mixture.features import AT_ONCE, Features
from rainbow_iqn_apex.memory.mixture.pool import Pool
from rainbow_iqn_apex.memory.mixture.spec import ATTENTIVE, ELITE, EXPIRY, PRIORITISED, Sampling, TableSpec
from rainbow_iqn_apex.memory.replay import make_tree
from rainbow_iqn_apex.memory.rows import Array

_RIVALS = 20  # slots of a full elite table among which one is overwritten
_LEAST_PRIORITY = 1e-9  # a table whose priorities are all 0 could give nothing


def nb_candidates(n: int, start: float, updates: int, annealed_over: int, available: int) -> int:
    """Count the candidates for n sequences: ⌊λ n⌋, at least n, at most those `available`.

    λ falls linearly from `start` to 1 over `annealed_over` updates, of which `updates` have been made, and stays
    there: then the candidates are the batch, and sampling is uniform. `start` counts as the decimal number that it is
    written as, so 2.3 · 10 is 23.
    """
    remaining = 1 - Fraction(min(updates, annealed_over), annealed_over)
    factor = 1 + (Fraction(str(start)) - 1) * remaining
    return min(max(n, math.floor(factor * n)), available)


def draw(available: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw numbers below `available` uniformly: [count] int64 on the generator's device.

    None comes twice before all have come: of fewer than `count`, each comes ⌊count / available⌋ times or once more.
    """
    order = torch.randperm(available, generator=generator, device=generator.device)  # [available]
    return order[torch.arange(count, device=order.device) % available]


def select(strategy: int, distances: Tensor, times_sampled: Tensor, n: int) -> Tensor:
    """Choose n of C candidates, without waiting for the device.

    Strategy 1: those of the n smallest distances. 2: sorted by distance, cut into n equal parts, the first of each. 3:
    as 1, but those sampled least often come first. 4: as 2, but the least often sampled of each part. Part i begins at
    ⌊i C / n⌋. Of equal candidates the first counts. No candidate is chosen twice unless there are fewer than n: then
    each is chosen ⌊n / C⌋ times or once more, where strategies 1 and 3 give the surplus to those that come first.

    Distances [C] float and the times that each was sampled [C] int64 give [n] int64 in [0, C), where C and n are 1 at
    least.
    """
    order = distances.argsort(stable=True)  # [C]
    places, ranks = (torch.arange(count, device=order.device) for count in (n, len(order)))  # [n], [C]
    starts = places * len(order) // n  # [n]
    if strategy in (3, 4):
        ranks = times_sampled[order].argsort(stable=True)  # [C]
    if strategy in (1, 3):
        return order[ranks[places % len(order)]]
    if strategy == 4:
        ranks = ranks[torch.searchsorted(starts, ranks, right=True).argsort(stable=True)]
    return order[ranks[starts]]


class Table:
    """Uniform: each sequence is drawn equally often, none twice in a batch as long as there are enough."""

    def __init__(self, pool: Pool, capacity: int, generator: torch.Generator) -> None:
        self.capacity = capacity
        self.slots: Array = np.full(capacity, -1, np.int64)  # by position; -1 is empty
        self._pool = pool
        self._generator = generator

    def add(self, slot: int, number: int) -> None:
        """Hold a new sequence in the place of another."""
        self.hold(self._place(number), slot)

    def _place(self, number: int) -> int:
        return number % self.capacity

    def hold(self, position: int, slot: int) -> None:
        """Hold a slot at a position, in the place of what stands there."""
        if self.slots[position] >= 0:
            self._give_up(position)
        self.slots[position] = slot
        self._pool.retain(slot)

    def here(self) -> Array:
        """Return the positions whose sequences can be drawn: [n] int64."""
        return np.flatnonzero((self.slots >= 0) & self._pool.here[self.slots])

    def sample(self, n: int, updates: int) -> Tensor:  # noqa: ARG002 - an elite table's
        """Draw n sequences after so many updates: slots [n]; one at least must be here."""
        here = self._here()
        return self._slots_at(here[draw(len(here), n, self._generator)])

    def forget(self, slots: set[int]) -> None:
        """Give up sequences that will not come any more."""
        for position in np.flatnonzero(np.isin(self.slots, list(slots))):
            self._give_up(int(position))

    def _give_up(self, position: int) -> None:
        self._pool.release(int(self.slots[position]))
        self.slots[position] = -1

    def references(self) -> Iterable[int]:
        """Return all slots that the table holds."""
        held: list[int] = self.slots[self.slots >= 0].tolist()
        return held

    def _here(self) -> Tensor:
        return torch.from_numpy(self.here()).to(self._pool.device)  # [positions]

    def _slots_at(self, positions: Tensor) -> Tensor:
        return torch.from_numpy(self.slots).to(self._pool.device)[positions]


class PrioritisedTable(Table):
    """Draws in proportion to priorities; a new sequence has the largest that there has been, 1 at first."""

    def __init__(self, pool: Pool, capacity: int, generator: torch.Generator) -> None:
        super().__init__(pool, capacity, generator)
        self.largest = torch.ones((), dtype=torch.float64, device=pool.device)
        self.tree = make_tree(capacity, pool.device)
        self._numbers = torch.full((capacity,), -1, dtype=torch.int64, device=pool.device)  # by position
        self._reserved: dict[int, float] = {}  # by slot: priorities of sequences still to come

    def hold(self, position: int, slot: int) -> None:
        """Hold a slot with the largest priority, or with 0 if its sequence is still to come."""
        super().hold(position, slot)
        self._numbers[position] = int(self._pool.numbers[slot])
        self._set(position, self.largest if self._pool.here[slot] else torch.zeros_like(self.largest))

    def reserve_priority(self, slot: int, priority: float) -> None:
        """Remember the priority of a sequence that is still to come."""
        self._reserved[slot] = max(priority, _LEAST_PRIORITY)

    def arrive(self, slot: int) -> None:
        """Let a sequence that was still to come be drawn, as often as before the restart."""
        priority = self._reserved.pop(slot, None)
        for position in np.flatnonzero(self.slots == slot):
            self._set(int(position), self.largest if priority is None else torch.tensor(priority, dtype=torch.float64))

    def _give_up(self, position: int) -> None:
        self._reserved.pop(int(self.slots[position]), None)
        self._numbers[position] = -1
        self._set(position, torch.zeros_like(self.largest))
        super()._give_up(position)

    def sample(self, n: int, updates: int) -> Tensor:  # noqa: ARG002 - an elite table's
        """Draw n sequences, stratified by priority: slots [n]; one at least must be here."""
        return self._slots_at(self.tree.stratified(n, self._generator).indices)

    def learned(self, numbers: Tensor, priorities: Tensor) -> None:
        """Set the new priorities [B] of sequences by their numbers [B]; those not held any more are left out."""
        positions = numbers % self.capacity
        held = self._numbers[positions] == numbers  # [B]
        new = priorities.detach().to(self._pool.device, torch.float32)[held]  # as a checkpoint holds them
        new = new.double().clamp(min=_LEAST_PRIORITY)
        self.tree.set(positions[held], new)
        if len(new):
            self.largest = torch.maximum(self.largest, new.max())

    def priorities(self) -> Tensor:
        """Return the priorities by position: [capacity] float64; 0 where none is held, or still to come."""
        priorities: Tensor = self.tree.get(torch.arange(self.capacity, device=self._pool.device))
        return priorities

    def saved_priorities(self) -> dict[int, float]:
        """Return by slot the priorities of all that is held or still to come."""
        priorities = self.priorities().tolist()
        held = ((position, int(slot)) for position, slot in enumerate(self.slots) if slot >= 0)
        return {slot: self._reserved.get(slot, priorities[position]) for position, slot in held}

    def _set(self, position: int, priority: Tensor) -> None:
        place = torch.tensor([position], device=self._pool.device)
        self.tree.set(place, priority.to(self._pool.device, torch.float64).reshape(1))


class AttentiveTable(Table):
    """Draws candidates uniformly, and gives those whose present features are nearest to those of the newest row."""

    def __init__(
        self, pool: Pool, capacity: int, generator: torch.Generator, features: Features, settings: Sampling
    ) -> None:
        super().__init__(pool, capacity, generator)
        self._features = features
        self._settings = settings

    def sample(self, n: int, updates: int) -> Tensor:
        """Choose n sequences after so many updates: slots [n]; one at least must be here."""
        positions = self._candidates(n, updates)  # [C]
        if len(positions) != n:
            remoteness = self._features.remoteness(self._slots_at(positions), self._newest())  # [C]
            positions = positions[select(1, remoteness, torch.zeros_like(positions), n)]  # the nearest
        return self._slots_at(positions)

    def _candidates(self, n: int, updates: int) -> Tensor:
        """Draw the positions [C] among which n are chosen: exactly n once sampling is uniform."""
        here = self._here()
        settings = self._settings
        count = nb_candidates(n, settings.candidates, updates, settings.annealed_over, len(here))
        return here[draw(len(here), count, self._generator)]

    def _newest(self) -> Tensor:
        slots = self.slots[self.here()]
        return self._pool.tensor([slots[self._pool.numbers[slots].argmax()]])


class EliteTable(AttentiveTable):
    """Draws candidates uniformly, and gives those whose features have changed least, by one of four strategies.

    With elite insertion a full table overwrites, of 20 sequences drawn at random, the one whose features have changed
    most. The log keeps a sequence as long as the table does, so a sequence leaves at the latest after `EXPIRY`
    capacities of insertions: then it goes in the place of all others.
    """

    def __init__(
        self, pool: Pool, capacity: int, generator: torch.Generator, features: Features, settings: Sampling
    ) -> None:
        super().__init__(pool, capacity, generator, features, settings)
        self.sampled = torch.zeros(capacity, dtype=torch.int64, device=pool.device)  # times, by position

    def hold(self, position: int, slot: int) -> None:
        """Hold a slot that was never sampled."""
        super().hold(position, slot)
        self.sampled[position] = 0

    def sample(self, n: int, updates: int) -> Tensor:
        """Choose n sequences after so many updates, and count them: slots [n]; one at least must be here."""
        positions = self._candidates(n, updates)  # [C]
        if len(positions) != n:
            changes = self._features.changes(self._slots_at(positions))  # [C]
            positions = positions[select(self._settings.strategy, changes, self.sampled[positions], n)]
        self.sampled.index_add_(0, positions, torch.ones_like(positions))
        return self._slots_at(positions)

    def _place(self, number: int) -> int:
        if not self._settings.elite_insertion:
            return super()._place(number)
        if len(empty := np.flatnonzero(self.slots < 0)):
            return int(empty[0])
        numbers = self._pool.numbers[self.slots]
        oldest = int(numbers.argmin())
        here = self._here()
        if not len(here) or numbers[oldest] <= number - EXPIRY * self.capacity:
            return oldest
        rivals = here[draw(len(here), min(_RIVALS, len(here)), self._generator)]
        return int(rivals[self._features.changes(self._slots_at(rivals)).argmax()])


def most_measured(mix: tuple[TableSpec, ...], batch_size: int, settings: Sampling) -> int:
    """Return how many sequences tables measure at once at most, as they fill a batch or insert; 0 without distances."""
    numbers = [0]
    for part in mix:
        if part.table in (ATTENTIVE, ELITE):
            capacity = part.capacity or 0
            n = int(part.share * batch_size)
            numbers.append(nb_candidates(n, settings.candidates, 0, settings.annealed_over, capacity))
            numbers.append(min(_RIVALS, capacity) if settings.elite_insertion and part.table == ELITE else 0)
    return min(max(numbers), AT_ONCE)


def make_table(
    part: TableSpec, pool: Pool, generator: torch.Generator, features: Features, settings: Sampling
) -> Table:
    """Make an empty table."""
    capacity = part.capacity or 0
    if part.table == PRIORITISED:
        return PrioritisedTable(pool, capacity, generator)
    if part.table in (ATTENTIVE, ELITE):
        kind = AttentiveTable if part.table == ATTENTIVE else EliteTable
        return kind(pool, capacity, generator, features, settings)
    return Table(pool, capacity, generator)
