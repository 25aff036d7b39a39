"""What is Gymnasium's own: spaces, the two ends of an episode, and what cannot be continued."""

import importlib.util
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.environments.gymnasium import environment as environment_module
from rainbow_iqn_apex.environments.gymnasium.environment import Exchange, GoalJudge, GymnasiumEnvironment
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.environment_spec import Discrete
from rainbow_iqn_apex.memory.rows import Array, Row, StepType
from tests.environments.episodes import play_out

COIN = spaces.Discrete(2)
MakeScripted = Callable[..., GymnasiumEnvironment]


class Scripted(gymnasium.Env[Any, Any]):
    """Shows, in a row, the given observations; ends at the last as told; keeps the actions it gets."""

    def __init__(
        self,
        space: spaces.Space[Any],
        observations: list[Any],
        actions: spaces.Space[Any] = COIN,
        reward: SupportsFloat = 1.0,
        terminated: bool = False,
        truncated: bool = True,
    ) -> None:
        self.observation_space, self.action_space = space, actions
        self._observations = observations
        self._reward, self._ends = reward, (terminated, truncated)
        self.got: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._left = list(self._observations)
        return self._left.pop(0), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.got.append(action)
        obs = self._left.pop(0)
        return obs, self._reward, *((False, False) if self._left else self._ends), {}


def make(id_: str, seed: int = 0) -> GymnasiumEnvironment:
    environment = make_environment(EnvironmentSettings(env=f"gymnasium:{id_}"), seed)
    assert isinstance(environment, GymnasiumEnvironment)
    return environment


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> MakeScripted:
    return lambda *args, **kwargs: register(monkeypatch, Scripted(*args, **kwargs))


def register(monkeypatch: pytest.MonkeyPatch, environment: gymnasium.Env[Any, Any]) -> GymnasiumEnvironment:
    spec = EnvSpec("Scripted-v0", entry_point=lambda **_: environment)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    return make(spec.id)


def actions_got(environment: GymnasiumEnvironment) -> list[Any]:
    own = environment._environment.unwrapped
    assert isinstance(own, Scripted)
    return own.got


# --- episodes ---


def test_rows_are_those_of_gymnasium_s_own_loop() -> None:
    environment = make("CartPole-v1", 3)
    own: Any = gymnasium.make("CartPole-v1")
    for _ in range(5):
        row = environment.reset()
        assert np.array_equal(row.obs, own.reset(seed=environment._environment.unwrapped.np_random_seed)[0])
        while row.step_type != StepType.LAST:
            row = environment.step(int(row.obs[2] > 0))
            obs, reward, terminated, truncated, _ = own.step(int(own.unwrapped.state[2] > 0))
            assert np.array_equal(row.obs, obs)
            assert row.reward == reward == 1
            assert row.discount == 1 - terminated
            assert (row.step_type == StepType.LAST) == (terminated or truncated)


def balance(rows: list[Row]) -> int:
    obs = rows[-1].obs
    return int(obs[2] + 0.3 * obs[3] + 0.02 * obs[0] + 0.05 * obs[1] > 0)


def test_a_time_limit_cuts_off_and_a_fallen_pole_ends() -> None:
    environment = make("CartPole-v1")
    ends: dict[str, tuple[int, float, bool]] = {}
    for policy in (balance, lambda _: 0):
        *rows, last = play_out(environment, policy)
        ends[environment.end] = (len(rows), last.discount, abs(last.obs[2]) < 0.2095)  # radians: 12 degrees, upright
    assert ends["time_limit"] == (500, 1, True)
    steps, *rest = ends["game_over"]
    assert steps < 12
    assert rest == [0, False]  # the fallen pole is what LAST shows


def test_an_end_at_the_time_limit_is_an_end(scripted: MakeScripted) -> None:
    environment = scripted(COIN, [0, 1], terminated=True, truncated=True)
    environment.reset()
    assert environment.step(0)[1:] == (StepType.LAST, 1.0, 0.0)
    assert environment.end == "game_over"


