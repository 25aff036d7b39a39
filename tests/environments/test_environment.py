import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.display import check_display
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.nle.environment import TASKS
from rainbow_iqn_apex.environments.registry import ENVIRONMENTS, Entry, make_environment
from rainbow_iqn_apex.environments.vizdoom.environment import SCENARIOS
from rainbow_iqn_apex.programs.common import open_environment
from tests.chain.environment import ChainEnvironment
from tests.interface import errors_of
from tests.processes import ROOT, run


class Counter(ChainEnvironment):
    """Keeps what it is made with."""

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(seed)
        self.made_with = (settings, seed)


def test_unknown_environment_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "counter", Entry(f"{__name__}:Counter"))
    monkeypatch.delitem(ENVIRONMENTS, "chain", raising=False)  # other tests may have added it
    with pytest.raises(ValueError, match="unknown environment 'atary'; there are: atari, counter, crafter, dmlab, "):
        make_environment(EnvironmentSettings(env="atary"), 0)


COUNTING = "gymnasium-vector:tests.environments.counting:counting/"
WRONG = {
    "crafter:Crafter-v1": "crafter has no environment 'Crafter-v1'; there is CrafterReward-v1",
    "dmlab:explore_goal_location_small": "did you mean explore_goal_locations_small",
    "dmlab:xyz": "DeepMind Lab has no level 'xyz'; one of your own is named by its path, with a slash",
    "football:academy_empty_gaol_close": "has no scenario 'academy_empty_gaol_close'; did you mean academy_empty_goal",
    "football:5vs5": "did you mean 5_vs_5",
    "football:11_vs_11_easy": "did you mean .*11_vs_11_easy_stochastic",
    "gymnasium": "needs a name, as in gymnasium:CartPole-v1",
    "gymnasium:": "needs a name, as in gymnasium:CartPole-v1",
    "gymnasium:cartpole": "knows no environment 'cartpole'; did you mean CartPole-v",
    "gymnasium:CartPole": "did you mean CartPole-v1",  # Gymnasium takes the newest, with a warning
    "gymnasium:Taxi-v3": "did you mean Taxi-v4",
    "gymnasium:CartPole-v9": "did you mean CartPole-v1",
    "gymnasium:Zork": "one of another package has its module in front",
    "gymnasium:no_such_package:Zork-v0": "cannot import 'no_such_package': ModuleNotFoundError: No module named",
    "gymnasium::CartPole-v9": "did you mean CartPole-v1",
    "gymnasium:a:b:c": "cannot import 'a:b'",
    "gymnasium:..:c": "cannot import",
    "gymnasium:Reacher-v2": "cannot be made: .* moved to the gymnasium-robotics project",
    "gymnasium-vector:CartPol-v1": "did you mean CartPole-v1",
    "gymnasium-vector:no_such_module:X-v0": "cannot import 'no_such_module'",
    f"{COUNTING}Disabled-v0": "expected autoreset NEXT_STEP or SAME_STEP, got AutoresetMode.DISABLED",
    f"{COUNTING}Wrong-v0": "expected a VectorEnv of 1 environments, got a SyncVectorEnv of 2 environments",
    "nle:NetHackScor-v0": "nle has no task 'NetHackScor-v0'; did you mean NetHackScore-v0",
    "nle:nethackgold-v0": "did you mean NetHackGold-v0",
    "nle:xyz": f"there are: {', '.join(TASKS)}",
    "procgen:coinrum": "procgen knows no game 'coinrum'; did you mean coinrun",
    "procgen:xyz": "there are bigfish, bossfight",
    "vizdoom:my-way-hom": "vizdoom has no scenario 'my-way-hom'; did you mean my_way_home",
    "vizdoom:Deathmatch": "did you mean deathmatch",
    "vizdoom:zzz": f"there are: {', '.join(SCENARIOS)}",
}
if not find_spec("jax"):
    WRONG["gymnasium:phys2d/CartPole-v1"] = "cannot be made: No module named 'jax'"


