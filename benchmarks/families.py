"""How fast IMPALA and R2D2 act and learn, next to the Rainbow agents, and how fast their rows get to an update.

    python -m benchmarks.families

All run on one thread, and rates are those of its processor time: others' processes change it little. The first work of
most tables is what the processor can do at best: the network's convolutions and matrix products alone.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks import sequences
from benchmarks.chunks import random_chunks
from benchmarks.harness import Comparison, Rate, Work, compare, run
from benchmarks.networks import PERIOD, act_work, update_work
from benchmarks.products import product_work
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.precision import select_precision
from rainbow_iqn_apex.agents.r2d2.agent import R2d2
from rainbow_iqn_apex.agents.sequences import SequenceAgent
from rainbow_iqn_apex.args import Args, parse
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.programs import processor
from rainbow_iqn_apex.programs.common import make_agent
from rainbow_iqn_apex.programs.learner.buffers import make_buffer
from rainbow_iqn_apex.programs.learner.trainer import make_trainer
from rainbow_iqn_apex.programs.learner.trainer_base import Turn

AGENTS = {
    "impala": "--agent impala",
    "impala, LSTM 256": "--agent impala --lstm-size 256",
    "impala, deep": "--agent impala --architecture deep",
    "impala, deep, LSTM 256": "--agent impala --architecture deep --hidden-size 256 --lstm-size 256",
    "r2d2": "--agent r2d2",
}
RAINBOWS = {"rainbow_iqn": "--agent rainbow_iqn", "rainbow": "--agent rainbow"}
WITH_LSTM = {"impala, LSTM 256": 0.75}  # least share of IMPALA's rate of acting that an LSTM leaves
FRAMES = 4  # of an agent step
_SMALL = {
    "impala": "--unroll-length 3 --batch-size 2 --hidden-size 8",
    "r2d2": "--burn-in 2 --sequence-length 4 --sequence-period 2 --batch-size 2 --hidden-size 8 --lstm-size 8",
}
_CPU = torch.device("cpu")
_ENVIRONMENT = EnvironmentSpec(Field((84, 84), "uint8"), Discrete(18))
_FEW = 3  # repeats of updates that take seconds


def measure(args: argparse.Namespace) -> Iterator[Comparison]:
    """Compare acting for 1, 8 and 16 environments, updates, and what brings rows to them."""
    processor.prepare()  # as in actors and learner
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for environments in (1, 8, 16):
            yield from _acting(environments, args)
        for name in AGENTS:
            yield _updates(name, args)
        yield _rainbow_updates(args)
        yield from sequences.measure(args)
    finally:
        torch.set_num_threads(threads)


def _settings(name: str, args: argparse.Namespace) -> Args:
    words = (AGENTS | RAINBOWS)[name].split()
    if args.quick:
        words += _SMALL.get(words[1], "--hidden-size 8").split()
    return parse(words, "families", "")


def _acting(environments: int, args: argparse.Namespace) -> Iterator[Comparison]:
    """Compare each agent with its own products, and all agents with the first, in the same repeats."""
    works: dict[str, Work] = {}
    for name in AGENTS:
        settings = _settings(name, args)
        works[_products(name)] = _acting_products(settings, environments)
        works[name] = act_work(settings, "auto", environments)
    works |= {name: act_work(_settings(name, args), "auto", environments) for name in RAINBOWS}
    found = _compare("", "frames/s", works, args, per_call=FRAMES * environments * PERIOD)
    for name in AGENTS:
        yield _part(found, f"act for {environments}, {name}", [_products(name), name])
    yield replace(_part(found, f"act for {environments}", [*AGENTS, *RAINBOWS]), wanted=WITH_LSTM)


def _products(name: str) -> str:
    return f"products of {name}"


def _part(found: Comparison, name: str, works: list[str]) -> Comparison:
    """Return some of the works, as compared with the first of them."""
    rates = {rate.name: rate for rate in found.rates}
    first = rates[works[0]].rates

    def compared(rate: Rate) -> Rate:
        return replace(rate, ratios=tuple(a / b for a, b in zip(rate.rates, first, strict=True)))

    return Comparison(name, tuple(compared(rates[work]) for work in works), {})


def _compare(
    name: str, unit: str, works: dict[str, Work], args: argparse.Namespace, per_call: float = 1, repeats: int = 0
) -> Comparison:
    slice_s = 0.02 if args.quick else 0.2
    repeats = repeats or args.repeats
    return compare(name, unit, works, per_call=per_call, repeats=repeats, slice_s=slice_s, clock=time.thread_time)


def _agent(settings: Args, *, learns: bool) -> Impala | R2d2:
    agent = make_agent(settings, _ENVIRONMENT, _CPU, learns=learns, seed=1)
    assert isinstance(agent, Impala | R2d2)
    return agent


def _acting_products(settings: Args, environments: int) -> Work:
    network = _agent(settings, learns=False).network
    product = product_work(network, 1, environments, select_precision("auto", _CPU), backward=False)
    return lambda: [product() for _ in range(PERIOD)]


def _updates(name: str, args: argparse.Namespace) -> Comparison:
    """Compare updates, with the batch's way out of queue or replay, with the network's products."""
    settings = _settings(name, args)
    agent = _agent(settings, learns=True)
    works = {_products(name): _update_products(agent, settings.batch_size), name: _update_work(agent, settings)}
    rows = f"{settings.batch_size} x {agent.spec.length} rows"
    repeats = min(args.repeats, _FEW) if isinstance(agent, R2d2) else args.repeats
    return _compare(f"update with {rows}, {name}", "updates/s", works, args, repeats=repeats)


def _update_products(agent: Impala | R2d2, batch: int) -> Work:
    """Return an update's products; R2D2's target network goes over all rows, its burn-in has no way back."""
    spec, network, precision = agent.spec, agent.network, select_precision("auto", _CPU)
    learned = spec.length + spec.bootstrap_rows
    works = [product_work(network, learned, batch, precision, backward=True)]
    if isinstance(agent, R2d2):
        works.append(product_work(network, learned, batch, precision, backward=False))
        works += 2 * [product_work(network, spec.burn_in, batch, precision, backward=False)]
    return lambda: [work() for work in works]


def _update_work(agent: SequenceAgent, settings: Args) -> Work:
    size, spec, generator = settings.batch_size, agent.spec, torch.Generator().manual_seed(1)
    chunks = random_chunks("space_invaders", size, spec)
    buffer = make_buffer(replace(settings, memory_capacity=size * spec.period), agent, _ENVIRONMENT, generator)
    trainer = make_trainer(agent, buffer, size, _CPU)

    def fill() -> None:
        for number, chunk in enumerate(chunks):
            buffer.add(ChunkId(0, number), chunk)

    def work() -> None:
        if agent.buffer == "queue":
            fill()
        trainer([Turn(0.4, 1)])

    fill()
    return work


def _rainbow_updates(args: argparse.Namespace) -> Comparison:
    works = {name: update_work(_settings(name, args)) for name in RAINBOWS}
    return _compare("update with 32 rows", "updates/s", works, args)


if __name__ == "__main__":
    run(measure, "Acting and learning of IMPALA and R2D2, and what brings rows to them.")
