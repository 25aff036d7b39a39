"""Vector environments of Gymnasium: rows of both autoreset modes, and those of other packages."""

import signal
from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.environments.gymnasium_vector.environment import GymnasiumVector
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.vector import Vector
from rainbow_iqn_apex.memory.rows import Row, StepType
from rainbow_iqn_apex.programs.common import open_environment, open_vector
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.documents import write_modules
from tests.environments.counting import Counting
from tests.system import LEARNER, System

COUNTING = "gymnasium-vector:tests.environments.counting:counting/"
ENVS, STEPS = 3, 40


def vector(env: str, seed: int = 7, count: int = ENVS) -> GymnasiumVector:
    return GymnasiumVector(EnvironmentSettings(env=env), seed, count)


def streams(played: Vector, steps: int = STEPS) -> tuple[list[list[Row]], list[tuple[int, int, float, int, str]]]:
    """Play with action e + t in environment e at its step t; all rows by environment, LAST among them, and records."""
    rows, records = played.reset(), []
    found: list[list[Row]] = [[] for _ in range(ENVS)]
    counts = [0] * ENVS  # rows of each environment that are acted on, and not LAST
    for _ in range(steps):
        for env in range(ENVS):
            found[env].append(rows.row(env))
        acts = [row.step_type != StepType.LAST for row in map(rows.row, range(ENVS))]
        rows, ended, episodes = played.step([(env + counts[env]) % 5 for env in range(ENVS)])
        for env in range(ENVS):
            counts[env] += acts[env]
            if env in ended:
                found[env].append(ended[env])
        records += [(one.env, one.episode, one.score_saber, one.length, one.end) for one in episodes]
    return found, records


def alone(env: int, count: int) -> list[Row]:
    """The first rows of an environment that is stepped by itself."""
    counting, step = Counting(), 0
    rows: list[Row] = []
    while len(rows) < count:
        shown, _ = counting.reset()
        rows.append(Row(flat(shown), StepType.FIRST, 0.0, 1.0))
        while rows[-1].step_type != StepType.LAST:
            shown, reward, is_over, is_cut, _ = counting.step((env + step) % 5)
            step += 1
            step_type = StepType.LAST if is_over or is_cut else StepType.MID
            rows.append(Row(flat(shown), step_type, reward, 0.0 if is_over else 1.0))
    return rows[:count]


