"""The statistics of `benchmarks.initial_priorities` against slow definitions, and its table of real rows."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.initial_priorities import Played, Rows, correlations, cost, evaluate, every_row, main
from benchmarks.rank_correlation import ranks, spearman
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.rows import Array, StepType
from tests.agents.test_agents import ENVIRONMENT, RAINBOWS, agent_of, arguments, play
from tests.processes import run


def slow_rank(values: Array, i: int) -> float:
    """One more than the number of smaller values, and half of the other equal ones."""
    equal = sum(other == values[i] for other in values) - 1
    return float(1 + sum(other < values[i] for other in values) + equal / 2)


def slow_spearman(a: Array, b: Array) -> float:
    """Pearson's correlation of the ranks, sum by sum."""
    x, y = ([slow_rank(values, i) for i in range(len(values))] for values in (a, b))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((p - mean_x) * (q - mean_y) for p, q in zip(x, y, strict=True))
    return covariance / math.sqrt(sum((p - mean_x) ** 2 for p in x) * sum((q - mean_y) ** 2 for q in y))


@pytest.mark.parametrize("levels", [2, 3, 10, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_rank_correlation_with_ties(levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(levels, size=40).astype(float)
    b = a * rng.choice([-1, 1]) + rng.integers(levels, size=40)
    assert ranks(a).tolist() == [slow_rank(a, i) for i in range(len(a))]
    assert spearman(a, b) == pytest.approx(slow_spearman(a, b))


def test_only_the_order_counts() -> None:
    a = np.array([0.3, 0.1, 7.0, 0.2])
    assert spearman(a, np.exp(a)) == pytest.approx(1)
    assert spearman(a, -(a**3)) == pytest.approx(-1)


def test_nothing_to_compare() -> None:
    assert math.isnan(spearman(np.ones(5), np.arange(5)))
    assert math.isnan(spearman(np.zeros(1), np.zeros(1)))
    with pytest.raises(ValueError, match="3 values cannot be compared with 2"):
        spearman(np.zeros(3), np.zeros(2))


def test_correlations_and_their_ceilings() -> None:
    rng = np.random.default_rng(0)
    initial, learner = rng.normal(size=30), rng.normal(size=(3, 30))
    rewarded = np.arange(30) % 3 == 0
    found = correlations(Rows(initial, learner, rewarded))
    assert {name: line["rows"] for name, line in found.items()} == {"all rows": 30, "return not 0": 10, "return 0": 20}
    a, b, c = learner[:, rewarded]
    one = [slow_spearman(initial[rewarded], draw) for draw in (a, b, c)]
    pairs = [slow_spearman(*pair) for pair in itertools.combinations((a, b, c), 2)]
    means = [slow_spearman(a, (b + c) / 2), slow_spearman(b, (a + c) / 2), slow_spearman(c, (a + b) / 2)]
    assert found["return not 0"] == pytest.approx(
        {
            "rows": 10,
            "initial, one draw": sum(one) / 3,
            "ceiling, one draw": sum(pairs) / 3,
            "initial, mean": slow_spearman(initial[rewarded], (a + b + c) / 3),
            "ceiling, mean": sum(means) / 3,
        }
    )


def test_cost_is_per_agent_step() -> None:
    act, environment = np.repeat([1.0, 3.0, 2.0], 64), np.full(192, 2.0)
    found = cost(Played([], np.append(act, 99.0), np.append(environment, 99.0), np.array([6.4, 6.4, 6.4])), 64)
    assert found["act [ms/step]"] == {"median": 2000, "quartile 1": 1500, "quartile 3": 2500}
    assert found["initial priorities [ms/step]"]["median"] == pytest.approx(100)
    assert found["priorities / act [%]"]["median"] == pytest.approx(5)
    assert found["priorities / (act + environment) [%]"]["median"] == pytest.approx(2.5)


@pytest.mark.parametrize("agent", ["0", "1"])
def test_the_command(tmp_path: Path, agent: str) -> None:
    more = "--game road_runner --steps 200 --draws 2 --random-actions --hidden-size 8 --num-tau-samples 4".split()
    more += ["--num-tau-prime-samples", "4", "--architecture", "data-efficient", "--rainbow-only", agent]
    command = ["-m", "benchmarks.initial_priorities", *more, "--output", tmp_path / "x.json"]
    code, out, errors = run(*command, seconds=120)
    assert code == 0, errors
    assert "Rank correlation" in out and "priorities / act [%]" in out
    found = json.loads((tmp_path / "x.json").read_text())
    assert found.keys() >= {"machine", "commit", "settings", "correlations", "cost"}
    assert found["settings"]["game"] == "road_runner"
    # Within 200 steps and the ends of their episodes two chunks are complete, or three.
    lines = found["correlations"]
    assert 100 < lines["all rows"]["rows"] <= 192
    assert lines["return not 0"]["rows"] + lines["return 0"]["rows"] == lines["all rows"]["rows"]
    assert -1 < lines["all rows"]["initial, one draw"] < 1


def test_every_learnable_row_is_evaluated_once_beside_its_own_initial_priority() -> None:
    agent = agent_of("rainbow")
    chunks = play(agent, 500)
    batch, initial = every_row(agent, ENVIRONMENT, chunks)
    prefix = agent.spec.prefix
    wanted = [
        (priority, chunk.rows["reward"][prefix + i], *chunk.rows["obs"][prefix + i])
        for chunk in chunks
        for i, priority in enumerate(chunk.priorities)
        if chunk.rows["step_type"][prefix + i] != StepType.LAST
    ]
    found = zip(initial, batch.reward[prefix].numpy(), *batch.obs[prefix].numpy().T, strict=True)
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("name", RAINBOWS)
def test_initial_priorities_rank_rows_as_the_learner_does(name: str) -> None:
    """Rewards are random here, so even a network that has learned nothing is surprised more by some rows."""
    agent = agent_of(name)
    rows = evaluate(arguments(name), agent, ENVIRONMENT, play(agent, 700, T=0), draws=2)
    found = correlations(rows)["all rows"]
    assert found["rows"] > 400
    assert found["ceiling, one draw"] > 0.5
    assert found["initial, one draw"] > 0.9 * found["ceiling, one draw"]


@pytest.mark.parametrize("words", ["--draws 1", "--steps 70", "--hiden-size 3"])
def test_wrong_commands(words: str) -> None:
    with pytest.raises(UserError, match=words.split()[0]) as caught:
        main(["--game", "pong", "--hidden-size", "8", *words.split()])
    assert len(str(caught.value).splitlines()) == 1
