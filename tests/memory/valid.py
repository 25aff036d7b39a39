"""Checks that a structure of replay holds together, which tests of random operations make after each operation."""

from typing import Any

import numpy as np
import torch

from rainbow_iqn_apex.memory.fast.binary_tree import BinaryTree
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.pool import Pool
from rainbow_iqn_apex.memory.mixture.tables import EliteTable, PrioritisedTable, Table
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.segment_tree import SegmentTree


def check_valid(structure: Any) -> None:
    """Recompute all that a tree, a replay or a mixture keeps twice; raises ValueError where the two disagree."""
    match structure:
        case SegmentTree():
            _check_wide(structure)
        case BinaryTree():
            _check_binary(structure)
        case Replay():
            _check_replay(structure)
        case Mixture():
            _check_mixture(structure)
        case _:
            raise TypeError(f"no check of a {type(structure).__name__}")


def _check_wide(tree: SegmentTree) -> None:
    leaves = tree._levels[-1]
    _check_priorities(leaves.view(-1)[: tree.capacity].cpu().numpy(), leaves.view(-1)[tree.capacity :].cpu().numpy())
    for depth in reversed(range(len(tree._levels))):
        sums, exact = tree._sums[depth], tree._levels[depth].sum(1)  # [nodes]
        wrong = ~((sums - exact).abs() <= 1e-13 * exact)  # [nodes] also true where a sum is NaN
        if bool(wrong.any()):
            node = int(wrong.nonzero()[0])
            raise ValueError(f"level {depth}: node {node} holds {sums[node]}, its children {exact[node]}")


def _check_binary(tree: BinaryTree) -> None:
    _check_priorities(tree._leaves, tree._nodes[tree._first + tree.capacity :])
    exact = tree._nodes[2::2] + tree._nodes[3::2]
    wrong = np.flatnonzero(tree._nodes[1 : tree._first] != exact)
    if len(wrong):
        node = int(wrong[0]) + 1
        raise ValueError(f"node {node} holds {tree._nodes[node]}, its children {exact[node - 1]}")


def _check_priorities(leaves: Any, padding: Any) -> None:
    if not ((leaves >= 0) & (leaves < np.inf)).all():
        raise ValueError("a priority is negative, infinite or NaN")
    if padding.any():
        raise ValueError("a leaf beyond the capacity has a priority")


def _check_replay(replay: Replay) -> None:
    check_valid(replay._tree)
    leaves = replay._tree.get(torch.arange(replay.slots * replay.spec.samples, device=replay.device))
    kinds = replay.ring.rows["step_type"].reshape(replay.slots, replay.spec.window).cpu().numpy()
    learnable = np.stack([replay.spec.learnable(step_type) for step_type in kinds])
    learnable[[chunk_id is None for chunk_id in replay._ids]] = False
    if np.any(leaves.cpu().numpy()[~learnable.ravel()] != 0):
        raise ValueError("a LAST row or an empty slot has a priority")
    held = list(replay._held())
    if len(held) != replay._filled:
        raise ValueError(f"{replay._filled} chunks counted, {len(held)} held")
    steps = [replay.spec.steps(kinds[slot]) for slot, chunk_id in enumerate(replay._ids) if chunk_id is not None]
    if sum(steps) != replay.steps:
        raise ValueError(f"{replay.steps} agent steps counted, {sum(steps)} held")
    if len(set(held)) != len(held):
        raise ValueError("a chunk is held twice")


def _check_mixture(mixture: Mixture) -> None:
    waiting = list(mixture._queue.waiting)
    given = [slot for given in mixture._queue._given for slot in given.slots]
    _check_pool(mixture._pool, [*waiting, *given, *(slot for table in mixture._tables for slot in table.references())])
    for table in mixture._tables:
        _check_table(table)
    if len(set(waiting)) != len(waiting) or len(mixture._queue) > mixture.slots:
        raise ValueError("a sequence waits twice, or more wait than there is room for")


def _check_pool(pool: Pool, referred: list[int]) -> None:
    counted = np.bincount(np.array(referred, np.int64), minlength=pool.size)
    if len(counted) > pool.size or np.any(counted != pool.references):
        raise ValueError(f"the pool counts other references than there are: {pool.references} for {counted}")
    used = {slot for slot, chunk_id in enumerate(pool.ids) if chunk_id is not None}
    if used != set(np.flatnonzero(counted).tolist()) or sorted(pool._free) != sorted({*range(pool.size)} - used):
        raise ValueError("a slot without a reference is in use, or one with a reference is free")
    if len({pool.ids[slot] for slot in used}) != len(used):
        raise ValueError("a sequence is held twice")
    if {slot: pool.ids[slot] for slot in used if not pool.here[slot]} != {s: i for i, s in pool.awaited.items()}:
        raise ValueError("a slot is reserved for a sequence that is here, or for none")
    here = np.flatnonzero(pool.here)
    if not np.array_equal(pool._ring.generation.cpu().numpy()[here], pool.numbers[here]):
        raise ValueError("a slot holds the rows of another sequence")


def _check_table(table: Table) -> None:
    pool, positions = table._pool, np.flatnonzero(table.slots >= 0)
    is_ring = not (isinstance(table, EliteTable) and table._settings.elite_insertion)
    if is_ring and np.any(pool.numbers[table.slots[positions]] % table.capacity != positions):
        raise ValueError("a sequence does not stand in its place of the ring")
    if isinstance(table, EliteTable):
        held = table.slots[positions]
        if len(set(held.tolist())) != len(held):
            raise ValueError("an elite table holds a sequence twice")
        if bool((table.sampled < 0).any()):
            raise ValueError("a sequence was sampled less than never")
    if isinstance(table, PrioritisedTable):
        _check_prioritised(table)


def _check_prioritised(table: PrioritisedTable) -> None:
    check_valid(table.tree)
    drawn = np.zeros(table.capacity, np.bool_)
    drawn[table.here()] = True
    if np.any((table.priorities().cpu().numpy() > 0) != drawn):
        raise ValueError("a priority is 0 where a sequence is, or another number where none is")
    numbers = np.where(table.slots >= 0, table._pool.numbers[table.slots], -1)
    if not np.array_equal(table._numbers.cpu().numpy(), numbers):
        raise ValueError("a prioritised sequence goes by another number")
    if not table._reserved.keys() <= set(table._pool.awaited.values()):
        raise ValueError("a priority is reserved for a sequence that is not awaited")