def flat(shown: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([shown["episode"], shown["step"]])


@pytest.mark.parametrize("mode", ["Next", "Same"])
def test_rows_and_records_are_those_of_each_environment_alone(mode: str) -> None:
    # Mutations: the shown observation in the place of the final one; a reward or score kept over a reset; the reset
    # step of NEXT_STEP counted as one of an episode; a truncation with discount 0.
    found, records = streams(vector(f"{COUNTING}{mode}-v0"))
    for env, rows in enumerate(found):
        expected = alone(env, len(rows))
        for row, wanted in zip(rows, expected, strict=True):
            assert np.array_equal(row.obs, wanted.obs) and row[1:] == wanted[1:]
        ends = [(row, number) for number, row in enumerate(rows) if row.step_type == StepType.LAST]
        own = [record for record in records if record[0] == env]
        assert [episode for _, episode, *_ in own] == list(range(len(own))) and len(own) >= len(ends) > 5
        for (row, number), (_, episode, score, length, end) in zip(ends, own, strict=False):
            first = max(n for n in range(number) if rows[n].step_type == StepType.FIRST)
            assert (episode, length) == (row.obs[0], number - first)
            assert score == sum(row.reward for row in rows[first + 1 : number + 1])
            assert end == ("game_over" if row.discount == 0 else "time_limit")


def test_the_mode_decides_where_last_rows_are() -> None:
    for mode, is_there in (("Next", True), ("Same", False)):
        played = vector(f"{COUNTING}{mode}-v0")
        assert played.reset().step_type.tolist() == [StepType.FIRST] * ENVS
        rows, ended, episodes = played.step([0] * ENVS)
        assert len(episodes) == ENVS, "episode 0 has one step"
        assert rows.step_type.tolist() == [StepType.LAST if is_there else StepType.FIRST] * ENVS
        assert len(ended) == (0 if is_there else ENVS)


@pytest.mark.parametrize("mode", ["Next", "Same"])
def test_a_restored_vector_cuts_off_what_was_running(mode: str) -> None:
    # Mutation: MID rows that stay, so that the next episode's first row follows without an end between them.
    played = vector(f"{COUNTING}{mode}-v0")
    rows = played.reset()
    for _ in range(7):
        rows, _, episodes = played.step([1] * ENVS)
    saved = played.snapshot()
    again = vector(f"{COUNTING}{mode}-v0", seed=1)
    again.reset()
    cut, lost = again.restore(saved)
    assert len(lost) == ENVS
    assert cut.step_type.tolist() == [StepType.LAST] * ENVS
    assert np.array_equal(cut.obs, rows.obs) and np.array_equal(cut.discount, rows.discount)
    begun, ended, episodes = again.step([1] * ENVS)
    assert begun.step_type.tolist() == [StepType.FIRST] * ENVS and not ended and not episodes
    episodes = []
    while not episodes:
        _, _, episodes = again.step([1] * ENVS)
    assert episodes[0].episode == saved["episodes"][0] and episodes[0].length == 1
    assert again.snapshot()["starts"][0] == saved["starts"][0] and again.snapshot()["starts"][1] == 2
    with pytest.raises(ValueError, match="a snapshot of 3 environments for a vector of 2"):
        vector(f"{COUNTING}{mode}-v0", count=2).restore(saved)


def test_seeds_decide_a_vector() -> None:
    def first(seed: int) -> list[float]:
        played = vector("gymnasium-vector:CartPole-v1", seed)
        return [played.reset().obs.sum(), played.reset().obs.sum()]

    assert first(1) == first(1) != first(2) and len(set(first(1))) == 2


def test_a_vector_without_final_observations_is_refused() -> None:
    played = vector(f"{COUNTING}Forgetful-v0")
    played.reset()
    with pytest.raises(RunError, match="its last observation is missing: expected it in infos"):
        played.step([0] * ENVS)


@pytest.mark.parametrize("part", ["reset", "step"])
def test_a_vector_of_the_old_api_is_refused(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played = vector("gymnasium-vector:CartPole-v1")
    shown = np.zeros((ENVS, 4), np.float32)
    less = {"reset": lambda **_: shown, "step": lambda _: (shown, [0] * ENVS, [False] * ENVS, {})}
    monkeypatch.setattr(played._made._vector, part, less[part])
    with pytest.raises(UserError, match=r"CartPole-v1 has .* old API"):
        played.reset()
        played.step([0] * ENVS)


def test_it_draws_nothing_and_is_not_parted() -> None:
    with pytest.raises(UserError, match=r"--record: .* draws nothing"):
        open_environment(options.Args(env="gymnasium-vector:CartPole-v1"), 0, recorded_by="--record")
    played = open_vector(options.Args(env="gymnasium-vector:CartPole-v1"), [1, 2, 3, 4], 0)
    assert isinstance(played, GymnasiumVector) and played.count == 4 and not played.is_divisible
    played.reset()
    with pytest.raises(ValueError, match="all of its environments at once"):
        played.step([0, 0], range(2))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_emulators_vector_plays_in_both_modes(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ale_py

    gymnasium.register_envs(ale_py)
    pong, id_ = gymnasium.spec("ALE/Pong-v5"), f"vector/{mode}-v0"
    kwargs = pong.kwargs | {"autoreset_mode": mode, "max_num_frames_per_episode": 40, "noop_max": 0}
    spec = EnvSpec(id_, vector_entry_point=pong.vector_entry_point, kwargs=kwargs)
    monkeypatch.setitem(gymnasium.registry, id_, spec)
    played = vector(f"gymnasium-vector:{id_}", count=2)
    rows, ends = played.reset(), 0
    assert rows.obs.shape == (2, 4, 84, 84) and played.spec.action.field.shape == ()
    for _ in range(25):
        rows, ended, episodes = played.step([0, 2])
        ends += len(episodes)
        assert {row.discount for row in ended.values()} <= {1} and {one.length for one in episodes} <= {10}
    assert ends == 4


def test_the_emulators_vector_clips_no_reward() -> None:
    played = vector("gymnasium-vector:ale_py:ALE/SpaceInvaders-v5", count=2)
    played.reset()
    stepped = (played.step([1 + 2 * (step % 2)] * 2).rows for step in range(300))  # fire, and go to the side
    assert any(rows.row(env).reward >= 5 for rows in stepped for env in range(2))


@pytest.mark.skipif(not find_spec("envpool"), reason="envpool is not installed")
def test_envpools_vector_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Poles of EnvPool, beside those of Gymnasium: as long under the same action.
    write_modules("docs/environments.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    id_ = "gymnasium-vector:pools:pools/CartPole-v1"
    played = vector(id_)
    first = played.reset()
    assert np.array_equal(vector(id_).reset().obs, first.obs), "the seed decides, and each start has another"
    assert not np.array_equal(vector(id_, seed=8).reset().obs, first.obs)
    assert not np.array_equal(played.reset().obs, first.obs)
    episodes = [one for _ in range(200) for one in played.step([0] * ENVS).episodes]
    assert {one.env for one in episodes} == set(range(ENVS)) and len(episodes) > 40
    assert all(8 <= one.length == one.score_saber <= 11 and one.end == "game_over" for one in episodes)


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("env", ["gymnasium-vector:CartPole-v1", "gymnasium:tests.environments.spaced:Normalised-v0"])
def test_a_run_whose_episodes_cannot_be_continued_goes_on_after_a_kill(
    env: str, redis_port: int, run_name: str, tmp_path: Path
) -> None:
    words = (
        f"--env {env} --agent impala --history-length 1 --unroll-length 5 --batch-size 4 "
        "--hidden-size 16 --T-max 3000 --log-interval 500 --nb-env-per-actor 4 --learner-threads 1 --disable-cuda"
    )
    with System(redis_port, run_name, tmp_path, words.split()) as system:
        system.wait_for(LEARNER, "T = 1000 ")
        system.restart("0", signal.SIGKILL)
        assert system.learner.finish(400) == 0, system.last_words()
        assert system.printed("0").count("cuts off") == 1 and "goes on after" in system.printed("0")
    (file,) = tmp_path.glob("*-v?.csv")
    records = read_records(file)
    assert {record.env for record in records} == set(range(4))
    assert all(record.score_saber == record.length >= 8 for record in records), "no episode has steps of another"
