"""What mixed replay costs IMPALA: updates of a mixture beside those of the queue alone, and what each part takes.

    python -m benchmarks.mixture

An update has the arrival of its fresh sequences, the choice of the replayed ones and the step of learning. Ratios are
to half queue, half uniform table, of the same batch. Rates are of one thread's processor time; only batches that are
prepared ahead are timed by the wall clock, as a second thread prepares them. Takes 2 GB of memory.
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import torch

from benchmarks.chunks import random_chunks
from benchmarks.harness import Clock, Comparison, Work, compare, run
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.args import Args, parse
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.mixture.distances import distance
from rainbow_iqn_apex.memory.mixture.features import Features
from rainbow_iqn_apex.memory.mixture.pool import Pool
from rainbow_iqn_apex.memory.mixture.spec import (
    ATTENTIVE,
    DISTANCES,
    ELITE,
    PRIORITISED,
    STRATEGIES,
    UNIFORM,
    Sampling,
    TableSpec,
)
from rainbow_iqn_apex.memory.mixture.tables import PrioritisedTable, Table, make_table
from rainbow_iqn_apex.programs import processor
from rainbow_iqn_apex.programs.common import make_agent
from rainbow_iqn_apex.programs.learner.buffers import make_buffer
from rainbow_iqn_apex.programs.learner.trainer import make_trainer
from rainbow_iqn_apex.programs.learner.trainer_base import Turn

_CPU = torch.device("cpu")
_ENVIRONMENT = EnvironmentSpec(Field((84, 84), "uint8"), Discrete(18))
_GAME = "space_invaders"
_CHUNKS = 64  # different ones: they arrive again and again
_FEW = 3  # repeats of updates that take seconds
AHEAD = 4  # --queue-size: batches of a call, prepared while the one before is learned from
CANDIDATES = 6  # for each sequence that is drawn
_NEVER_FEWER = f"--candidates {CANDIDATES}.05 --candidates-annealed-over 1000000000"  # 6 n, rounded down, for n < 20
_ONE = "--candidates 1"
_FIRST = "queue and uniform"

# What a batch is put together from: {capacity} is of the table in sequences.
UNIFORM_HALF = "--replay-mix queue:0.5,uniform:0.5:{capacity}"
_ELITE_HALF = "--replay-mix queue:0.5,elite:0.5:{capacity} --elite-strategy"
_ATTENTIVE_HALF = "--replay-mix queue:0.5,attentive:0.5:{capacity}"
MIXES = {
    _FIRST: UNIFORM_HALF,
    "queue and uniform, cloning": f"{UNIFORM_HALF} --policy-cloning-cost 0.01 --value-cloning-cost 0.005",
    "queue and prioritised": "--replay-mix queue:0.5,prioritised:0.5:{capacity}",
    "queue and attentive": f"{_ATTENTIVE_HALF} {_NEVER_FEWER}",
    "queue and attentive, 1 candidate": f"{_ATTENTIVE_HALF} {_ONE}",
    "queue and elite 1": f"{_ELITE_HALF} 1 {_NEVER_FEWER}",
    "queue and elite 3": f"{_ELITE_HALF} 3 {_NEVER_FEWER}",
    "queue and elite 1, 1 candidate": f"{_ELITE_HALF} 1 {_ONE}",
    "queue and elite 3, 1 candidate": f"{_ELITE_HALF} 3 {_ONE}",
    "queue and elite 1, elite insertion": f"{_ELITE_HALF} 1 {_NEVER_FEWER} --elite-insertion",
}
PREPARED = (  # ahead, too
    _FIRST,
    "queue and prioritised",
    "queue and attentive",
    "queue and elite 1",
    "queue and elite 3",
    "queue and elite 1, elite insertion",
)
PAPER = (_FIRST, "queue and prioritised", "queue and elite 1", "queue and elite 1, 1 candidate")


@dataclass(frozen=True)
class Sizes:
    """How much is held and compared, and for how long each work runs in a repeat."""

    table: int = 500  # sequences of a table that is learned from: more than caches hold, and each work has its own
    pool: int = 5000  # sequences that are drawn from without learning
    features: tuple[int, ...] = (256, 512)
    options: str = ""
    slice_s: float = 0.2


QUICK = Sizes(table=20, pool=60, features=(8,), options="--unroll-length 3 --hidden-size 8", slice_s=0.02)


def measure(args: argparse.Namespace) -> Iterator[Comparison]:
    """Compare updates, batches prepared ahead, the distances, and drawing without learning."""
    processor.prepare()  # as in the learner
    sizes = QUICK if args.quick else Sizes()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield _updates("cpu preset", "--preset cpu", tuple(MIXES), sizes, args.repeats)
        yield _prepared_ahead(sizes, args.repeats)
        yield _updates("paper", "", PAPER, sizes, min(args.repeats, _FEW))
        for features in sizes.features:
            yield _distances(features, sizes, args.repeats)
        yield _drawing(sizes, args.repeats)
    finally:
        torch.set_num_threads(threads)


def _settings(words: str, sizes: Sizes) -> Args:
    text = f"--agent impala {words} {sizes.options}".format(capacity=sizes.table)
    return parse(text.split(), "mixture", "")


def _agent(settings: Args) -> Impala:
    agent = make_agent(settings, _ENVIRONMENT, _CPU, learns=True, seed=1)
    assert isinstance(agent, Impala)
    return agent


def _arrivals(agent: Impala) -> Iterator[tuple[ChunkId, Chunk]]:
    """Yield chunks without end, each with a name of its own."""
    chunks = itertools.cycle(random_chunks(_GAME, _CHUNKS, agent.spec))
    return ((ChunkId(0, number), chunk) for number, chunk in enumerate(chunks))


# --- updates ---


def _updates(name: str, words: str, mixes: tuple[str, ...], sizes: Sizes, repeats: int) -> Comparison:
    """Compare updates of mixtures, and of the queue alone with half the batch (the fresh half) and with all of it."""
    batch = _settings(words, sizes).batch_size
    works = {mix: _update_work(_settings(f"{words} {MIXES[mix]}", sizes), sizes, turns=1) for mix in mixes}
    for size in (batch // 2, batch):
        settings = _settings(f"{words} --batch-size {size}", sizes)
        works[f"queue alone, {size} sequences"] = _update_work(settings, sizes, turns=1)
    return _compare(f"update with {batch} sequences, {name}", "updates/s", works, sizes, repeats)


def _prepared_ahead(sizes: Sizes, repeats: int) -> Comparison:
    """Compare updates one by one with calls whose next batches a thread prepares, by the wall clock."""
    works: dict[str, Work] = {}
    for mix in PREPARED:
        settings = _settings(f"--preset cpu {MIXES[mix]}", sizes)
        single, ahead = (_update_work(settings, sizes, turns) for turns in (1, AHEAD))
        works[mix] = lambda single=single: [single() for _ in range(AHEAD)]  # type: ignore[misc]
        works[f"{mix}, {AHEAD} ahead"] = ahead
    name = f"update with batches prepared ahead, of {settings.batch_size} sequences"
    return _compare(name, "updates/s", works, sizes, repeats, per_call=AHEAD, clock=time.perf_counter)


def _update_work(settings: Args, sizes: Sizes, turns: int) -> Work:
    """Return a work of one call with so many turns, whose fresh sequences arrive before; the tables are full."""
    agent, batch = _agent(settings), settings.batch_size
    rows = AHEAD * batch * agent.spec.period
    generator = torch.Generator().manual_seed(1)
    buffer = make_buffer(replace(settings, memory_capacity=rows), agent, _ENVIRONMENT, generator)
    trainer = make_trainer(agent, buffer, settings.update_size, _CPU)
    is_mixture = agent.buffer == "mixture"
    arrivals, fresh = _arrivals(agent), batch // 2 if is_mixture else batch

    def arrive(count: int) -> None:
        for chunk_id, chunk in itertools.islice(arrivals, count):
            buffer.add(chunk_id, chunk)

    def work() -> None:
        arrive(turns * fresh)
        trainer([Turn(0.4, 1)] * turns)

    arrive(sizes.table if is_mixture else 0)
    return work


# --- their parts ---


def _distances(features: int, sizes: Sizes, repeats: int) -> Comparison:
    """Compare the distances of an update's candidates with the bare difference of as many numbers."""
    settings = _settings("--preset cpu", sizes)
    length, count = _agent(settings).spec.length, CANDIDATES * settings.batch_size // 2
    generator = torch.Generator().manual_seed(1)
    recorded, present = torch.rand(2, length, count, features, generator=generator)  # [T, C, F] each
    learnable = torch.ones(length, count, dtype=torch.bool)
    works: dict[str, Work] = {"difference in float64": lambda: present.double() - recorded.double()}
    for name in DISTANCES:
        works[name] = lambda name=name: distance(name, recorded, present, learnable, 2.0)  # type: ignore[misc]
    found = _compare(f"distances of {count} x {length} x {features}", "1/s", works, sizes, repeats)
    took = ", ".join(f"{rate.name} {1e6 / rate.median:,.0f} µs" for rate in found.rates)
    print(f"{found.name}: {took}", end="\n\n")
    return found


