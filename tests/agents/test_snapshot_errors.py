"""Files that are no usable snapshot: each is refused in one line that says what is wrong."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.common import make_agent
from rainbow_iqn_apex.programs.evaluation.settings import network_args
from tests.agents.test_published_snapshots import ACTIONS, CPU, FRAME, published, saved
from tests.ground_truth.published_network import PublishedNetwork, snapshot_of
from tests.specs import discrete

SETTINGS = "--history-length 3 --hidden-size 13 --quantile-embedding-dim 7 --atoms 11".split()
RAN = Path("/nowhere")  # what a hostile file would have called


def load_error(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        snapshot.load(path, "--model")
    return one_line(caught.value, path)


def one_line(error: UserError, path: Path) -> str:
    text = str(error)
    assert text.startswith(f"--model: {path} ") and len(text.splitlines()) == 1 and len(text) < 500, text
    return text


def agent_of(*more: str, actions: int = ACTIONS) -> Agent:
    args = options.parse([*SETTINGS, *more], "test", "")
    return make_agent(args, discrete(FRAME.shape, FRAME.dtype, actions), CPU, learns=True, seed=0)


def misfit(agent: Agent, content: dict[str, Any]) -> str:
    """Why a snapshot is not taken for further training; the agent must be left as it was."""
    before = {name: value.clone() for name, value in agent.parts["model"].state_dict().items()}
    with pytest.raises(UserError) as caught:
        snapshot.restore_weights(agent, content)
    for name, value in agent.parts["model"].state_dict().items():
        assert torch.equal(value, before[name])
    assert len(str(caught.value)) < 500
    return str(caught.value)


# --- files ---


class _Code:
    def __reduce__(self) -> Any:
        return Path.touch, (RAN,)


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights.txt", "conv1")


FILES: dict[str, Callable[[Path], Any]] = {
    "text": lambda path: path.write_text("weights\n"),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "zip": _zip,
    "empty": lambda path: path.touch(),
    "directory": lambda path: path.mkdir(),
    "missing": lambda _: None,
    "a list": lambda path: torch.save([1, 2], path),
    "weights alone": lambda path: torch.save(published("rainbow").state_dict(), path),
    "a number for weights": lambda path: torch.save({"model_state_dict": 3}, path),
    "a whole network": lambda path: torch.save(published("rainbow"), path),
    "plain pickle": lambda path: path.write_bytes(pickle.dumps({"model_state_dict": {}, "T_actors": _Code()})),
    "code": lambda path: torch.save({"model_state_dict": {}, "T_actors": _Code()}, path),
    "code in the old format": lambda path: torch.save(
        {"model_state_dict": {}, "T_actors": _Code()}, path, _use_new_zipfile_serialization=False
    ),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, kind: str
) -> None:
    monkeypatch.setattr(f"{__name__}.RAN", tmp_path / "ran")
    path = tmp_path / "x.pth"
    FILES[kind](path)
    assert "snapshot" in load_error(path)
    assert not (tmp_path / "ran").exists(), "nothing of it was run"
    assert not recwarn.list, "a warning would be a second line"


@pytest.mark.parametrize("kind", ["code", "code in the old format", "text"])
def test_nobody_is_told_how_to_run_what_is_in_a_file(tmp_path: Path, kind: str) -> None:
    FILES[kind](tmp_path / "x.pth")
    assert load_error(tmp_path / "x.pth").endswith("(it is of another kind, or torn, or holds more than plain data)")


def test_the_hostile_file_would_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above shows nothing."""
    monkeypatch.setattr(f"{__name__}.RAN", tmp_path / "ran")
    torch.save({"T_actors": _Code()}, tmp_path / "x.pth")
    torch.load(tmp_path / "x.pth", weights_only=False)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("legacy", [False, True])
