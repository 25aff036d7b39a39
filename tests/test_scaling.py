"""The measured costs, and that a real run of a few actors costs what the simulation says."""

from dataclasses import replace

import pytest

from benchmarks.costs import measure_costs
from benchmarks.scaling import point
from benchmarks.simulation import Each, Setting, simulate
from benchmarks.transport import Writers

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def test_a_run_costs_what_is_simulated() -> None:
    """Within a factor of two, as other tests may run beside this one; docs/scaling.md has figures of an idle machine.

    A simulation that knows of neither chunks nor reads is beyond that.
    """
    costs = measure_costs(seconds=1.5, repeats=3)
    found = point(costs, Writers(4, 8, 100))
    assert abs(found.errors["transitions"]) < 0.1
    for name in ("redis", "learner", "actors"):
        assert 0.5 < 1 + found.errors[name] < 2, found
    setting = Setting(4, 8, 32 * 64 / found.transitions, reports=False)
    ignorant = simulate(replace(costs, chunk=Each(), read=Each()), setting)
    assert ignorant.learner < 0.5 * found.learner