def _drawing(sizes: Sizes, repeats: int) -> Comparison:
    """Compare drawing and copying a batch's replayed half out of a full pool, which all tables share."""
    settings = _settings(f"--preset cpu {MIXES['queue and elite 1']}", sizes)  # with recorded features
    agent, n = _agent(settings), settings.batch_size // 2
    pool = Pool(agent.spec, _ENVIRONMENT, sizes.pool, _CPU)
    tables = _tables(agent, pool)
    for number, (chunk_id, chunk) in enumerate(itertools.islice(_arrivals(agent), sizes.pool)):
        slot = pool.put(chunk_id, chunk, number)
        for table in tables.values():
            table.add(slot, number)
    generator = torch.Generator().manual_seed(1)
    for table in tables.values():
        if isinstance(table, PrioritisedTable):
            table.learned(torch.arange(sizes.pool), torch.rand(sizes.pool, generator=generator))
    works: dict[str, Work] = {"copy alone": lambda: pool.gather(torch.randint(sizes.pool, (n,), generator=generator))}
    for name, table in tables.items():
        works[name] = lambda table=table: pool.gather(table.sample(n, 0))  # type: ignore[misc]
    return _compare(f"draw {n} of {sizes.pool} sequences", "sequences/s", works, sizes, repeats, per_call=n)