def test_a_truncated_snapshot(tmp_path: Path, legacy: bool) -> None:
    whole = saved(tmp_path / "whole.pth", snapshot_of(published("rainbow_iqn")), legacy=legacy).read_bytes()
    path = tmp_path / "x.pth"
    for end in [1, 2, 10, 100, 1000, *range(3000, len(whole), len(whole) // 30), len(whole) - 100, len(whole) - 1]:
        path.write_bytes(whole[:end])
        assert "torn" in load_error(path)
    path.write_bytes(whole)
    snapshot.load(path, "--model")


# --- weights that no network can use ---


def _with(name: str, value: Any) -> dict[str, Any]:
    content = snapshot_of(published("rainbow_iqn"))
    content["model_state_dict"][name] = value
    return content


def _one_bad(value: float) -> torch.Tensor:
    weight = torch.zeros(64, 64, 3, 3)
    weight[5, 6, 1, 1] = value
    return weight


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("conv3.weight", _one_bad(torch.nan), "conv3.weight has values that are not finite"),
        ("conv3.weight", _one_bad(-torch.inf), "conv3.weight has values that are not finite"),
        ("conv3.bias", torch.full((64,), 1e300, dtype=torch.float64), "conv3.bias has values that are not finite"),
        ("conv3.bias", torch.zeros(64).to_sparse(), "conv3.bias is not a tensor of floating-point numbers"),
        ("conv3.bias", [0.0] * 64, "conv3.bias is not a tensor"),
        ("conv3.bias", None, "conv3.bias is not a tensor"),
        ("conv3.bias", torch.zeros(64, dtype=torch.int64), "conv3.bias is not a tensor of floating-point numbers"),
        (3, torch.zeros(2), "3 is not a tensor"),
    ],
)
def test_weights_that_are_no_numbers(tmp_path: Path, name: Any, value: Any, wanted: str) -> None:
    assert wanted in load_error(saved(tmp_path / "x.pth", _with(name, value)))


# --- snapshots of something else than these settings ask for ---


@pytest.mark.parametrize(
    ("more", "actions", "lines"),
    [
        ("", 6, ["--model: the snapshot chooses among 5 actions, this environment has 6"]),
        ("--history-length 4", 5, ["--history-length: the snapshot's weights need 3, is 4"]),
        ("--rainbow-only 1", 5, ["--agent: the snapshot's weights need rainbow_iqn, is rainbow"]),
        (
            "--rainbow-only 1 --hidden-size 14",
            5,
            [
                "--agent: the snapshot's weights need rainbow_iqn, is rainbow",
                "--hidden-size: the snapshot's weights need 13",
            ],
        ),
        ("--architecture data-efficient", 5, ["--architecture: the snapshot's weights need canonical, is data-effi"]),
        (
            "--hidden-size 14 --quantile-embedding-dim 8",
            5,
            [
                "--hidden-size: the snapshot's weights need 13, is 14",
                "--quantile-embedding-dim: the snapshot's weights ",
            ],
        ),
    ],
)
def test_other_settings_are_named(more: str, actions: int, lines: list[str]) -> None:
    text = misfit(agent_of(*more.split(), actions=actions), snapshot_of(published("rainbow_iqn")))
    assert len(text.splitlines()) == len(lines)
    for line, wanted in zip(text.splitlines(), lines, strict=True):
        assert line.startswith(wanted)


def test_a_snapshot_of_rainbow_for_rainbow_iqn_and_with_other_atoms() -> None:
    content = snapshot_of(published("rainbow"))
    assert misfit(agent_of(), content) == "--agent: the snapshot's weights need rainbow, is rainbow_iqn"
    text = misfit(agent_of("--rainbow-only", "1", "--atoms", "12"), content)
    assert text == "--atoms: the snapshot's weights need 11, is 12"


def _changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    content = snapshot_of(published("rainbow_iqn"))
    change(content["model_state_dict"])
    return content


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda weights: weights.pop("conv2.bias"), "--model: the snapshot lacks conv2.bias"),
        (lambda weights: weights.pop("fcnoisy_h_a.bias_sigma"), "--model: the snapshot lacks fcnoisy_h_a.bias_sigma"),
        (
            lambda weights: weights.update(extra=torch.zeros(1)),
            "--model: the snapshot has extra, which these settings ",
        ),
        (
            lambda weights: weights.update({"conv2.bias": torch.zeros(3)}),
            "--model: the snapshot's conv2.bias is 3, expected 64",
        ),
        (
            lambda weights: weights.update({"fcnoisy_z_a.bias_epsilon": torch.tensor(0.0)}),
            "--model: the snapshot's fcnoisy_z_a.bias_epsilon is a single number, expected 5",
        ),
        (
            lambda weights: weights.clear(),
            "--model: the snapshot is not of Rainbow-IQN or Rainbow: fcnoisy_z_v.weight_mu is missing",
        ),
    ],
)
def test_missing_extra_and_misshapen_weights(change: Callable[[dict[str, Any]], Any], wanted: str) -> None:
    content = _changed(change)
    text = misfit(agent_of(), content)
    assert text.startswith(wanted) and len(text.splitlines()) == 1, text


