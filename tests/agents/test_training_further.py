"""A training that begins from a snapshot's weights goes on with what these weights are of no use without."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.environment_spec import Box
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.program import restore_agent
from tests.agents.test_on_policy import Play, rounds
from tests.agents.test_sac import agent_of, learned
from tests.small import save_untrained
from tests.specs import ATARI, CARTPOLE

PPO = "--agent ppo --env gymnasium:Pendulum-v1 --reference-kl-cost 0.1 --popart True --kl-limit 0.01".split()


def begin(agent: Agent, trained: Agent, path: Path, *, alone: bool = False) -> None:
    (snapshot.save_weights if alone else snapshot.save)(path / "x.pth", trained, {})
    snapshot.restore_weights(agent, snapshot.load(path / "x.pth", "--model"))


def check_moments(agent: Agent, trained: Agent) -> None:
    states = [of.parts["optimiser"].state_dict()["state"] for of in (agent, trained)]
    assert states[0]
    torch.testing.assert_close(*states, rtol=0, atol=0)


def test_the_on_policy_family_keeps_its_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutations: let the statistics begin anew, and normalise by those of one round; keep a reference without training.
    play, other = Play(PPO), Play(PPO)
    list(rounds(play, 3))
    begin(other.learner, play.learner, tmp_path)
    assert capsys.readouterr().out == "Adam goes on with the snapshot's moments\n"
    check_moments(other.learner, play.learner)
    batch = play.play()
    for each in (play, other):
        each.learner.update(batch, 1.0)
    networks = play.learner.network, other.learner.network
    assert networks[0].normaliser is not None and networks[1].normaliser is not None
    assert torch.equal(networks[0].normaliser.mean, networks[1].normaliser.mean)
    assert torch.equal(networks[0].normaliser.scale, networks[1].normaliser.scale)
    assert other.learner._reference is not None
    reference = dict(other.learner._reference.network.named_parameters())
    assert torch.equal(reference["policy.linear.weight"], networks[1].policy.linear.weight), "nothing moves at rate 0"


def test_sac_keeps_its_critics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutation: begin with other critics, which teach the policy away again.
    (trained, _), other = learned(Box(2)), agent_of(Box(2), seed=8)
    begin(other, trained, tmp_path)
    assert capsys.readouterr().out == "Adam goes on with the snapshot's moments\n"
    check_moments(other, trained)
    for module, own in ((trained.critics, other.critics), (trained.target, other.target)):
        weights = dict(module.named_parameters())
        assert all(torch.equal(weight, weights[name]) for name, weight in own.named_parameters())
    assert torch.equal(other.temperature.price(), trained.temperature.price())


def test_weights_alone_are_said_to_be_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin(agent_of(Box(2), seed=8), learned(Box(2))[0], tmp_path, alone=True)
    wanted = [f"What was learned as {name!r} begins anew" for name in ("critics", "target", "temperature")]
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [*wanted, "Adam begins anew"]


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.Adadelta])
def test_an_optimiser_of_another_package_begins_anew(
    kind: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: take its moments for Adam's or RMSProp's, whose names are among them: its next step lacks the others.
    play = Play(PPO)
    list(rounds(play, 1))
    weights = list(play.learner.network.parameters())
    optimiser = play.learner.parts["optimiser"] = kind(weights)
    optimiser.step()
    begin(play.learner, play.learner, tmp_path)
    assert capsys.readouterr().out == (f"{kind.__name__} begins anew: only moments of Adam and its kin are kept\n")
    optimiser.step()


def test_moments_of_other_weights_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play, other = Play(PPO), Play([*PPO, "--kl-limit", "0"])
    list(rounds(play, 1))
    begin(other.learner, play.learner, tmp_path)
    told = "Adam begins anew, without the snapshot's moments: they are of 14 weights, and 13 are trained\n"
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("agent", "before", "now", "lines"),
    [
        (
            "rainbow_iqn",
            "--hidden-size 16",
            "--hidden-size 24",
            ["--hidden-size: the snapshot's weights need 16, is 24"],
        ),
        ("r2d2", "--hidden-size 16", "--hidden-size 24", ["--hidden-size: the snapshot's weights need 16, is 24"]),
        ("impala", "--hidden-size 16", "--hidden-size 24", ["--hidden-size: the snapshot's weights need 16, is 24"]),
        ("pqn", "--hidden-size 16", "--hidden-size 24", ["--hidden-size: the snapshot's weights need 16, is 24"]),
        ("sac", "--hidden-size 16", "--hidden-size 24", ["--hidden-size: the snapshot's weights need 16, is 24"]),
        (
            "ppo",
            "--hidden-size 16 --architecture data-efficient",
            "--hidden-size 24 --architecture shallow --entropy-cost 0.5",
            [
                "--architecture: the snapshot's weights need data-efficient, is shallow",
                "--hidden-size: the snapshot's weights need 16, is 24",
            ],
        ),
        ("impala", "--history-length 3", "", ["--history-length: the snapshot's weights need 3 pictures (of colour"]),
        ("ppo", "--mlp-size 8 --env gymnasium:CartPole-v1", "--mlp-size 12", ["--mlp-size: the snapshot's weights ne"]),
        (
            "ppo",
            "--mlp-size 8 --env gymnasium:CartPole-v1",
            "--mlp-size 8 --env gymnasium:Acrobot-v1",
            ["--env: the snapshot's weights need gymnasium:CartPole-v1, is gymnasium:Acrobot-v1"],
        ),
    ],
)
def test_the_setting_that_does_not_fit_is_named(
    agent: str, before: str, now: str, lines: list[str], tmp_path: Path
) -> None:
    # Mutations: the first tensors' shapes; settings that make no other weights, such as a learning rate.
    words = ["--agent", agent, "--learn-start", "1", "--disable-cuda"]
    small = [] if "size" in before else ["--hidden-size", "8"]
    spec = CARTPOLE if "CartPole" in before else ATARI
    path = save_untrained(tmp_path / "x.pth", [*words, *small, *before.split()], spec)
    given = [] if "--env" in now or "CartPole" not in before else ["--env", "gymnasium:CartPole-v1"]
    args = options.parse([*words, *small, *given, *now.split(), "--model", str(path)], "", "")
    shape = (6,) if "Acrobot" in now else spec.observation.shape
    environment = spec._replace(observation=spec.observation._replace(shape=shape))
    fresh = make_agent(args, environment, torch.device("cpu"), learns=True, seed=1)
    with pytest.raises(UserError) as caught:
        restore_agent(args, fresh, None)
    told = str(caught.value).splitlines()
    assert len(told) == len(lines) and all(line.startswith(start) for line, start in zip(told, lines, strict=True)), (
        told
    )