def _tables(agent: Impala, pool: Pool) -> dict[str, Table]:
    """Return empty tables of all kinds over a pool, elite ones by each strategy and each distance."""
    kinds = {UNIFORM: (UNIFORM, Sampling()), PRIORITISED: (PRIORITISED, Sampling())}
    kinds |= {ATTENTIVE: (ATTENTIVE, Sampling(candidates=CANDIDATES))}
    for strategy in STRATEGIES:
        kinds[f"elite {strategy}"] = (ELITE, Sampling(strategy=strategy, candidates=CANDIDATES))
    for name in DISTANCES[1:]:
        kinds[f"elite 1, {name}"] = (ELITE, Sampling(distance=name, candidates=CANDIDATES))
    kinds["elite, 1 candidate"] = (ELITE, Sampling(candidates=1))
    tables = {}
    for name, (table, settings) in kinds.items():
        features = Features(pool, settings)
        features.measure = agent.measure
        part = TableSpec(table, Fraction(1, 2), pool.size)
        tables[name] = make_table(part, pool, torch.Generator().manual_seed(1), features, settings)
    return tables


def _compare(
    name: str, unit: str, works: dict[str, Work], sizes: Sizes, repeats: int, *, per_call: float = 1,
    clock: Clock = time.thread_time,
) -> Comparison:  # fmt: skip
    return compare(name, unit, works, per_call=per_call, repeats=repeats, slice_s=sizes.slice_s, clock=clock)


if __name__ == "__main__":
    run(measure, "What mixed replay costs IMPALA, as a whole and by its parts.")
