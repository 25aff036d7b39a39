"""Football: names, options, engines, planes, ends and scores."""

import re
import signal
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.signals import STOP_SIGNALS
from rainbow_iqn_apex.environments import extras
from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.football import environment as football
from rainbow_iqn_apex.environments.football.environment import make_football
from rainbow_iqn_apex.environments.football.match import CHOICE, draw, spec_of
from rainbow_iqn_apex.environments.football.options import SCENARIOS, FootballOptions
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings, next_row
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.environment_spec import pack, unpack
from rainbow_iqn_apex.memory.rows import Array, Row, StepType
from rainbow_iqn_apex.programs.common import open_environment
from tests.environments.episodes import play_out

CLOSE = "academy_empty_goal_close"
SHOT, RIGHT = 12, 5
NO_GFOOTBALL = "" if find_spec("gfootball_engine") else "gfootball is missing: bash make_environment.sh --football"
engines = pytest.mark.parametrize(
    "engine",
    [
        pytest.param("envpool", marks=pytest.mark.skipif(bool(missing("football")), reason=missing("football"))),
        pytest.param("gfootball", marks=pytest.mark.skipif(bool(NO_GFOOTBALL), reason=NO_GFOOTBALL)),
    ],
)


def make(engine: str, scenario: str = CLOSE, seed: int = 0, *, record: bool = False, **options: Any) -> Environment:
    own = FootballOptions(football_engine=engine, **options)
    return make_football(EnvironmentSettings(env=f"football:{scenario}", own=own, record=record), seed)


def planes_of(environment: Environment, obs: Array) -> Array:
    return unpack(environment.spec.observation, obs)[0]


# --- names and options ---


