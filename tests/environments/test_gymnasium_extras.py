"""MuJoCo and dm_control: what is told where they are missing, and how they play where they are not."""

import re
import sys
import tomllib

import numpy as np
import pytest

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments import extras
from rainbow_iqn_apex.environments.extras import PACKAGES, PACKAGES_ALONE, missing
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.common import open_environment
from tests.processes import ROOT

CHEETAH, SWINGUP = "HalfCheetah-v5", "shimmy:dm_control/cartpole-swingup-v0"
EXTRAS = {CHEETAH: "mujoco", SWINGUP: "dm-control"}


def make(id_: str, seed: int = 0) -> Environment:
    if lacking := missing(EXTRAS[id_]):
        pytest.skip(lacking)
    return make_environment(EnvironmentSettings(env=f"gymnasium:{id_}"), seed)


@pytest.mark.parametrize("id_", [*EXTRAS, "dm_control/cartpole-swingup-v0"])
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="there is no dm_control")
def test_a_missing_extra_is_one_line_that_installs_it(id_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: look for the packages only once Gymnasium has failed to import them.
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    extra = EXTRAS.get(id_, "dm-control")
    with pytest.raises(UserError) as raised:
        open_environment(Args(env=f"gymnasium:{id_}"), 0)
    told = str(raised.value)
    assert re.fullmatch(
        rf"--env: {id_} cannot be made: the extra {extra} is missing; install it with: \S+ -m pip install .*", told
    )
    assert all(package in told for package in PACKAGES[extra])


def test_later_pythons_have_no_dm_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    assert missing("dm-control").startswith("the extra dm-control needs Python 3.11 or 3.12")
    assert missing("mujoco").startswith("the extra mujoco is missing")
    assert missing("procgen") == "procgen2 needs Python 3.11: it has no packages for later ones"


def test_the_extras_are_those_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, packages in PACKAGES.items():
        assert tuple(package.partition(";")[0] for package in extras[name]) == packages
    lines = (ROOT / "requirements-alone.txt").read_text().splitlines()
    pins = [line.split(";")[0].split("==") for line in lines]
    assert [[f"{name}>={version}"] for name, version in pins] == [[*named] for named in PACKAGES_ALONE.values()]


@pytest.mark.parametrize("id_", EXTRAS)
def test_the_time_limit_is_no_death(id_: str) -> None:
    environment = make(id_)
    random = np.random.default_rng(0)
    row, steps = environment.reset(), 0
    while row.step_type != StepType.LAST:
        row = environment.step(random.uniform(-1, 1, environment.spec.action.field.shape))
        steps += 1
    assert (steps, environment.end, row.discount) == (1000, "time_limit", 1)


def test_a_fall_is_a_death() -> None:
    make(CHEETAH)  # skips
    environment = make_environment(EnvironmentSettings(env="gymnasium:Hopper-v5"), 1)
    row = environment.reset()
    while row.step_type != StepType.LAST:
        row = environment.step(np.ones(3))
    assert (environment.end, row.discount) == ("game_over", 0)


def test_the_parts_of_dm_control_have_names() -> None:
    environment = make(SWINGUP)
    assert [part.name for part in environment.spec.parts] == ["position", "velocity"]
    row = environment.reset()
    assert np.linalg.norm(row.obs[1:3]) == pytest.approx(1), "cosine and sine of the pole's angle"
    assert environment.spec.part("velocity") == slice(3, 5)


@pytest.mark.parametrize("id_", EXTRAS)
def test_a_long_episode_is_continued_to_the_last_bit(id_: str) -> None:
    # Mutation: store the actions as float16.
    environment, other = make(id_, 1), make(id_, 2)
    random = np.random.default_rng(0)
    other.reset()
    other.step(np.ones(other.spec.action.field.shape))  # what came before is of no account
    environment.reset()
    for _ in range(600):
        environment.step(random.uniform(-1, 1, environment.spec.action.field.shape))
    other.restore(environment.snapshot())
    for _ in range(100):
        action = random.uniform(-1, 1, environment.spec.action.field.shape)
        one, again = environment.step(action), other.step(action)
        assert np.array_equal(one.obs, again.obs) and one[1:] == again[1:]
