"""How fast IMPALA and R2D2 act and learn, next to the Rainbow agents, and how fast their rows get to an update.

All run on one thread, and rates are those of its processor time: others' processes change it little. The first work of
most tables is what the processor can do at best: the network's convolutions and matrix products alone.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.harness import Comparison, Work, beside_first, compare_processor_time, one_thread
from benchmarks.networks import rainbow_update
from benchmarks.products import product_work
from benchmarks.sequences import compare_sequences
from benchmarks.works import CPU, FRAMES, PERIOD, act_work, learner, update_work
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.precision import select_precision
from rainbow_iqn_apex.agents.r2d2.agent import R2d2
from rainbow_iqn_apex.args import Args, parse

AGENTS = {
    "impala": "--agent impala",
    "impala, LSTM 256": "--agent impala --lstm-size 256",
    "impala, deep": "--agent impala --architecture deep",
    "impala, deep, LSTM 256": "--agent impala --architecture deep --hidden-size 256 --lstm-size 256",
    "r2d2": "--agent r2d2",
}
RAINBOWS = {"rainbow_iqn": "--agent rainbow_iqn", "rainbow": "--agent rainbow"}
WITH_LSTM = {"impala, LSTM 256": 0.75}  # least share of IMPALA's rate of acting that an LSTM leaves
_SMALL = {
    "impala": "--unroll-length 3 --batch-size 2 --hidden-size 8",
    "r2d2": "--burn-in 2 --sequence-length 4 --sequence-period 2 --batch-size 2 --hidden-size 8 --lstm-size 8",
}
_FEW = 3  # repeats of updates that take seconds


def measure(args: argparse.Namespace) -> Iterator[Comparison]:
    """Compare acting for 1, 8 and 16 environments, updates, and what brings rows to them."""
    with one_thread():
        for environments in (1, 8, 16):
            yield from _acting(environments, args)
        for name in AGENTS:
            yield _updates(name, args)
        yield _rainbow_updates(args)
        yield from compare_sequences(args)


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
        works[name] = act_work(settings, environments)
    works |= {name: act_work(_settings(name, args), environments) for name in RAINBOWS}
    found = compare_processor_time("", "frames/s", works, args, per_call=FRAMES * environments * PERIOD)
    for name in AGENTS:
        yield _part(found, f"act for {environments}, {name}", [_products(name), name])
    yield replace(_part(found, f"act for {environments}", [*AGENTS, *RAINBOWS]), wanted=WITH_LSTM)


def _products(name: str) -> str:
    return f"products of {name}"


def _part(found: Comparison, name: str, works: list[str]) -> Comparison:
    """Return some of the works, as compared with the first of them."""
    rates = {rate.name: rate.rates for rate in found.rates}
    return beside_first(name, found.rates[0].unit, {work: rates[work] for work in works})


def _learner(settings: Args) -> Impala | R2d2:
    agent = learner(settings)
    assert isinstance(agent, Impala | R2d2)
    return agent


def _acting_products(settings: Args, environments: int) -> Work:
    network = _learner(settings).network
    product = product_work(network, 1, environments, select_precision("auto", CPU), backward=False)
    return lambda: [product() for _ in range(PERIOD)]


def _updates(name: str, args: argparse.Namespace) -> Comparison:
    """Compare updates, with the batch's way out of queue or replay, with the network's products."""
    settings = _settings(name, args)
    agent = _learner(settings)
    size = settings.batch_size
    works = {_products(name): _update_products(agent, size), name: update_work(agent, settings, size)}
    rows = f"{size} x {agent.spec.length} rows"
    if isinstance(agent, R2d2):
        args = argparse.Namespace(quick=args.quick, repeats=min(args.repeats, _FEW))
    return compare_processor_time(f"update with {rows}, {name}", "updates/s", works, args)


def _update_products(agent: Impala | R2d2, batch: int) -> Work:
    """Return an update's products; R2D2's target network goes over all rows, its burn-in has no way back."""
    spec, network, precision = agent.spec, agent.network, select_precision("auto", CPU)
    learned = spec.length + spec.bootstrap_rows
    works = [product_work(network, learned, batch, precision, backward=True)]
    if isinstance(agent, R2d2):
        works.append(product_work(network, learned, batch, precision, backward=False))
        works += 2 * [product_work(network, spec.burn_in, batch, precision, backward=False)]
    return lambda: [work() for work in works]


def _rainbow_updates(args: argparse.Namespace) -> Comparison:
    works = {name: rainbow_update(_settings(name, args)) for name in RAINBOWS}
    return compare_processor_time("update with 32 rows", "updates/s", works, args)
