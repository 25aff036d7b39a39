"""On-policy runs over processes: what is learned from first was played by the very policy that learns."""

import re
from pathlib import Path

import pytest

from tests.small import BOXES, FAMILIES
from tests.system import LEARNER, System

RUNS = {"ppo": FAMILIES["ppo"], "vmpo-lstm": FAMILIES["vmpo-lstm"], "ppo-box": BOXES["ppo-box"]}
UPDATES = {"ppo": 6, "vmpo-lstm": 2, "ppo-box": 6}  # of a round: epochs times minibatches
ROUNDS = 5
SLOW = pytest.mark.slow


@pytest.mark.redis
@pytest.mark.parametrize(
    ("family", "actors"),
    [
        ("ppo-box", 3),
        pytest.param("ppo-box", 1, marks=SLOW),
        *(pytest.param(family, actors, marks=SLOW) for family in ("ppo", "vmpo-lstm") for actors in (1, 3)),
    ],
)
def test_the_first_ratio_of_each_round_is_1(
    redis_port: int, run_name: str, tmp_path: Path, family: str, actors: int
) -> None:
    # Mutations: let actors play on with older weights (MAX_POLICY_LAG 1); act in bfloat16; publish the statistics of
    # observations a round late.
    words = [
        *RUNS[family],
        *f"--nb-env-per-actor 2 --lr-on-policy 0.01 --learn-start 1 --T-max {ROUNDS * 40 * actors}".split(),
    ]
    with System(redis_port, run_name, tmp_path, words, actors=actors, change="telling") as system:
        system.finish()
        found = [float(ratio) for ratio in re.findall(r"Largest log ratio (\S+)", system.printed(LEARNER))]
    assert len(found) == ROUNDS * UPDATES[family]
    first, last = found[:: UPDATES[family]], found[UPDATES[family] - 1 :: UPDATES[family]]
    assert max(first) < 1e-5, first
    assert min(last) > 1e-3, "updates move the policy"
