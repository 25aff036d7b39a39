from collections.abc import Iterable

import numpy as np
import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType
from rainbow_iqn_apex.saber.atari import AtariEnvironment
from tests.chain.environment import ChainEnvironment

SHORT = 2  # seconds: episodes of 30 steps
POLES = ("gymnasium:CartPole-v1",) * 11


def vector_of(games: Iterable[str] = ("space_invaders", "breakout", "pong"), seed: int = 0) -> VectorEnvironment:
    settings = [EnvironmentSettings(env=game) if ":" in game else EnvironmentSettings(game=game) for game in games]
    return VectorEnvironment([make_environment(one, seed + env) for env, one in enumerate(settings)])


def actions(steps: int, envs: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(18, size=(steps, envs))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AtariEnvironment, "max_saber_seconds", SHORT)


@pytest.mark.usefixtures("short")
def test_rows_are_those_of_each_environment_alone() -> None:
    # Every step acts once in every environment, also where an episode begins: a reset that cost a step would shift all
    # that follows. A reward or a frame kept over a reset would show in a FIRST row.
    vector, alone = vector_of(), vector_of().environments
    rows = vector.reset()
    current = [environment.reset() for environment in alone]
    for step, chosen in enumerate(actions(65)):
        for env, row in enumerate(current):
            assert np.array_equal(rows.obs[env], row.obs)
            assert (rows.step_type[env], rows.reward[env], rows.discount[env]) == row[1:]
        rows, ended, episodes = vector.step(chosen)
        for env, environment in enumerate(alone):
            current[env] = environment.step(int(chosen[env]))
            assert (env in ended) == (current[env].step_type == StepType.LAST)
            if env in ended:
                assert np.array_equal(ended[env].obs, current[env].obs)
                assert ended[env][1:] == current[env][1:]
                current[env] = environment.reset()
        assert list(ended) == [record.env for record in episodes]
        assert (ended != {}) == (step % 30 == 29)


@pytest.mark.usefixtures("short")
def test_records_number_and_add_up_the_episodes_of_each_environment() -> None:
    vector = vector_of(("carnival", "boxing", "pong"))
    vector.reset()
    sums = np.zeros(3)
    records: list[EpisodeRecord] = []
    expected: list[tuple[int, int, float, int, str]] = []
    for chosen in actions(95):
        rows, ended, episodes = vector.step(chosen)
        for env in range(3):
            sums[env] += ended[env].reward if env in ended else rows.reward[env]
            if env in ended:
                expected.append((env, len(expected) // 3, sums[env], 30, "time_limit"))
                sums[env] = 0  # a score that began with what the last episode had would be greater
        records += episodes
    assert [(r.env, r.episode, r.score_saber, r.length, r.end) for r in records] == expected
    assert [record.episode for record in records] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert any(record.score_saber for record in records[:6])
    assert all(record.score_5min == record.score_30min == record.score_saber for record in records)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("games", "before"),
    [
        (("carnival", "boxing", "pong"), 55),  # in the second episode of each
        (POLES, 30),  # "env1." is the beginning of neither "env10." nor "score1."
        (("pong",), 0),  # at the very beginning, where the other was never reset
    ],
)
def test_a_restored_vector_continues_rows_scores_and_numbers(games: tuple[str, ...], before: int) -> None:
    envs = len(games)
    vector, other = vector_of(games), vector_of(games, seed=50)
    rows = vector.reset()
    if before:
        other.reset()
        other.step([0] * envs)
    most = 2 if ":" in games[0] else 18
    for chosen in actions(before, envs, seed=1) % most:
        rows = vector.step(chosen).rows
    assert vector.snapshot()["score0.scores"].any() == bool(before)
    restored = other.restore(vector.snapshot()).rows
    assert all(np.array_equal(*pair) for pair in zip(rows, restored, strict=True))
    assert [array.dtype for array in restored] == [array.dtype for array in rows]
    for chosen in actions(60, envs, seed=2) % most:
        one, two = vector.step(chosen), other.step(chosen)
        assert all(np.array_equal(*pair) for pair in zip(one.rows, two.rows, strict=True))
        assert one.episodes == two.episodes
        assert one.ended.keys() == two.ended.keys()
    left, right = vector.snapshot(), other.snapshot()
    assert left.keys() == right.keys()
    assert all(np.array_equal(left[name], right[name]) for name in left)


def test_a_snapshot_of_another_number_of_environments_is_refused() -> None:
    vector = vector_of(POLES[:2])
    vector.reset()
    with pytest.raises(ValueError, match="a snapshot of 2 environments for a vector of 1"):
        vector_of(POLES[:1]).restore(vector.snapshot())


def test_an_environment_need_not_say_that_no_episode_has_ended() -> None:
    # Mutation: read `end` of an environment that sets it at an episode's end alone.
    class Unsaid(ChainEnvironment):
        def restore(self, arrays: Arrays) -> None:
            super().restore(arrays)
            del self.end

    vector = VectorEnvironment([ChainEnvironment(0)])
    rows = vector.reset()
    assert np.array_equal(VectorEnvironment([Unsaid(1)]).restore(vector.snapshot()).rows.obs, rows.obs)


class Mistaken(ChainEnvironment):
    """An environment of a user's that gives other rows than it should."""

    def __init__(self, mistake: str) -> None:
        super().__init__(0)
        self._mistake = mistake

    def reset(self) -> Row:
        return super().reset()._replace(step_type=StepType.MID if self._mistake == "reset" else StepType.FIRST)

    def step(self, action: int | Array) -> Row:
        row = super().step(action)
        if self._mistake == "end":
            self.end = "game_over"
        if self._mistake == "reward":
            row = row._replace(reward=None)  # type: ignore[arg-type]
        return row._replace(step_type=StepType.FIRST if self._mistake == "step" else StepType.MID)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("reset", "an episode begins with .*MID.*, and FIRST was expected"),
        ("step", "a step is .*FIRST.*, and MID or LAST was expected"),
        ("end", "`end` is 'game_over' after a step that is not LAST"),
        ("reward", "a reward is None, and a number was expected"),
    ],
)
def test_rows_that_are_not_where_they_belong_are_refused(mistake: str, told: str) -> None:
    # Mutation: look at observations alone: a run would train without ever having a score.
    vector = VectorEnvironment([Mistaken(mistake)])
    with pytest.raises(UserError, match=told):
        vector.reset()
        vector.step([0])


def test_one_action_per_environment() -> None:
    vector = vector_of(POLES[:2])
    vector.reset()
    with pytest.raises(ValueError, match="shorter"):
        vector.step([0])
    vector.close()