def test_many_missing_weights_are_one_short_line() -> None:
    content = _changed(lambda weights: [weights.pop(name) for name in list(weights) if name.startswith("fcnoisy_h")])
    assert "and 5 more" in misfit(agent_of(), content)


# --- evaluation ---


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("conv1.weight", torch.zeros(32, 4), "conv1.weight is 32x4"),
        ("conv1.weight", torch.zeros(32, 4, 7, 7), "no architecture has a kernel like conv1.weight's, 7x7"),
        ("iqn_fc.weight", torch.zeros(3), "iqn_fc.weight is 3"),
        ("fcnoisy_z_v.weight_mu", torch.zeros(0, 13), "fcnoisy_z_v.weight_mu is 0x13"),
        ("fcnoisy_z_a.weight_mu", torch.tensor(1.0), "fcnoisy_z_a.weight_mu is a single number"),
    ],
)
def test_an_evaluation_refuses_layers_that_it_does_not_know(tmp_path: Path, name: str, value: Any, wanted: str) -> None:
    content = _with(name, value)
    path = saved(tmp_path / "x.pth", content)
    with pytest.raises(UserError) as caught:
        network_args(options.parse(["--model", str(path)], "test", ""), content)
    assert one_line(caught.value, path) == f"--model: {path} is not of Rainbow-IQN or Rainbow: {wanted}"


def test_an_evaluation_refuses_another_task_unless_forced() -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, atoms=3)) | {"settings": '{"env": "atari", "game": "pong"}'}
    network_args(options.parse(["--game", "pong"], "test", ""), content)
    network_args(options.parse(["--game", "boxing", "--force"], "test", ""), content)
    with pytest.raises(UserError, match=r"^--game: .* has learned pong, not boxing; --force evaluates it so$"):
        network_args(options.parse(["--game", "boxing"], "test", ""), content)


@pytest.mark.parametrize(
    ("network", "settings", "told"),
    [
        ({"atoms": 3}, {"V_min": 5.0, "V_max": -5.0}, "--V-min: must be below --V-max"),
        ({"embedding": 3}, {"num_quantile_samples": 0}, "--num-quantile-samples: must be above 0"),
    ],
)
def test_an_evaluation_refuses_settings_that_make_no_sense(
    network: dict[str, Any], settings: dict[str, Any], told: str
) -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, **network)) | {"settings": json.dumps(settings)}
    with pytest.raises(UserError, match=f"^--model: the settings in None make no sense: {told}"):
        network_args(options.parse(["--game", "pong"], "test", ""), content)


@pytest.mark.parametrize("agent", [[], {}, None, 3, "dqn"])
def test_an_agent_that_nobody_has_is_read_from_the_shapes(agent: Any) -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, atoms=3)) | {"settings": json.dumps({"agent": agent})}
    assert network_args(options.parse(["--game", "pong"], "test", ""), content).agent == "rainbow"


def test_right_options_of_the_snapshot_s_agent_are_taken_without_its_name() -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, atoms=3))
    args = network_args(options.parse(["--game", "pong", "--atoms", "3", "--V-min", "-7"], "test", ""), content)
    assert (args.agent, args.get("atoms"), args.get("V_min")) == ("rainbow", 3, -7)
    with pytest.raises(UserError, match=r"^--atoms: None has learned with 3, not 21; leave it out$"):
        network_args(options.parse(["--game", "pong", "--atoms", "21"], "test", ""), content)


def test_settings_of_another_type_are_not_ours() -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, atoms=3)) | {
        "settings": '{"V_min": "a", "replay_frequency": true}'
    }
    args = options.parse(["--game", "pong"], "test", "")
    assert network_args(args, content).get("V_min") == -10.0
    assert network_args(args, content).replay_frequency == args.replay_frequency