@pytest.mark.parametrize(
    ("engine", "there", "told"),
    [
        ("envpool", ("gfootball_engine",), "the extra football is missing; install it with: "),
        ("envpool", (), "give --football-engine gfootball, and build it with: bash make_environment.sh --football"),
        ("gfootball", ("envpool",), "gfootball is missing; build it with: bash make_environment.sh --football"),
    ],
)
def test_a_missing_engine_is_one_line_that_installs_it(
    engine: str, there: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (extras, football):
        monkeypatch.setattr(module, "find_spec", lambda name: name in there or None)
    with pytest.raises(UserError) as raised:
        open_environment(Args(env=f"football:{CLOSE}", environment=FootballOptions(football_engine=engine)), 0)
    line = str(raised.value)
    assert line.startswith("--env: football cannot be made: ") and told in line and "\n" not in line


def test_what_envpool_lacks_is_refused() -> None:
    options = FootballOptions("envpool", "108x144", "scoring,checkpoints")
    assert options.errors() == [
        "--football-planes: envpool has 72x96 alone; --football-engine gfootball has 108x144",
        "--football-rewards: envpool has scoring alone; --football-engine gfootball has scoring,checkpoints",
    ]
    assert not FootballOptions("gfootball", "108x144", "scoring,checkpoints").errors()


def folder_of(module: str) -> Path:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def test_the_scenarios_are_those_of_the_engines() -> None:
    if not missing("football"):
        text = (folder_of("envpool") / "gfootball/registration.py").read_text()
        assert tuple(re.findall(r'\("(\w+)", \d+\)', text)) == SCENARIOS
    if not NO_GFOOTBALL:
        names = {path.stem for path in (folder_of("gfootball") / "scenarios").glob("*.py")}
        assert names - {"__init__", "test_example_multiagent"} == set(SCENARIOS)


# --- what needs no engine ---


class Scripted:
    """A match with checkpoints: a goal for each team, and a bonus beside."""

    spec, action_repeat, pictures_per_second = spec_of((72, 96)), 1, 10.0

    def __init__(self) -> None:
        self.end, self.gained = "", 0.0

    def row(self, gained: float, bonus: float, end: str = "") -> Row:
        self.gained, self.end = gained, end
        return next_row(np.zeros(3456, np.uint8), gained + bonus, end)

    def reset(self) -> Row:
        self._left = [(0.0, 0.3, ""), (1.0, 0.7, ""), (-1.0, 0.0, ""), (1.0, 0.0, "time_limit")]
        self.end = ""
        return self.row(0.0, 0.0)._replace(step_type=StepType.FIRST)

    def step(self, _action: int) -> Row:
        return self.row(*self._left.pop(0))


def test_the_score_is_the_difference_of_goals_whatever_is_learned_from() -> None:
    # Mutation: let `VectorEnvironment.step` add the row's reward.
    vector = VectorEnvironment([Scripted()])  # type: ignore[list-item]
    vector.reset()
    rewards = [float(vector.step([0]).rows.reward[0]) for _ in range(3)]
    assert rewards == pytest.approx([0.3, 1.7, -1.0])
    step = vector.step([0])
    assert (step.ended[0].reward, step.ended[0].discount) == (1.0, 1.0)
    assert step.episodes[0].score_saber == step.episodes[0].score_5min == 1.0


def test_the_pitch_is_drawn_from_the_planes() -> None:
    spec = spec_of((72, 96))
    assert spec.observation.nbytes == 3456, "an eighth of its points"
    planes = np.zeros((4, 72, 96), np.bool_)
    planes[0, 10, 20] = planes[1, 50, 70] = planes[2, 36, 30] = planes[3, 10, 20] = True
    picture = draw(pack([planes]), spec.observation)
    assert picture.shape == (576, 768, 3) and picture.dtype == "uint8"
    for (y, x), colour in {(10, 20): (220, 60, 50), (50, 70): (60, 90, 230), (36, 30): (255, 255, 255)}.items():
        assert tuple(picture[8 * y + 4, 8 * x + 4]) == colour
    assert tuple(picture[8 * 10 + 4, 8 * 20 + 4 + 9]) == (255, 220, 60), "a ring is around the active player"


# --- both engines ---


@pytest.mark.slow
@engines
def test_a_shot_at_the_empty_goal_scores(engine: str) -> None:
    with closing(make(engine, record=True)) as environment:
        row = environment.reset()
        planes = planes_of(environment, row.obs)
        assert planes.shape == (4, 72, 96)
        assert [int(plane.sum()) for plane in planes[1:]] == [1, 1, 1] and 1 <= planes[0].sum() <= 2
        assert np.argwhere(planes[2]).tolist() == [[36, 84]], "the ball lies at x = 0.77"
        rows = play_out(environment, lambda rows: RIGHT if len(rows) < 6 else SHOT)
        assert (environment.end, rows[-1].discount) == ("game_over", 0.0)
        assert [row.reward for row in rows] == [0.0] * (len(rows) - 1) + [1.0]
        assert environment.pictures()[0].shape == (576, 768, 3)


@pytest.mark.slow
@engines
def test_the_end_of_the_time_is_no_death(engine: str) -> None:
    # Mutation: call it "game_over".
    with closing(make(engine, "academy_run_to_score")) as environment:
        for _ in range(10):  # in some, the others come and take the ball
            rows = play_out(environment, lambda _: 0)
            if len(rows) == 402:
                break
            assert (environment.end, rows[-1].discount) == ("game_over", 0.0)
        assert (environment.end, rows[-1].discount, len(rows)) == ("time_limit", 1.0, 402)


@pytest.mark.slow
@engines
def test_a_snapshot_of_the_other_engine_is_refused(engine: str) -> None:
    with closing(make(engine)) as environment:
        other = "gfootball" if engine == "envpool" else "envpool"
        saved = {"envpool": {"engine": np.zeros(1)}, "gfootball": {"actions": np.zeros(1)}}[engine]
        with pytest.raises(RunError, match=f"was saved by another engine; give --football-engine {other}"):
            environment.restore(saved)


# --- envpool's process ---


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("football")), reason=missing("football"))
def test_episodes_of_a_later_engine_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave out `number` of what `_Engine.begin` compares.
    from rainbow_iqn_apex.environments.football import envpool_engine

    monkeypatch.setattr(envpool_engine, "EPISODES", 2)
    actions = np.random.default_rng(0).integers(CHOICE.count, size=60).tolist()
    corner = "academy_corner"
    with closing(make("envpool", corner, 3)) as environment, closing(make("envpool", corner, 4)) as other:
        seen = []
        for _ in range(4):
            row, rows = environment.reset(), list[Array]()
            while row.step_type != StepType.LAST and len(rows) < 40:
                row = environment.step(actions[len(rows)])
                rows.append(row.obs)
            seen.append(np.stack(rows[:10]))
        assert not any(np.array_equal(seen[3], rows) for rows in seen[:3])
        for _ in range(2):
            other.restore(environment.snapshot())
            for action in actions[40:]:
                one, again = [(each.reset() if each.end else each.step(action)) for each in (environment, other)]
                assert np.array_equal(one.obs, again.obs) and one[1:] == again[1:]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing("football")), reason=missing("football"))