@pytest.mark.parametrize(
    "reward", [-250, np.float64(1e6), np.float32(0.5), np.int64(3), np.array(2), np.full((1, 1), 7)]
)
def test_rewards_are_raw(scripted: MakeScripted, reward: Any) -> None:
    environment = scripted(COIN, [0, 1], reward=reward)
    environment.reset()
    assert environment.step(0).reward == reward


def test_a_time_step_is_gymnasium_s_own() -> None:
    settings = EnvironmentSettings(env="gymnasium:CartPole-v1", action_repeat=7, proba_sticky_actions=1)
    environment, plain = make_environment(settings, 0), make("CartPole-v1")
    assert environment.action_repeat == 1
    assert np.array_equal(environment.reset().obs, plain.reset().obs)
    for action in (0, 1, 1, 0):
        assert np.array_equal(environment.step(action).obs, plain.step(action).obs)


def test_actions_are_those_of_the_space(scripted: MakeScripted) -> None:
    environment = scripted(COIN, [0] * 4, actions=spaces.Discrete(3, start=-1))
    assert environment.spec.action == Discrete(3)
    environment.reset()
    for action in (2, 0, 1):
        environment.step(action)
    assert actions_got(environment) == [1, -1, 0]
    environment = scripted(COIN, [0] * 3, actions=spaces.Box(-2, 6, (1, 2)))
    environment.reset()
    chosen = np.array([0.5, 1 + 1e-6], np.float32)
    environment.step(chosen)
    chosen[:] = -1  # an agent may use its array again
    environment.step(chosen)
    assert [action.tolist() for action in actions_got(environment)] == [[[4, 6]], [[-2, -2]]]
    assert environment.snapshot()["actions"].tolist() == [[0.5, np.float32(1 + 1e-6)], [-1, -1]]


def test_nothing_before_a_reset() -> None:
    with pytest.raises(ValueError, match="reset first"):
        make("CartPole-v1").step(0)


# --- observations ---


def first(environment: GymnasiumEnvironment) -> Row:
    row = environment.reset()
    assert row.obs.shape == environment.spec.observation.shape
    assert row.obs.dtype == environment.spec.observation.dtype
    return row


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8)


@pytest.mark.parametrize(
    ("shape", "seen"), [((16, 17), (16, 17)), ((50, 30, 1), (50, 30)), ((1, 50, 30), (50, 30)),
     ((96, 80, 3), (3, 96, 80)), ((3, 40, 50), (3, 40, 50)), ((72, 96, 4), (4, 72, 96))],
)  # fmt: skip
def test_images_keep_size_and_colours(scripted: MakeScripted, shape: tuple[int, ...], seen: tuple[int, ...]) -> None:
    picture = noise(*shape)  # mutation: take the columns for the colours
    obs = first(scripted(spaces.Box(0, 255, shape, np.uint8), [picture, picture])).obs
    assert obs.shape == seen and obs.dtype == np.uint8 and obs.flags["C_CONTIGUOUS"]
    planes = np.moveaxis(picture, -1, 0) if shape[-1] < 16 else picture
    assert obs.ravel().tolist() == [int(value) for value in planes.flat]
    assert not np.shares_memory(obs, picture), "one that changes in place does not change the past"


@pytest.mark.parametrize(
    ("arguments", "kind"), [((spaces.Sequence(COIN), []), "observations"), ((COIN, [], spaces.Text(5)), "actions")]
)
def test_other_spaces_are_refused(scripted: MakeScripted, arguments: tuple[Any, ...], kind: str) -> None:
    with pytest.raises(ValueError, match=f"Scripted-v0 cannot be played: {kind} must be .*, not [ST]e") as raised:
        scripted(*arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300, -2e9])
