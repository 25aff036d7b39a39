"""Lockstep: the same seed gives the same scores and the same weights, byte for byte, whoever is slow.

Which weights an actor plays a round with, and in which order the learner takes chunks in, is the protocol's to say. So
the runs that are compared differ as much as they can: in one the learner lags behind, in the other the actors do, at
random moments, and one of them saves and plots whenever it could. `tests/chaos/test_kills.py` has the other families.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.small import SHORT_CHAIN
from tests.system import LEARNER, Result, Stalls, System

# Rounds that are short beside a stall: whoever is frozen finds that the others have gone as far as they may.
ROUNDS = [
    *SHORT_CHAIN,
    *"--batch-size 16 --learn-start 400 --T-max 1600 --weight-synchro-frequency 40".split(),
    *"--evaluation-interval 500 --log-interval 400".split(),
]
# Small networks, a replay that turns over, and a game in which random players live for 170 agent steps.
ATARI = (
    "--game berzerk --disable-cuda --hidden-size 32 --num-tau-samples 4 --num-tau-prime-samples 5 "
    "--num-quantile-samples 3 --quantile-embedding-dim 8 --atoms 11 --batch-size 8 --lr-IQN 1e-3 --lr-Rainbow 1e-3 "
    "--learn-start 600 --memory-capacity 640 --T-max 1500 --target-update 200 --weight-synchro-frequency 100 "
    "--log-interval 300 --evaluation-interval 400"
).split()


class Case(NamedTuple):
    """One of the runs to compare."""

    seed: int
    slow: str  # "learner", "actors" or "nobody"
    change: str = "nothing"
    fresh: bool = False  # with interpreters of its own: forked ones share the order of their sets


LEARNER_SLOW = Case(seed=1, slow=LEARNER, change="saving_often", fresh=True)
ACTORS_SLOW = Case(seed=1, slow="actors")
OTHER_SEED = Case(seed=2, slow="nobody")

Run = Callable[..., list[Result]]


@pytest.fixture
def run(redis_port: int, run_name: str, tmp_path: Path) -> Run:
    """Runs cases side by side."""

    def run(options: list[str], actors: int, *cases: Case) -> list[Result]:
        with ExitStack() as stack:
            systems = []
            for i, case in enumerate(cases):
                given = [*options, "--seed", str(case.seed)]
                name, folder = f"{run_name}_{i}", tmp_path / str(i)
                system = System(redis_port, name, folder, given, actors=actors, change=case.change, fresh=case.fresh)
                systems.append(stack.enter_context(system))
                slow = {LEARNER: [LEARNER], "actors": [str(actor) for actor in range(actors)], "nobody": []}
                stack.enter_context(Stalls(system, slow[case.slow], i))
            return [system.finish() for system in systems]

    return run


def assert_equal_but_not_empty(one: Result, other: Result) -> None:
    assert one.scores.decode().splitlines() == other.scores.decode().splitlines()
    assert one == other
    assert one.scores.count(b"\n") > 3, "episodes ended"
    assert len(one.values) >= 2, "values were reported"


@pytest.mark.redis
def test_one_actor(run: Run) -> None:
    learner_slow, actors_slow, other = run(ROUNDS, 1, LEARNER_SLOW, ACTORS_SLOW, OTHER_SEED)
    assert_equal_but_not_empty(learner_slow, actors_slow)
    assert learner_slow.best, "the best weights were kept"
    assert learner_slow.weights != other.weights
    assert learner_slow.scores != other.scores


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize(
    ("actors", "more"),
    [
        (1, "--nb-env-per-actor 2 --learner-threads 2"),
        (3, "--learner-threads 1 --precision bfloat16"),
        (3, "--learner-threads 1 --rainbow-only 1 --architecture data-efficient --max-gradient-norm 10"),
    ],
    ids=["one", "three", "rainbow"],
)
def test_atari(run: Run, actors: int, more: str) -> None:
    assert_equal_but_not_empty(*run([*ATARI, *more.split()], actors, LEARNER_SLOW, ACTORS_SLOW))
