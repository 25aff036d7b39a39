"""What holds for every environment of the register: the rules of rows, the seed, and snapshots."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks.learning import random_action
from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import ENVIRONMENTS, make_environment
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete
from rainbow_iqn_apex.memory.rows import Row, StepType
from tests.environments.resume import Played, check_new_process
from tests.saber.reference import play, same

pytestmark = pytest.mark.usefixtures("labyrinths")


class Example(NamedTuple):
    """What an environment needs to be played."""

    extra: str = ""
    game: str = ""
    is_slow: bool = False  # a step takes milliseconds, or so does the start, and another one like it is not slow


# A new environment gets a line here. These end in all ways: by the game, by a limit, at random and never.
EXAMPLES = {
    "atari": Example(game="breakout"),
    "gymnasium:CartPole-v1": Example(),
    "gymnasium:Acrobot-v1": Example(is_slow=True),
    "gymnasium:MountainCar-v0": Example(is_slow=True),
    "gymnasium:Taxi-v4": Example(),
    "gymnasium:FrozenLake-v1": Example(),
    "gymnasium:CliffWalkingSlippery-v1": Example(is_slow=True),
    "gymnasium:ale_py:ALE/Breakout-v5": Example(is_slow=True),  # its random numbers are the emulator's own
    "gymnasium:Blackjack-v1": Example(),  # a Tuple is observed
    "gymnasium:Pendulum-v1": Example(),  # the actions are a Box
    "gymnasium:tests.environments.spaced:Goal-v0": Example(),
    "gymnasium:tests.environments.spaced:Locks-v0": Example(),
    "gymnasium:tests.environments.spaced:Scene-v0": Example(),  # a picture beside numbers
    "gymnasium:HalfCheetah-v5": Example("mujoco"),
    "gymnasium:shimmy:dm_control/cartpole-swingup-v0": Example("dm-control", is_slow=True),
    "gymnasium-vector:CartPole-v1": Example(),
    "vizdoom:basic": Example("vizdoom"),
    "vizdoom:my_way_home": Example("vizdoom", is_slow=True),  # it has no game variables
    "gymnasium:minigrid:MiniGrid-Fetch-5x5-N2-v0": Example("minigrid"),  # a mission beside numbers
    "dmlab:explore_goal_locations_small": Example(),  # on a stand-in for its engine
    "procgen:bigfish": Example("procgen", is_slow=True),
    "procgen:leaper": Example("procgen"),
    "football:academy_empty_goal_close": Example("football", is_slow=True),
    "crafter:CrafterReward-v1": Example("crafter", is_slow=True),
    "nle:NetHackScore-v0": Example("nle"),  # symbols beside numbers and a message
    "nle:NetHackStaircase-v0": Example("nle", is_slow=True),
}


def example(env: str) -> Any:
    lacking = missing(EXAMPLES[env].extra) if EXAMPLES[env].extra else ""
    marks = [pytest.mark.skipif(bool(lacking), reason=lacking), *[pytest.mark.slow] * EXAMPLES[env].is_slow]
    return pytest.param(env, marks=marks)


every = pytest.mark.parametrize("env", [*map(example, EXAMPLES)])


def make(env: str, seed: int) -> Environment:
    return make_environment(EnvironmentSettings(env=env, game=EXAMPLES[env].game), seed)


def random_actions(environment: Environment, count: int, seed: int = 0) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [random_action(environment.spec.action, generator) for _ in range(count)]


def no_action(action: ActionSpec) -> Any:
    if isinstance(action, Discrete):
        return action.count
    return np.full(action.size, np.nan, np.float32) if isinstance(action, Box) else np.array(action.counts)


def stream(env: str, seed: int) -> list[Row]:
    environment = make(env, seed)
    return [environment.reset(), *play(environment, random_actions(environment, 150))]


def test_every_environment_has_an_example() -> None:
    assert ENVIRONMENTS.keys() - {"chain"} == {env.partition(":")[0] for env in EXAMPLES}


@every
def test_rows_follow_the_rules(env: str) -> None:
    environment = make(env, 1)
    row, seen = environment.reset(), []
    for action in random_actions(environment, 1000):
        assert row.obs.shape == environment.spec.observation.shape
        assert row.obs.dtype == environment.spec.observation.dtype
        assert isinstance(row.reward, float)
        assert row[1:] == (StepType.FIRST, 0.0, 1.0) or row.step_type == StepType.MID
        assert row.discount == 1
        seen.append((row.obs, row.obs.copy()))
        row = environment.step(action)
        if row.step_type == StepType.LAST:
            assert environment.end in ("game_over", "stuck", "time_limit")
            assert row.discount == (environment.end == "time_limit")
            with pytest.raises(ValueError, match="reset first"):
                environment.step(action)
            row = environment.reset()
        assert environment.end == ""
    assert all(np.array_equal(obs, copy) for obs, copy in seen), "an observation is a new array"
    environment.reset()
    with pytest.raises(ValueError, match="no such action"):
        environment.step(no_action(environment.spec.action))
    environment.step(action)
    assert getattr(environment, "steps", 1) == 1, "a refused action is no step"
    environment.close()


@every
def test_the_seed_decides_everything(env: str) -> None:
    one, again, other = stream(env, 1), stream(env, 1), stream(env, 2)
    assert all(map(same, one, again))
    assert not all(map(same, one, other))


@every
def test_episodes_differ(env: str) -> None:
    environment = make(env, 1)
    episodes = []
    for _ in range(2):
        rows = [environment.reset()]
        for action in random_actions(environment, 300):
            if rows[-1].step_type != StepType.LAST:
                rows.append(environment.step(action))
        episodes.append(rows)
    assert len(episodes[0]) != len(episodes[1]) or not all(map(same, *episodes))


@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_new_process_continues_byte_for_byte(tmp_path: Path, is_slow: bool) -> None:
    played = []
    for env, (extra, game, slow) in EXAMPLES.items():
        if slow == is_slow and not (extra and missing(extra)):
            environment = make(env, 4)
            environment.reset()
            play(environment, random_actions(environment, 130))
            played.append(Played(environment, env, game, random_actions(environment, 300, seed=5)))
    check_new_process(played, tmp_path)


@every
def test_snapshots_travel_at_all_moments(env: str) -> None:
    # Mutation: let DeepMind Lab's engine count its episodes, which a restored one has not had.
    environment, other = make(env, 6), make(env, 999)
    row = environment.reset()
    for part in range(6 if EXAMPLES[env].is_slow else 12):
        state = wire.encode(wire.Tag.STATE, {}, environment.snapshot())
        packet = wire.decode(state, max_header=wire.MAX_STATE_HEADER_BYTES)
        other.restore(packet.arrays)
        assert other.end == environment.end
        for action in random_actions(environment, 5 + part % 7, seed=part):
            pair = [
                (each.reset() if row.step_type == StepType.LAST else each.step(action)) for each in (environment, other)
            ]
            assert same(*pair)
            row = pair[0]
            if row.step_type == StepType.LAST:
                break  # the next snapshot is taken between two episodes
