"""The simulation of many actors: its arithmetic."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.simulation import Costs, Each, Load, Setting, simulate
from benchmarks.sizes import full, setting_of

NONE = Each()
COSTS = Costs(
    commit=Each(redis=300e-6, actor=400e-6),
    chunk=Each(redis=50e-6, reader=160e-6, loop=110e-6, actor=220e-6),
    read=Each(redis=80e-6, reader=100e-6, loop=30e-6),
    stream=Each(redis=1e-6, reader=2e-6),
    present=NONE, announced=NONE, report=NONE, fetch=Each(redis=4e-3), publish=NONE,
    weights_bytes=13e6, chunk_bytes=5e3, state_bytes=40e3,
)  # fmt: skip


def only(**causes: Each) -> Costs:
    """Costs of these causes, and of no other."""
    none: dict[str, Any] = dict.fromkeys(("commit", "chunk", "read", "stream", "fetch"), NONE)
    return replace(COSTS, **(none | causes))


def test_what_is_spent_is_the_cost_of_what_happens() -> None:
    # Mutations: leave out the streams of a read, count a commit's chunks as one, another actor's share.
    setting = Setting(actors=20, chunks=3, interval_s=0.5)
    load = simulate(COSTS, setting, 50.0)
    assert load.offered == pytest.approx(120, rel=0.02) and load.taken == pytest.approx(120, rel=0.02)
    assert 0.9 * 40 < load.reads <= 1.001 * load.offered / 3, "most commits are read by themselves"
    assert load.redis == pytest.approx(load.offered / 3 * 450e-6 + load.reads * (80e-6 + 20e-6), rel=0.02)
    assert load.reader == pytest.approx(load.taken * 160e-6 + load.reads * 140e-6, rel=0.02)
    assert load.loop == pytest.approx(load.taken * 110e-6 + load.reads * 30e-6, rel=0.02)
    assert load.actors == pytest.approx(load.offered * 220e-6 + load.offered / 3 * 400e-6, rel=0.02)


LIMITS: dict[str, tuple[Costs, Setting, float]] = {  # chunks a second
    "the reader's core": (only(chunk=Each(reader=1e-3)), Setting(8, 4, 0.0), 1000),
    "the loop's core": (only(chunk=Each(loop=1e-3)), Setting(8, 4, 0.0), 1000),
    "one server": (only(chunk=Each(redis=1e-3)), Setting(8, 4, 0.0), 1000),
    "three servers": (only(chunk=Each(redis=1e-3)), Setting(9, 4, 0.0, shards=3), 3000),
    "two ranks": (only(chunk=Each(reader=1e-3)), Setting(8, 4, 0.0, ranks=2), 2000),
    "actors": (only(chunk=Each(actor=1e-3)), Setting(8, 4, 0.0), 8000),
    "two cores for all": (only(chunk=Each(*[250e-6] * 4)), Setting(8, 4, 0.0, cores=2), 2000),
}


@pytest.mark.parametrize("name", LIMITS)
def test_who_gives_first_sets_the_rate(name: str) -> None:
    # Mutations: a server that serves two jobs at a time, ranks that share a reader, cores without end.
    costs, setting, wanted = LIMITS[name]
    costs = replace(costs, commit=Each(actor=1e-6))  # so that time passes
    load = simulate(costs, setting, 20.0)
    assert load.taken == pytest.approx(wanted, rel=0.06)


def test_a_reader_behind_reads_many_messages_at_once() -> None:
    # Mutation: one message a read.
    slow = replace(COSTS, read=Each(redis=1e-3, reader=20e-3), stream=NONE)
    load = simulate(slow, Setting(actors=50, chunks=1, interval_s=0.05), 20.0)
    assert load.offered == pytest.approx(load.taken, rel=0.05)
    assert load.reads < load.taken / 10


def test_replicas_take_the_fetches_and_shards_divide_what_is_left() -> None:
    # Mutations: a fetch from the master in spite of replicas, or from the first replica always.
    setting = Setting(actors=240, chunks=6, interval_s=10.0, fetch_s=1.0)
    alone = simulate(COSTS, setting, 20.0)
    assert alone.redis > 0.9
    relieved = simulate(COSTS, replace(setting, replicas=2), 20.0)
    assert relieved.redis < 0.05 and relieved.replica == pytest.approx(0.48, rel=0.05)
    divided = simulate(COSTS, replace(setting, shards=4), 20.0)
    assert divided.redis == pytest.approx(alone.redis / 4, rel=0.1)


def test_a_run_repeats_itself() -> None:
    setting = Setting(actors=30, chunks=2, interval_s=0.3)
    assert simulate(COSTS, setting, 5.0) == simulate(COSTS, setting, 5.0)


def test_what_is_full_is_named() -> None:
    load = Load(0.9, 0.1, 0.71, 0.2, 0.0, 1.0, 1.0, 1.0, 0.0, 8e9)
    assert full(load) == ["Redis", "reader", "network"]


def test_actors_of_several_environments_play_the_same_steps() -> None:
    for each in (1, 8, 32):
        setting = setting_of(1440, each)
        assert setting.actors == 1440 // each
        assert setting.actors * setting.chunks * 64 / setting.interval_s == pytest.approx(1440 * 12_500 / 360)
