"""Files that are no usable snapshot: each is refused in one line that says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.evaluation.settings import network_args
from tests.agents.test_published_snapshots import ACTIONS, CPU, FRAME, published, saved
from tests.ground_truth.published_network import PublishedNetwork, snapshot_of
from tests.refusals.files import CODE
from tests.specs import discrete

SETTINGS = "--history-length 3 --hidden-size 13 --quantile-embedding-dim 7 --atoms 11".split()


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


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_of_code_would_have_run(tmp_path: Path, legacy: bool) -> None:
    """Or the table of refusals shows nothing of it."""
    path = saved(tmp_path / "x.pth", CODE, legacy=legacy)
    with pytest.raises(pytest.fail.Exception, match="code of a snapshot was run"):
        torch.load(path, weights_only=False)


# --- snapshots of something else than these settings ask for ---


@pytest.mark.parametrize(
    ("more", "actions", "lines"),
    [
        ("", 6, ["--model: the snapshot chooses among 5 actions, this environment has 6"]),
        (
            "--history-length 4",
            5,
            ["--history-length: the snapshot's weights need 3 pictures (of colour: times 3), here are 4"],
        ),
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
    ("network", "settings", "told"),
    [
        ({"atoms": 3}, {"V_min": 5.0, "V_max": -5.0}, "--V-min: must be below --V-max"),
        ({"embedding": 3}, {"num_quantile_samples": 0}, "--num-quantile-samples: must be above 0"),
        ({"embedding": 3}, {"env": "procgen:coinrun", "procgen_mode": "a+b"}, "--procgen-mode: expected easy"),
    ],
)
def test_an_evaluation_refuses_settings_that_make_no_sense(
    network: dict[str, Any], settings: dict[str, Any], told: str
) -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, **network)) | {"settings": json.dumps(settings)}
    with pytest.raises(UserError, match=f"^--model: the settings in the snapshot make no sense: {told}"):
        network_args(options.parse([] if "env" in settings else ["--game", "pong"], "test", ""), content)


def test_right_options_of_the_snapshot_s_agent_are_taken_without_its_name() -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, atoms=3))
    args = network_args(options.parse(["--game", "pong", "--atoms", "3", "--V-min", "-7"], "test", ""), content)
    assert (args.agent, args.get("atoms"), args.get("V_min")) == ("rainbow", 3, -7)
    with pytest.raises(UserError, match=r"^--atoms: the snapshot has learned with 3, not 21; leave it out$"):
        network_args(options.parse(["--game", "pong", "--atoms", "21"], "test", ""), content)
