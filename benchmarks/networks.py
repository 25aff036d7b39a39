"""How fast the paper's network acts and learns.

The first work of each table is what the machine can do at best: the matrix products of the widest layer alone.
"""

import argparse
from dataclasses import replace

from benchmarks.harness import Comparison, Work, compare, one_thread
from benchmarks.workloads import CPU, PERIOD, act_work, learner, product_work, update_work
from rainbow_iqn_apex.agents.devices import computes_in_bfloat16
from rainbow_iqn_apex.agents.rainbow_iqn.options import RainbowIqnOptions
from rainbow_iqn_apex.args import Args

_CHUNKS = 20  # of a replay
# Floating-point operations of one update (batch 32, N = N' = 64, K = 32): what 65.5 GFLOP in 73 ms were counted from.
_UPDATE_FLOP = 65.5e9


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare acting for 1 and 8 environments on one thread, and updates on all cores."""
    settings = _settings(args)
    with one_thread():
        comparisons = [_acting(settings, environments, args) for environments in (1, 8)]
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
            chosen = replace(settings, replay_frequency=period, precision=name)
            works[f"act, {name}{what}"] = act_work(chosen, environments)
    # 1.0 ms for one environment and 5.5 for eight with the weights ready, where the product took 0.46 and 3.7 ms.
    wanted = {"act, bfloat16, without the draws of noise": {1: 0.46, 8: 0.67}[environments]}
    name = f"act for {environments}"
    return compare(name, "calls/s", works, args, per_call=PERIOD, wanted=wanted)


def _precisions() -> tuple[str, ...]:
    return ("bfloat16", "float32") if computes_in_bfloat16(CPU) else ("float32",)


def _updates(settings: Args, args: argparse.Namespace) -> Comparison:
    size = 2 * _hidden_size(settings)
    works: dict[str, Work] = {"products alone": _products(size)}
    for precision in _precisions():
        chosen = replace(settings, precision=precision)
        works[f"update, {precision}"] = update_work(learner(chosen), chosen, _CHUNKS)
    # 105 ms where the 65.5 GFLOP take 73.
    wanted = {"update, bfloat16": 73 / (1000 / 9.5)}
    return compare("update, batch 32", "updates/s", works, args, wanted=wanted, slice_s=1.0)


def _products(columns: int) -> Work:
    """Return as many operations as an update's, in products of its widest layer's size."""
    product = product_work(2048, 3136, columns)
    times = round(_UPDATE_FLOP * columns / 1024 / (2 * 2048 * 3136 * columns))

    def work() -> None:
        for _ in range(times):
            product()

    return work