def test_a_number_that_no_replay_takes_ends_the_actor_in_one_line(scripted: MakeScripted, number: float) -> None:
    space = spaces.Dict(speed=spaces.Box(-np.inf, np.inf, (2,), np.float64), place=COIN)
    good, bad = ({"place": 1, "speed": np.array([0.5, last])} for last in (1.5, number))
    environment = scripted(space, [good, good, bad])
    environment.reset()
    environment.step(0)
    with pytest.raises(RunError, match=r"Scripted-v0: at step 2 of episode 1 .* as number 3 of 'speed'; expected fin"):
        environment.step(0)
    environment = scripted(COIN, [0, 2])
    environment.reset()
    with pytest.raises(RunError, match=r"Scripted-v0: at step 1 of episode 1 its observation is none of its space"):
        environment.step(0)
    environment = scripted(COIN, [0, 1], reward=number)
    environment.reset()
    with pytest.raises(
        RunError, match=r"Scripted-v0: at step 1 of episode 1 its reward is .*; expected finite"
    ) as raised:
        environment.step(0)
    assert "\n" not in str(raised.value)


BYTES, THREE = spaces.Box(0, 255, (3,), np.uint8), spaces.MultiDiscrete([3, 3, 3])
PICTURE = spaces.Box(0, 255, (20, 24), np.uint8)
PLACE = spaces.Box(np.array([-1, 0], np.float32), np.array([1, np.inf], np.float32))
OUTSIDE = [
    (PICTURE, np.full((20, 24), 300)),
    (PICTURE, np.zeros((24, 20), np.uint8)),
    (BYTES, np.array([0.9, 1, 2])),
    (BYTES, [300, 1, 2]),
    (BYTES, [-1, 1, 2]),
    (BYTES, [[0, 1, 2]]),
    (BYTES, ["0", "1", "2"]),
    (BYTES, None),
    (THREE, np.array([1])),
    (THREE, np.array([0, 1, 3])),
    (spaces.Discrete(3, start=-1), 2),
    (spaces.Discrete(3), 1.5),
    (spaces.Discrete(3), np.array([1])),
    (spaces.Discrete(3), 2**70),
    (spaces.MultiBinary(4), np.array([0, 1, 2, 0])),
    (spaces.MultiBinary((2, 2)), np.zeros(4, np.int8)),
    (spaces.Text(5, charset="abc"), "cab d"),
    (spaces.Text(5), 7),
    (spaces.Dict(a=COIN, b=THREE), {"a": 1, "b": np.array([0, 1, 7])}),
    (spaces.Dict(a=COIN), {}),
    (spaces.Dict(a=COIN), {"a": 1, "more": 2}),
    (spaces.Dict(a=COIN), 1),
    (spaces.Tuple([COIN, spaces.Dict(x=BYTES)]), (1, {"x": [0, 0, 256]})),
    (spaces.Tuple([COIN, COIN]), (1,)),
]


@pytest.mark.parametrize(("space", "obs"), OUTSIDE, ids=[str(number) for number in range(len(OUTSIDE))])
def test_an_observation_outside_its_space_ends_the_actor_in_one_line(
    scripted: MakeScripted, space: spaces.Space[Any], obs: Any
) -> None:
    # Mutations: convert what NumPy can convert; let an OverflowError pass.
    environment = scripted(space, [space.sample(), obs])
    environment.reset()
    with pytest.raises(RunError, match="at step 1 of episode 1 its observation is none of its space") as raised:
        environment.step(0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (BYTES, [255, 0, 1]),
        (BYTES, np.array([255.0, 0, 1])),
        (PLACE, np.array([1.000001, 0])),
        (spaces.Box(-np.inf, np.inf, (2,)), np.array([3, -4])),
        (THREE, [2, 0, 1]),
        (spaces.MultiBinary(2), np.array([True, False])),
        (spaces.Discrete(3), np.int8(2)),
        (spaces.Tuple([COIN, COIN]), [1, 0]),
    ],
)
def test_another_dtype_of_the_same_numbers_is_fine(scripted: MakeScripted, space: spaces.Space[Any], obs: Any) -> None:
    environment = scripted(space, [obs, obs])
    environment.reset()
    environment.step(0)


