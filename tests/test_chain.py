"""The whole system on a chain whose return distributions are known: learner and actor, two processes, a real Redis."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.devices import computes_in_bfloat16
from rainbow_iqn_apex.agents.networks.duelling import CategoricalNetwork, QuantileNetwork
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.saber.results.run_record import read_record
from tests.chain.environment import GAMBLE, RETURNS, SAFE, START, ChainEnvironment, one_hot
from tests.small import CHAIN
from tests.system import LEARNER, Run


def run_system(port: int, name: str, folder: Path, *more: str) -> options.Args:
    with Run(port, name, folder, [*CHAIN, *more]) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        # A processor without bfloat16 takes three minutes for what others do in one.
        assert (learner.finish(400), actor.finish(30)) == (0, 0), run.last_words()
        return options.parse(run.options, "test", "")


def trained_agent(args: options.Args) -> QLearningAgent:
    """The agent of the last snapshot, without noise."""
    saved = snapshot.load(snapshot.last_models(args.path_to_results, args.task)[0], "test")
    assert saved["T_learner"] >= args.T_max
    environment = ChainEnvironment(0)
    device = torch.device("cpu")
    agent = make_agent(args, environment.spec, device, learns=False, seed=0)
    assert isinstance(agent, QLearningAgent)
    weights = {k: torch.zeros_like(v) if "epsilon" in k else v for k, v in saved["model_state_dict"].items()}
    agent.network.load_state_dict(weights)
    return agent


def stacks(*states: int) -> torch.Tensor:
    """[1, stack, 5]"""
    return torch.from_numpy(np.stack([one_hot(s) if s >= 0 else np.zeros(5, np.uint8) for s in states]))[None]


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_rainbow_iqn_recovers_quantiles(precision: str, redis_port: int, run_name: str, tmp_path: Path) -> None:
    agent = trained_agent(run_system(redis_port, run_name, tmp_path, "--precision", precision))
    network = agent.network
    assert isinstance(network, QuantileNetwork)
    with torch.no_grad():
        taus = torch.linspace(0.02, 0.98, 97)[:, None]
        at_start = network(stacks(-1, START), taus, network.weights())[:, 0]  # [97, A]
        assert at_start.mean(0).argmax() == 0, "the gamble is best on average"
        middles = torch.tensor([0.125, 0.375, 0.625, 0.875])[:, None]  # of the steps of the true quantile function
        gamble = network(stacks(-1, START), middles, network.weights())[:, 0, 0]
        last = network(stacks(GAMBLE, 2), torch.tensor([[0.25], [0.75]]), network.weights())[:, 0].amax(1)
    np.testing.assert_allclose(gamble, RETURNS[0], atol=0.4)
    np.testing.assert_allclose(last, [0, 1], atol=0.3)
    np.testing.assert_allclose(at_start[:, 1], RETURNS[1][0], atol=0.3)
    np.testing.assert_allclose(at_start[:, 2], RETURNS[2][0], atol=0.3)
    assert_reports(tmp_path, precision)


@pytest.mark.redis
@pytest.mark.slow
def test_rainbow_recovers_atom_masses(redis_port: int, run_name: str, tmp_path: Path) -> None:
    args = run_system(redis_port, run_name, tmp_path, "--rainbow-only", "1")
    agent = trained_agent(args)
    network = agent.network
    assert isinstance(network, CategoricalNetwork)
    with torch.no_grad():
        masses = network(stacks(-1, START), network.weights()).exp()[0]  # [A, atoms]
        safe = network(stacks(START, SAFE), network.weights()).exp()[0]
    atoms = np.linspace(args.get("V_min"), args.get("V_max"), args.get("atoms"))
    assert (masses.numpy() @ atoms).argmax() == 0
    for action, returns in RETURNS.items():
        truth = np.isin(atoms, returns) / len(returns)
        assert 0.5 * np.abs(masses[action].numpy() - truth).sum() < 0.12, f"total variation at action {action}"
    assert safe[:, 3].min() > 0.9, "after the safe step nothing more comes"
    assert_reports(tmp_path, "bfloat16" if computes_in_bfloat16(torch.device("cpu")) else "float32")


def assert_reports(folder: Path, precision: str) -> None:
    lines = (folder / "chain.csv").read_text().splitlines()
    scores = [float(line.split(",")[7]) for line in lines[1:]]
    assert set(scores) <= {-1.0, 0.0, 1.0, 3.0, 4.0}, "scores are raw and belong to one episode each"
    assert np.mean(scores[-300:]) > 1.2, "the trained policy gambles"
    assert (folder / "Reward_chain.html").stat().st_size > 100_000
    record = read_record(folder / "chain.json")
    assert record
    settings = record.starts[0].settings
    assert settings["T_max"] == record.reached, "a finished run has made all its steps"
    assert (settings["precision"], settings["device"]) == (precision, "cpu"), "what was computed with, not “auto”"
