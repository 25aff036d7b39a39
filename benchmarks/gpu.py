"""How fast a GPU learns and acts with each agent's preset: what `bash benchmarks/gpu.sh` prints.

An update's ratio is to its own floating-point operations in bare matrix products, in the precision of the preset.
Updates of agents with replay are CUDA graphs on a GPU, as in the learner.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import Work
from benchmarks.workloads import CPU, FRAMES, act_work, learner, update_work
from rainbow_iqn_apex.agents.devices import select_precision
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.args import parse
from rainbow_iqn_apex.common.errors import UserError

_ENVIRONMENTS = 8  # that an actor plays
_WARM_UP = 5  # calls, a CUDA graph's recording among them
_MOST_S = 250  # after which no other agent begins
_RUN = 200_000_000  # frames of a published run
_CHUNKS = 40  # of a replay, if an update needs no more


def rows(args: argparse.Namespace) -> Iterator[str]:
    """Measure agent after agent; return the table's rows."""
    device = torch.device(args.device, 0) if args.device == "cuda" else CPU
    end = time.perf_counter() + _MOST_S
    kinds = [(name, args.preset) for name in AGENTS]
    if args.preset == "paper":
        kinds += [(name, "fast") for name, agent in AGENTS.items() if agent.options.FAST]
    slice_s = args.seconds / (2 * len(kinds) + 2)
    with torch.inference_mode():
        products = {dtype: _product_flops(device, dtype, slice_s) for dtype in (torch.float32, torch.bfloat16)}
    yield (
        "| agent | preset | updates/s | ratio to products | frames/s of learning "
        f"| hours of {_RUN // 1_000_000} M frames | frames/s of acting for {_ENVIRONMENTS} |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name, preset in kinds:
        if time.perf_counter() > end:
            yield f"| {name} | {preset} | no time was left | | | | |"
            continue
        settings = parse(["--agent", name, "--preset", preset], "gpu", "")
        settings = replace(settings, learn_start=1, synchronize_actors_with_learner=False)
        try:
            agent = learner(settings, device)
        except UserError:
            yield f"| {name} | {preset} | reads no pictures | | | | |"
            continue
        round_ = settings.update_size or max(1, settings.round_steps // agent.spec.period)
        replays = agent.buffer == "replay"
        update = update_work(agent, settings, max(round_, _CHUNKS) if replays else round_, device)
        flops = _flops_of(update)
        updates = _rate(update, device, slice_s)
        ratio = updates * flops / products[select_precision(settings.precision, device)]
        steps = (agent.steps_per_update or settings.replay_frequency) if replays else round_ * agent.spec.period
        learned = updates * steps * FRAMES
        acted = _rate(act_work(settings, _ENVIRONMENTS, device, 1), device, slice_s) * FRAMES * _ENVIRONMENTS
        figures = f"{updates:,.4g} | {ratio:.2g} | {learned:,.0f} | {_RUN / learned / 3600:.2g} | {acted:,.0f}"
        yield f"| {name} | {preset} | {figures} |"


def _rate(work: Work, device: torch.device, seconds: float) -> float:
    """Return calls a second, of all calls in so many seconds: a GPU is waited for at the end alone."""
    for _ in range(_WARM_UP if device.type == "cuda" else 1):
        work()
    _wait(device)
    start = time.perf_counter()
    calls = 0
    while not calls or time.perf_counter() - start < seconds:
        work()
        calls += 1
        if calls % 10 == 0:
            _wait(device)
    _wait(device)
    return calls / (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _product_flops(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    """Return the operations a second of a bare product."""
    size = 4096 if device.type == "cuda" else 512
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 * _rate(lambda: a @ b, device, seconds)


def _flops_of(work: Work) -> int:
    """Count the operations of products and convolutions in a first update, which no graph hides yet."""
    with FlopCounterMode(display=False) as counter:
        work()
    count: int = counter.get_total_flops()
    return count


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu tries the table without a GPU")
    parser.add_argument("--seconds", type=float, default=200, help="of all that is measured, about [%(default)s]")


def measure(args: argparse.Namespace) -> tuple[()]:
    """Print the table."""
    args.preset = "paper" if args.device == "cuda" else "cpu"
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.sh: PyTorch finds no CUDA device here; --device cpu tries the table without")
    place = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print(f"{place}, torch {torch.__version__}\n")
    for row in rows(args):
        print(row, flush=True)
    return ()
