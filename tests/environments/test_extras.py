"""The packages that some environments need: what is told where they are missing, and what pip is asked for."""

import re
import sys
import tomllib

import numpy as np
import pytest

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments import extras
from rainbow_iqn_apex.environments.extras import PACKAGES, PACKAGES_ALONE, missing
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.programs.common import open_environment
from rainbow_iqn_apex.saber.results import run_record
from rainbow_iqn_apex.saber.results.run_record import versions
from tests.processes import ROOT

SWINGUP = "shimmy:dm_control/cartpole-swingup-v0"
NEEDS = {
    "gymnasium:HalfCheetah-v5": "mujoco",
    f"gymnasium:{SWINGUP}": "dm-control",
    "gymnasium:dm_control/cartpole-swingup-v0": "dm-control",
    "vizdoom:basic": "vizdoom",
    "crafter:CrafterReward-v1": "crafter",
    "nle:NetHackScore-v0": "nle",
    "procgen:maze": "procgen",
}


@pytest.mark.parametrize("env", NEEDS)
def test_a_missing_extra_is_one_line_that_installs_it(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: look for the packages only once Gymnasium has failed to import them.
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "version_info", (3, 11, 0))
    extra = NEEDS[env]
    with pytest.raises(UserError) as raised:
        open_environment(Args(env=env), 0)
    told = r"--env: .+ cannot be made: the extra {} is missing; install it with: \S+ -m pip install {}.*"
    alone = "--no-deps " if extra in PACKAGES_ALONE else ""
    assert re.fullmatch(told.format(extra, alone), str(raised.value))
    assert all(package in str(raised.value) for package in (PACKAGES | PACKAGES_ALONE)[extra])


def test_scores_name_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: look for the packages of the environment's own kind alone.
    monkeypatch.setattr(run_record, "version", {"numpy": "2", "mujoco": "3.17", "procgen2": "0.10"}.__getitem__)
    monkeypatch.setattr(run_record, "PackageNotFoundError", KeyError)
    found = {
        env: versions(env).keys() & {"mujoco", "procgen2"} for env in ("gymnasium:HalfCheetah-v5", "atari", *NEEDS)
    }
    assert found["gymnasium:HalfCheetah-v5"] == found[f"gymnasium:{SWINGUP}"] == {"mujoco"}
    assert found["procgen:maze"] == {"procgen2"} and found["atari"] == set()


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


@pytest.mark.skipif(bool(missing("dm-control")), reason=missing("dm-control"))
def test_the_parts_of_dm_control_have_names() -> None:
    environment = make_environment(EnvironmentSettings(env=f"gymnasium:{SWINGUP}"), 0)
    assert [part.name for part in environment.spec.parts] == ["position", "velocity"]
    row = environment.reset()
    assert np.linalg.norm(row.obs[1:3]) == pytest.approx(1), "cosine and sine of the pole's angle"
    assert environment.spec.part("velocity") == slice(3, 5)
