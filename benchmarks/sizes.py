"""Simulated runs of 45 to 10 000 environments at Ape-X's pace: which part of a run gives first, and what helps."""

from dataclasses import asdict
from typing import Any

from benchmarks.simulation import Costs, Load, Setting, simulate

# Ape-X (arXiv 1803.00933, table 1): 360 actors and 50 000 frames a second, so 34.7 agent steps of an actor. With the
# default --weight-synchro-frequency 400 an actor commits and fetches weights every 11.5 seconds.
STEPS = 12_500 / 360  # a second of an environment
ROUND_S = 400 / STEPS
CHUNK = 64  # transitions
_ENVIRONMENTS = (45, 360, 720, 1440, 2880, 5760, 10_000)
_SECONDS = 2 * ROUND_S
_FULL = 0.7  # of a core: more leaves no room for bursts
_WIRE = 10e9  # bits a second


def setting_of(environments: int, each: int, **more: Any) -> Setting:
    """Return a run of so many environments, `each` of them in an actor; they get new weights as often as alone."""
    return Setting(
        actors=-(-environments // each), chunks=max(1, round(STEPS * ROUND_S * each / CHUNK)),
        interval_s=max(1, round(STEPS * ROUND_S * each / CHUNK)) * CHUNK / STEPS / each,
        fetch_s=ROUND_S, publish_s=ROUND_S, **more,
    )  # fmt: skip


VARIANTS: dict[str, dict[str, Any]] = {
    "1 environment an actor": {"each": 1},
    "the same, 4 shards": {"each": 1, "shards": 4},
    "the same, 16 shards, 2 replicas each": {"each": 1, "shards": 16, "replicas": 2},
    "8 environments an actor": {"each": 8},
    "32 environments an actor": {"each": 32},
    "the same, 2 ranks": {"each": 32, "ranks": 2},
}


def tables(costs: Costs) -> list[dict[str, Any]]:
    """Simulate all sizes and variants; print a table of each variant."""
    found = []
    for name, more in VARIANTS.items():
        print(f"| {name} | Redis | replica | reader | loop | network, Gbit/s | commit waits | full |")
        print("|---|---|---|---|---|---|---|---|")
        for environments in _ENVIRONMENTS:
            load = simulate(costs, setting_of(environments, **more), _SECONDS)
            print(_line(environments, load), flush=True)
            found.append({"variant": name, "environments": environments, "full": full(load)} | asdict(load))
        print()
    return found


def full(load: Load) -> list[str]:
    """Name what is busy for more than 70 % of the time."""
    shares = {"Redis": load.redis, "replica": load.replica, "reader": load.reader, "loop": load.loop}
    shares["network"] = load.network / _WIRE
    return [name for name, share in shares.items() if share > _FULL]


def _line(environments: int, load: Load) -> str:
    return (
        f"| {environments} | {load.redis:.2f} | {load.replica:.2f} | {load.reader:.2f} | {load.loop:.2f} "
        f"| {load.network / 1e9:.2f} | {1e3 * load.wait_s:.1f} ms | {', '.join(full(load))} |"
    )