@pytest.mark.parametrize("env", WRONG)
def test_what_cannot_be_had_is_told_in_one_line(env: str) -> None:
    # Mutation: leave `check` out of an environment's line in the registry: programs begin that play nothing.
    with pytest.raises(UserError, match=f"^--env: .*{WRONG[env]}") as raised:
        open_environment(Args(env=env), 0)
    assert "\n" not in str(raised.value)
    if " cannot be " not in str(raised.value):  # made, or played: only who makes it finds that out
        assert errors_of("--env", env) == [str(raised.value)], "it is looked up before anything is started"


@pytest.mark.parametrize("env", ["counter", "counter:Three-v1"])
def test_a_new_environment_is_one_line_and_gets_the_whole_settings(monkeypatch: pytest.MonkeyPatch, env: str) -> None:
    monkeypatch.setitem(ENVIRONMENTS, "counter", Entry(f"{__name__}:Counter"))
    settings = EnvironmentSettings(env=env)
    environment = make_environment(settings, 7)
    assert isinstance(environment, Counter)
    assert environment.made_with == (settings, 7)


def test_the_register_alone_loads_no_environment_and_no_opencv() -> None:
    slow = "{'ale_py', 'gymnasium', 'cv2', 'torch'}"
    check = f"import sys, rainbow_iqn_apex.environments.registry; assert not {slow} & set(sys.modules)"
    code, _, errors = run("-c", check)
    assert code == 0, errors


@pytest.mark.parametrize("changes", [{"action_repeat": 0}, {"proba_sticky_actions": -0.1}, {"proba_sticky_actions": 2}])
def test_impossible_settings(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        make_environment(EnvironmentSettings(**changes), 0)


@pytest.mark.parametrize("env", ["atari", "gymnasium:CartPole-v1"])
def test_rendering_without_a_display_is_an_error(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match="there is no display"):
        make_environment(EnvironmentSettings(env=env, render=True), 0)


def test_rendering_on_a_display_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    for display in (":4711", "unix:4711.0", "127.0.0.1:4711", ":99999", "nonsense"):
        monkeypatch.setenv("DISPLAY", display)
        with pytest.raises(RuntimeError, match=f"nothing answers at DISPLAY={display}"):
            check_display()
    with socket.socket() as server:  # all that SDL could want to know is whether somebody listens
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setenv("DISPLAY", f"127.0.0.1:{server.getsockname()[1] - 6000}.0")
        check_display()


def test_wayland_is_asked_before_it_is_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for display in ("wayland-0", str(tmp_path / "wayland-0")):
        monkeypatch.setenv("WAYLAND_DISPLAY", display)
        with pytest.raises(RuntimeError, match=f"nothing answers at WAYLAND_DISPLAY={display}"):
            check_display()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "wayland-0"))
        server.listen()
        for display in ("wayland-0", str(tmp_path / "wayland-0")):
            monkeypatch.setenv("WAYLAND_DISPLAY", display)
            check_display()


def test_rendering_changes_no_row() -> None:
    play = (
        "import sys\n"
        "from rainbow_iqn_apex.environments.interface import EnvironmentSettings\n"
        "from rainbow_iqn_apex.environments.registry import make_environment\n"
        "environment = make_environment(EnvironmentSettings(render=sys.argv[1] == 'yes'), 1)\n"
        "sys.stdout.buffer.write(environment.reset().obs.tobytes())\n"
        "for step in range(20): sys.stdout.buffer.write(environment.step(step % 18).obs.tobytes())\n"
    )
    seen = {
        render: subprocess.run(
            [sys.executable, "-c", play, render],
            check=True,
            capture_output=True,
            cwd=ROOT,
            env={"SDL_VIDEODRIVER": "dummy"},
        )
        for render in ("yes", "no")
    }
    assert len(seen["yes"].stdout) == 21 * 84 * 84  # no banner either
    assert seen["yes"].stdout == seen["no"].stdout
    assert seen["no"].stderr == b""