def test_the_first_hundred_rows_and_then_one_in_997_are_compared_with_their_space(scripted: MakeScripted) -> None:
    good, bad = np.array([0, 1, 2]), np.array([256, 1, 2])
    found = []
    for row in (0, 1, 99, 100, 500, 996, 997, 1993):
        environment = scripted(BYTES, [good] * row + [bad, good])
        try:
            environment.reset()
            for _ in range(row):
                environment.step(0)
        except RunError:
            found.append(row)
    assert found == [0, 1, 99, 996, 1993]
    for number in ([300, 1, 2], 2**70, None):  # which NumPy refuses in any row
        environment = scripted(BYTES, [good] * 150 + [number, good])
        environment.reset()
        for _ in range(149):
            environment.step(0)
        with pytest.raises(RunError, match="is none of its space"):
            environment.step(0)


def test_every_environment_of_a_vector_has_its_first_rows_and_later_ones_compared() -> None:
    # Mutations: the first hundred rows of all together; an interval that the number of environments divides.
    count, good, bad = 8, np.array([0, 1, 2]), np.array([256, 1, 2])
    for first, steps in ((99, 100), (100, 1100)):
        for faulty in range(count):
            exchange = Exchange("Vector-v0", BYTES, COIN, count=count)
            with pytest.raises(RunError, match="is none of its space"):
                for step in range(steps):
                    for env in range(count):
                        exchange.shown(bad if env == faulty and step >= first else good)


