"""How fast the paper's network acts and learns.

    python -m benchmarks.networks

The first work of each table is what the machine can do at best: the matrix products of the widest layer alone.
"""

import argparse
from dataclasses import replace

import numpy as np
import torch

from benchmarks.chunks import random_chunks
from benchmarks.harness import Comparison, Work, compare, run
from rainbow_iqn_apex.agents.precision import computes_in_bfloat16
from rainbow_iqn_apex.agents.rainbow_iqn.options import RainbowIqnOptions
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Arrays, Rows, StepType
from rainbow_iqn_apex.programs.common import make_agent
from rainbow_iqn_apex.programs.learner.trainer import make_trainer
from rainbow_iqn_apex.programs.learner.trainer_base import Turn

_CPU = torch.device("cpu")
_ENVIRONMENT = EnvironmentSpec(Field((84, 84), "uint8"), Discrete(18))
PERIOD = 4  # agent steps of an actor's noise draw, by default
# Floating-point operations of one update (batch 32, N = N' = 64, K = 32): what 65.5 GFLOP in 73 ms were counted from.
_UPDATE_FLOP = 65.5e9


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Acting for 1 and 8 environments on one thread; updates on all cores."""
    settings = _settings(args)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    comparisons = [_acting(settings, environments, args) for environments in (1, 8)]
    torch.set_num_threads(threads)
    return [*comparisons, _updates(settings, args)]


def _settings(args: argparse.Namespace) -> Args:
    return Args(learn_start=1, own=RainbowIqnOptions(hidden_size=64 if args.quick else RainbowIqnOptions.hidden_size))


def _hidden_size(settings: Args) -> int:
    size: int = settings.get("hidden_size")
    return size


def _acting(settings: Args, environments: int, args: argparse.Namespace) -> Comparison:
    product = product_work(32 * environments, 3136, 2 * _hidden_size(settings))
    works: dict[str, Work] = {"product of the hidden layer alone": lambda: [product() for _ in range(PERIOD)]}
    for name in _precisions():
        for what, period in {"": PERIOD, ", without the draws of noise": 10**9}.items():
            works[f"act, {name}{what}"] = act_work(replace(settings, replay_frequency=period), name, environments)
    # 1.0 ms for one environment and 5.5 for eight with the weights ready, where the product took 0.46 and 3.7 ms.
    wanted = {"act, bfloat16, without the draws of noise": {1: 0.46, 8: 0.67}[environments]}
    name = f"act for {environments}"
    return compare(name, "calls/s", works, per_call=PERIOD, repeats=args.repeats, wanted=wanted)


def _precisions() -> tuple[str, ...]:
    return ("bfloat16", "float32") if computes_in_bfloat16(_CPU) else ("float32",)


def act_work(settings: Args, precision: str, environments: int) -> Work:
    """Agent steps in each environment, as many as stand for a noise draw by default."""
    agent = make_agent(replace(settings, precision=precision), _ENVIRONMENT, _CPU, learns=False, seed=1)
    rng = np.random.default_rng(0)
    rows = Rows(
        obs=rng.integers(0, 256, (environments, 84, 84), dtype=np.uint8),
        step_type=np.full(environments, StepType.MID, np.uint8),
        reward=np.zeros(environments, np.float32),
        discount=np.ones(environments, np.float32),
    )
    state: Arrays = {}

    def act() -> None:
        nonlocal state
        for _ in range(PERIOD):
            _, state = agent.act(rows, state, 10)

    return act


def _updates(settings: Args, args: argparse.Namespace) -> Comparison:
    size = 2 * _hidden_size(settings)
    works: dict[str, Work] = {"products alone": _products(size)}
    for precision in _precisions():
        works[f"update, {precision}"] = update_work(replace(settings, precision=precision))
    # 105 ms where the 65.5 GFLOP take 73.
    wanted = {"update, bfloat16": 73 / (1000 / 9.5)}
    return compare("update, batch 32", "updates/s", works, repeats=args.repeats, wanted=wanted, slice_s=1.0)


def product_dtype() -> torch.dtype:
    """Return the precision of large products on this machine, by default."""
    return torch.bfloat16 if computes_in_bfloat16(_CPU) else torch.float32


def product_work(rows: int, inner: int, columns: int) -> Work:
    """A matrix product, in bfloat16 where the processor has it."""
    dtype = product_dtype()
    a, b = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)
    return lambda: a @ b


def _products(columns: int) -> Work:
    """As many operations as an update's, in products of its widest layer's size."""
    product = product_work(2048, 3136, columns)
    times = round(_UPDATE_FLOP * columns / 1024 / (2 * 2048 * 3136 * columns))

    def work() -> None:
        for _ in range(times):
            product()

    return work


def update_work(settings: Args) -> Work:
    """An update of the learner, with sampling and new priorities."""
    agent = make_agent(settings, _ENVIRONMENT, _CPU, learns=True, seed=1)
    replay = Replay(agent.spec, _ENVIRONMENT, 20 * agent.spec.period, torch.Generator().manual_seed(1), _CPU)
    for number, chunk in enumerate(random_chunks("space_invaders", 20, agent.spec)):
        replay.add(ChunkId(0, number), chunk)
    trainer = make_trainer(agent, replay, settings.batch_size, _CPU)
    return lambda: trainer([Turn(0.4, 1)])


if __name__ == "__main__":
    run(measure, "Acting and learning with the paper's network.")
