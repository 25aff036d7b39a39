"""Parses what batches are mixed of: `queue:0.5,uniform:0.5:10000` is half fresh, half drawn again of 10,000 sequences.

A part is `table:share`, and `:capacity` in sequences for all tables but the queue. Sizes that follow from the parts are
computed here, too: this file is read by the command line, so it imports neither torch nor NumPy.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

QUEUE, UNIFORM, PRIORITISED, ATTENTIVE, ELITE = TABLES = ("queue", "uniform", "prioritised", "attentive", "elite")
P_NORM, COSINE, KL = DISTANCES = ("p-norm", "cosine", "kl")
LEAST_CAPACITY, MOST_CAPACITY = 2, 10_000_000  # sequences of a table
EXPIRY = 4  # capacities: insertions after which a sequence leaves a table with elite insertion, at the latest
_SHARE = re.compile(r"\d{1,9}(\.\d{1,9})?|\.\d{1,9}|\d{1,9}/\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class TableSpec:
    """A table and what it gives to a batch."""

    table: str  # one of TABLES
    share: Fraction  # of a batch's sequences, in (0, 1]
    capacity: int | None  # sequences; None for the queue

    def __str__(self) -> str:
        capacity = "" if self.capacity is None else f":{self.capacity}"
        return f"{self.table}:{self.share}{capacity}"


@dataclass(frozen=True)
class Sampling:
    """How attentive and elite tables choose sequences, within the bounds of the options `MixtureOptions`.

    Of n sequences to choose, ⌊λ n⌋ candidates are drawn, where λ falls linearly from `candidates` to 1.
    """

    strategy: int = 1  # of elite sampling, 1 to 4: see `memory.mixture.tables.select`
    distance: str = P_NORM  # of features: one of DISTANCES
    norm: float = 2.0  # p of the p-norm
    candidates: float = 6.0  # λ at the first update
    annealed_over: int = 1_000_000  # updates until λ is 1
    elite_insertion: bool = False  # a full elite table overwrites the sequence whose features have changed most


def parse_mix(text: str) -> tuple[TableSpec, ...]:
    """Read the parts of a batch, in their order; raises ValueError with the reason in one line."""
    mix = tuple(map(_parse_table, text.split(",")))
    tables = [part.table for part in mix]
    if twice := [table for table in TABLES if tables.count(table) > 1]:
        raise ValueError(f"the table {twice[0]} stands there twice")
    if QUEUE not in tables:
        raise ValueError("there is no queue: its share is what keeps playing and learning together")
    if (total := sum(part.share for part in mix)) != 1:
        raise ValueError(f"the shares sum to {_decimal(total)}, and must sum to 1")
    return mix


def _parse_table(text: str) -> TableSpec:
    table, *values = text.split(":")
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}, only {_listed(TABLES)}")
    if not 1 <= len(values) <= 2:
        raise ValueError(f"{text!r} is not a table, its share and its capacity, as in uniform:0.5:10000")
    share = _parse_share(table, values[0])
    if table == QUEUE:
        if len(values) == 2:
            raise ValueError(f"the queue has no capacity of its own, and {text!r} gives it one")
        return TableSpec(table, share, None)
    if len(values) == 1:
        raise ValueError(f"the table {table} has no capacity in sequences, as in {table}:{values[0]}:10000")
    if not re.fullmatch(r"\d{1,15}", values[1], re.ASCII):
        raise ValueError(f"the capacity of {table} is no whole number of sequences: {values[1]!r}")
    if not LEAST_CAPACITY <= int(values[1]) <= MOST_CAPACITY:
        raise ValueError(
            f"the capacity of {table} must be {LEAST_CAPACITY} to {MOST_CAPACITY} sequences, not {int(values[1])}"
        )
    return TableSpec(table, share, int(values[1]))


def _parse_share(table: str, text: str) -> Fraction:
    if not _SHARE.fullmatch(text) or ("/" in text and not int(text.partition("/")[2])):
        raise ValueError(f"the share of {table} is no number such as 0.25 or 1/3: {text!r}")
    share = Fraction(text)
    if not 0 < share <= 1:
        raise ValueError(f"the share of {table} must be above 0 and at most 1, not {text}")
    return share


def step(mix: tuple[TableSpec, ...]) -> int:
    """Return the smallest batch size whose shares are whole sequences; all others are its multiples."""
    return math.lcm(*(part.share.denominator for part in mix))


def counts(mix: tuple[TableSpec, ...], batch_size: int) -> tuple[int, ...]:
    """Return by table how many sequences of a batch it gives.

    Raises ValueError if a share is no whole number of sequences, which names batch sizes that would do, or
    if a table cannot hold what a batch takes of it.
    """
    smallest = step(mix)
    if batch_size < 1 or batch_size % smallest:
        below, above = batch_size // smallest * smallest, (batch_size // smallest + 1) * smallest
        sizes = [size for size in (below, above) if size > 0]
        broken = next((part for part in mix if (part.share * batch_size).denominator > 1), mix[0])
        raise ValueError(
            f"{_decimal(broken.share * batch_size)} sequences of a batch of {batch_size} would come from "
            f"{broken.table}: choose a batch size of {' or '.join(map(str, sizes))}"
        )
    numbers = tuple(int(part.share * batch_size) for part in mix)
    for part, number in zip(mix, numbers, strict=True):
        if part.capacity is not None and part.capacity < number:
            raise ValueError(
                f"a batch of {batch_size} takes {number} sequences of {part.table}, which holds {part.capacity}: "
                f"choose a capacity of {number} at least"
            )
    return numbers


def shrunk(mix: tuple[TableSpec, ...], batch_size: int) -> int | None:
    """Return the next smaller batch size whose shares are whole; None if there is none."""
    smaller = (batch_size - 1) // step(mix) * step(mix)
    return smaller if smaller > 0 else None


def most_chunks(mix: tuple[TableSpec, ...], queue_slots: int, settings: Sampling) -> int:
    """Return how many sequences are held at once at most, by all tables and a queue of `queue_slots` together.

    Tables without elite insertion hold the newest sequences, so the largest of them holds what the others do. One
    more is stored before the sequences that it replaces are given up.
    """
    chosen = [part for part in mix if _chooses(part, settings)]
    newest = [part for part in mix if part not in chosen]
    largest = max((part.capacity or 0 for part in newest), default=0)
    return queue_slots + largest + sum(part.capacity or 0 for part in chosen) + 1


def longest_held(mix: tuple[TableSpec, ...], queue_slots: int, settings: Sampling) -> int:
    """Return for how many insertions a sequence is held at most: so long the log must keep it."""
    expiries = [EXPIRY * (part.capacity or 0) if _chooses(part, settings) else part.capacity or 0 for part in mix]
    return max(queue_slots, *expiries)


def _chooses(part: TableSpec, settings: Sampling) -> bool:
    return part.table == ELITE and settings.elite_insertion


def _decimal(number: Fraction | int) -> str:
    return f"{float(number):.9g}"


def _listed(names: Iterable[object]) -> str:
    *others, last = map(str, names)
    return f"{', '.join(others)} and {last}"