def test_floats_beyond_their_bounds_are_used_and_named_once(
    scripted: MakeScripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutations: end the actor, as LunarLander would end it; name them in each row, or in each environment; not at all.
    monkeypatch.setattr(environment_module, "_BEYOND", set())
    space = spaces.Dict(coin=COIN, place=PLACE)
    rounded, beyond = ({"coin": 1, "place": np.array([first, 0.5], np.float32)} for first in (1.000001, 1.5))
    environment = scripted(space, [rounded, beyond, beyond])
    environment.reset()
    assert capsys.readouterr().out == ""
    rows = [environment.step(0) for _ in range(2)]
    assert [row.obs[-2] for row in rows] == [1.5, 1.5]
    printed = capsys.readouterr().out
    assert re.findall(r"at step (\d) .* leaves its space \(place: 1.5 as number 0, ", printed) == ["1"]
    scripted(space, [beyond]).reset()
    assert capsys.readouterr().out == "", "an evaluation makes one for each episode"
    with pytest.raises(RunError, match="is none of its space"):
        scripted(space, [beyond | {"coin": 2}]).reset()


@pytest.mark.parametrize("reward", [None, "1", [1.0, 2.0], np.zeros(0), np.full((2, 1), 3), 2**70, 1j])
def test_a_reward_that_is_no_number_ends_the_actor_in_one_line(scripted: MakeScripted, reward: Any) -> None:
    environment = scripted(COIN, [0, 1], reward=reward)
    environment.reset()
    with pytest.raises(RunError, match=r"v0: at step 1 of episode 1 its reward is .*; expected finite") as raised:
        environment.step(0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("reward", [None, np.zeros(2)])
def test_a_judgement_of_goals_that_is_no_number_is_named(reward: Any) -> None:
    environment = SimpleNamespace(compute_reward=lambda *_: reward)
    with pytest.raises(RunError, match=r"compute_reward has returned .*; expected a number"):
        GoalJudge(environment, BYTES)(np.zeros(3), np.zeros(3), 1.0)


class Old(gymnasium.Env[Any, Any]):
    """Of Gym's old API, in a part."""

    observation_space, action_space = COIN, COIN

    def __init__(self, part: str) -> None:
        self._part = part

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        return 0 if self._part == "reset" else (0, {})

    def step(self, action: Any) -> Any:  # noqa: ARG002
        return (1, 1.0, False, {}) if self._part == "step" else (1, 1.0, False, False, {})


class Unseeded(Old):
    def reset(self) -> Any:  # type: ignore[override]
        return 0


@pytest.mark.parametrize("limit", [None, 9], ids=["as it is", "within a wrapper of Gymnasium's"])
@pytest.mark.parametrize("old", [Old("reset"), Old("step"), Unseeded("")], ids=["info", "five", "seed"])
def test_the_old_api_is_a_mistake_of_the_user_s(
    monkeypatch: pytest.MonkeyPatch, old: gymnasium.Env[Any, Any], limit: int | None
) -> None:
    # Mutation: unpack, so that a ValueError about the number of values is all that there is.
    spec = EnvSpec("Old-v0", entry_point=lambda **_: old, max_episode_steps=limit)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    environment = make(spec.id)
    with pytest.raises(UserError, match=r"Old-v0 has .* old API: wrap it in shimmy"):
        environment.reset()
        environment.step(0)


def test_an_error_of_the_environment_s_own_is_not_the_old_api(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(Old):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
            obs, info = zip([1], strict=True)
            return obs, info

    with pytest.raises(ValueError, match="not enough values to unpack"):
        register(monkeypatch, Failing("")).reset()


@pytest.mark.parametrize("count", [2**40, 2**70])
def test_a_space_that_no_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    spec = EnvSpec("Vast-v0", entry_point=lambda **_: Scripted(spaces.Discrete(count), []))
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    with pytest.raises(ValueError, match="Vast-v0 cannot be"):
        make(spec.id)


def test_an_old_version_that_there_still_is_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    environment = make("CartPole-v0")  # Gymnasium warns, and here warnings are errors
    assert (len(play_out(environment, balance)), environment.end) == (1 + 200, "time_limit")
    assert capfd.readouterr() == ("", "")


# --- snapshots ---


def test_a_snapshot_is_a_byte_per_action() -> None:
    environment = make("CartPole-v1")
    row = environment.reset()
    sizes = []
    for _ in range(499):
        row = environment.step(balance([row]))
        sizes.append(len(wire.encode(wire.Tag.STATE, {}, environment.snapshot())))
    assert environment.snapshot()["actions"].dtype == np.uint8
    assert sizes[0] < 300
    assert max(sizes) < sizes[0] + 499


def test_a_snapshot_before_the_first_episode() -> None:
    one, other = make("CartPole-v1", 1), make("CartPole-v1", 2)
    other.restore(one.snapshot())
    assert np.array_equal(one.reset().obs, other.reset().obs)


class Elsewhere(Scripted):
    """Counts its resets, in the place of random numbers that no seed decides."""

    resets = 0

    def __init__(self, length: int) -> None:
        super().__init__(spaces.Box(0, 99, (1,), np.float32), [])
        self._length = length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        count = self._length if self._length else 10 - self.resets
        self._observations = [np.array([self.resets], np.float32)] * count
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize(
    ("length", "what"), [(9, "led elsewhere within 7 steps"), (0, "ended after 7 of 8 steps")], ids=["obs", "end"]
)
def test_what_its_seed_does_not_decide_is_not_continued(
    monkeypatch: pytest.MonkeyPatch, length: int, what: str
) -> None:
    environment = register(monkeypatch, Elsewhere(length))
    environment.reset()
    for _ in range(7 if length else 8):
        environment.step(0)
    with pytest.raises(RunError, match=f"Scripted-v0 cannot be continued: .* the episode {what}"):
        environment.restore(environment.snapshot())


def test_rounding_is_no_other_course() -> None:
    environment = make("Acrobot-v1")
    environment.reset()
    for _ in range(20):
        environment.step(2)
    snapshot = environment.snapshot()
    environment.restore(snapshot | {"obs": snapshot["obs"] + np.float32(1e-6)})
    with pytest.raises(RunError):
        environment.restore(snapshot | {"obs": snapshot["obs"] + np.float32(1e-2)})


# --- windows ---


@pytest.mark.skipif(importlib.util.find_spec("pygame") is not None, reason="pygame is there")
def test_rendering_without_what_it_takes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with pytest.raises(RuntimeError, match="cannot render CartPole-v1: pygame is not installed"):
        make_environment(EnvironmentSettings(env="gymnasium:CartPole-v1", render=True), 0)