def test_a_killed_process_is_told_and_a_closed_one_is_gone() -> None:
    # Mutation: do not close the pipes in `_end`.
    from rainbow_iqn_apex.environments.football.envpool_engine import EnvpoolFootball

    environment = make("envpool")
    assert isinstance(environment, EnvpoolFootball)
    environment.reset()
    process = environment._engine._process
    assert process is not None
    for number in STOP_SIGNALS:  # these are for its actor
        process.send_signal(number)
    for _ in range(20):
        environment.step(0)
    process.send_signal(signal.SIGKILL)
    with pytest.raises(RunError, match=f"envpool's process of football:{CLOSE} was killed by SIGKILL; see above"):
        while True:
            environment.step(0)
    environment.close()
    again = make("envpool")
    assert isinstance(again, EnvpoolFootball)
    again.reset()
    process = again._engine._process
    assert process is not None
    again.close()
    assert process.returncode == 0


# --- gfootball's states ---


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_GFOOTBALL), reason=NO_GFOOTBALL)
@pytest.mark.parametrize("scenario", ["academy_corner", "11_vs_11_easy_stochastic"])
def test_a_state_of_gfootball_holds_its_random_numbers(scenario: str) -> None:
    # Mutation: leave out `set_state`.
    size: dict[str, Any] = {"football_planes": "90x120", "football_rewards": "scoring,checkpoints"}
    actions = np.random.default_rng(1).integers(CHOICE.count, size=60).tolist()
    with (
        closing(make("gfootball", scenario, 3, **size)) as environment,
        closing(make("gfootball", scenario, 4, **size)) as other,
    ):
        assert planes_of(environment, environment.reset().obs).shape == (4, 90, 120)
        for action in actions[:20]:
            environment.reset() if environment.end else environment.step(action)
        other.restore(environment.snapshot())
        for action in actions[20:]:
            one, again = [(each.reset() if each.end else each.step(action)) for each in (environment, other)]
            assert np.array_equal(one.obs, again.obs) and one[1:] == again[1:]


@pytest.mark.slow
@pytest.mark.skipif(bool(NO_GFOOTBALL), reason=NO_GFOOTBALL)
def test_checkpoints_are_learned_from_and_not_scored() -> None:
    with closing(make("gfootball", football_rewards="scoring,checkpoints")) as environment:
        row, rewards, gained = environment.reset(), 0.0, 0.0
        while row.step_type != StepType.LAST:
            row = environment.step(SHOT if rewards > 0.75 else RIGHT)
            rewards, gained = rewards + row.reward, gained + environment.gained  # type: ignore[attr-defined]
        assert gained == 1 and rewards == pytest.approx(2)
