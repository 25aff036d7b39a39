"""Measures what updates hold in memory; prints it, and what the budget says of it.

python -m tests.update_memory --agent impala --replay-mix queue:0.5,elite:0.5:100
"""

import ctypes
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.impala.options import MixtureOptions
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner import budget
from rainbow_iqn_apex.programs.learner.budget import make_buffer
from rainbow_iqn_apex.programs.learner.trainers import Turn, make_trainer
from tests.specs import ATARI


def main() -> None:
    torch.set_num_threads(1)
    args = options.parse(sys.argv[1:], "test", "")
    agent = make_agent(args, ATARI, torch.device("cpu"), learns=True, seed=1)
    if agent.mixing:
        args = replace(args, memory_capacity=args.queue_size * args.batch_size * agent.spec.period)
    work = updates_of_mixture(args, agent) if agent.mixing else update_of(agent, args.batch_size)
    ctypes.CDLL(None).malloc_trim(0)  # or the update would take what is free, and not be seen to
    before = resident("VmRSS")
    used, estimated = 0, budget.update_bytes(args, agent, ATARI)
    for _ in range(5):  # on a busy machine the target network's pass may come after the other, and not beside it
        if 2 * used < estimated:
            work()
            used = resident("VmHWM") - before
    print(used, estimated)


def update_of(agent: Agent, batch_size: int) -> Callable[[], object]:
    """Return an update with a batch of this size, once PyTorch has loaded all and the optimiser has its moments."""
    spec, fields = agent.spec, agent.spec.row_fields(ATARI).items()

    def update(B: int) -> None:
        T = spec.sample_window
        rows = {name: torch.from_numpy(np.ones((T, B, *field.shape), field.dtype)) for name, field in fields}
        state = {name: torch.from_numpy(np.ones((B, *field.shape), field.dtype)) for name, field in spec.state}
        agent.update(Batch(rows, state, torch.ones(B)), 0.5)

    update(1)
    return lambda: update(batch_size)


def updates_of_mixture(args: options.Args, agent: Agent) -> Callable[[], object]:
    """Return a call of the trainer, as of `update_of`: updates with all batches that are prepared at a time."""
    spec = agent.spec
    rows = {name: np.ones((spec.window, *field.shape), field.dtype) for name, field in spec.row_fields(ATARI).items()}
    chunk = Chunk(0, 0, rows, {name: np.ones(field.shape, field.dtype) for name, field in spec.state}, None)
    mixture = make_buffer(args, agent, ATARI, torch.Generator())
    assert agent.mixing is not None and isinstance(mixture, Mixture) and isinstance(args.own, MixtureOptions)
    for number in range(max(part.capacity or 0 for part in args.own.mix)):
        mixture.add(ChunkId(0, number), chunk)
    trainer = make_trainer(agent, mixture, None, torch.device("cpu"))
    one = Batch(
        {name: torch.from_numpy(array)[:, None] for name, array in rows.items()},
        {name: torch.from_numpy(array)[None] for name, array in chunk.state.items()},
        replayed=torch.tensor([True]),
    )
    agent.update(one, 0.5)
    agent.mixing.measure(one.rows, one.state)
    return lambda: trainer([Turn(0.5, number) for number in range(args.queue_size)])


def resident(what: str) -> int:  # not getrusage, whose maximum may be that of the process that began this one
    return 1024 * int(re.search(rf"(?m)^{what}:\s+(\d+) kB$", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


if __name__ == "__main__":
    main()
