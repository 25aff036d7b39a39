"""A training that begins from a snapshot's weights goes on with what these weights are of no use without."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.memory.environment_spec import Box
from rainbow_iqn_apex.programs import snapshot
from tests.agents.test_on_policy import Play, rounds
from tests.agents.test_sac import agent_of, learned

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
