"""Learns from a mixture with little memory, and prints what was learned from; a program of its own, as limits stay.

python -m tests.agents.shortage MEGABYTES      left for batches; updates of 16 sequences need some 100
"""

import resource
import sys

import numpy as np
import psutil
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.budget import make_buffer
from rainbow_iqn_apex.programs.learner.trainers import Turn, make_trainer
from tests.memory.valid import check_valid
from tests.specs import discrete

NUMBERS, BATCH, SEQUENCES = 60_000, 16, 48
WORDS = (
    f"--agent impala --history-length 1 --unroll-length 20 --hidden-size 9 --batch-size {BATCH} --disable-cuda "
    "--memory-capacity 1280 --learn-start 1 --queue-size 2 --replay-mix queue:0.5,uniform:0.5:60"
)


def main(megabytes: int) -> None:
    torch.set_num_threads(1)
    environment = discrete((NUMBERS,), "uint8", 3)
    args = options.parse(WORDS.split(), "shortage", "")
    agent = make_agent(args, environment, torch.device("cpu"), learns=True, seed=1)
    buffer = make_buffer(args, agent, environment, torch.Generator().manual_seed(1))
    assert isinstance(buffer, Mixture)
    rng = np.random.default_rng(1)
    fields = agent.spec.row_fields(environment).items()
    for number in range(SEQUENCES):
        rows = {name: np.zeros((agent.spec.window, *field.shape), field.dtype) for name, field in fields}
        rows["step_type"][:] = 1
        rows["discount"][:] = 1
        rows["obs"][:] = rng.integers(0, 256, NUMBERS)
        rows["reward"][:] = number
        rows["extras.log_policy"][:] = np.log(1 / 3)
        buffer.add(ChunkId(0, number), Chunk(0, 0, rows, {}, None))
    learned: list[int] = []
    note = buffer.learned

    def note_and_remember(batch: Batch, priorities: torch.Tensor | None) -> None:
        fresh = batch.reward[0, ~batch.replayed] if batch.replayed is not None else batch.reward[0]
        learned.extend(int(number) for number in fresh)
        print(f"batch of {batch.reward.shape[1]}, fresh {len(fresh)}")
        note(batch, priorities)

    buffer.learned = note_and_remember  # type: ignore[method-assign]
    trainer = make_trainer(agent, buffer, args.update_size, torch.device("cpu"))
    trainer([Turn(0.1, 1), Turn(0.1, 1)])  # begins the thread, which needs memory of its own
    limit = psutil.Process().memory_info().vms + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for _ in range(200):
        if not buffer.ready():
            break
        turns = [Turn(0.1, 1) for _ in buffer.next_steps(args.queue_size)]
        trainer(turns)
        check_valid(buffer)
    print("learned", *learned)


if __name__ == "__main__":
    main(int(sys.argv[1]))
