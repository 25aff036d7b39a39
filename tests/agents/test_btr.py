"""BTR: what is its own beside Rainbow-IQN, and its presets."""

import numpy as np
import pytest
import torch
from torch import nn

from rainbow_iqn_apex.agents.networks.duelling import NoisyLinear
from rainbow_iqn_apex.agents.networks.trunks import SpectralConv2d
from rainbow_iqn_apex.agents.rainbow_iqn.agent import RainbowIqn
from rainbow_iqn_apex.args import Args, parse
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.rows import Arrays, Row, Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.specs import ATARI

CPU = torch.device("cpu")


def read(words: str = "") -> Args:
    return parse(["--agent", "btr", *words.split()], "test", "")


def built(args: Args) -> RainbowIqn:
    agent = make_agent(args, ATARI, CPU, learns=False, seed=2)
    assert isinstance(agent, RainbowIqn)
    return agent


def test_the_paper_s_network_has_its_parameters() -> None:
    network = built(read("--precision float32")).network
    assert network.nb_features == 64 * 6 * 6
    assert sum(isinstance(layer, SpectralConv2d) for layer in network.modules()) == 12
    noise = sum(tensor.numel() for name, tensor in network.named_parameters() if name.endswith("sigma"))
    weights = sum(tensor.numel() for tensor in network.parameters()) - noise
    assert round(weights / 1e6, 1) == 2.9, "as the paper counts them, with 18 actions"


def test_biases_begin_with_as_little_noise_as_weights() -> None:
    # Mutation: 2019's deviations, by which all values of a batch move by 0.5 together.
    layers = [layer for layer in built(read()).network.modules() if isinstance(layer, NoisyLinear)]
    assert len(layers) == 4
    for layer in layers:
        assert torch.all(layer.bias_sigma == layer.weight_sigma[0, 0])
    assert built(parse([], "test", "")).network.fcnoisy_z_v.bias_sigma.tolist() == pytest.approx([0.1])


def test_fast_samples_each_row_once_with_a_plain_network() -> None:
    args = read("--preset fast")
    assert args.batch_size == args.replay_frequency == 256
    network = built(args).network
    assert len(network.norms) == 2 and not any(isinstance(layer, SpectralConv2d) for layer in network.modules())
    assert network.nb_features == 64 * 11 * 11
    assert read("--preset fast --pool 3").get("pool") == 3


@pytest.mark.parametrize("agent", ["rainbow_iqn", "impala"])
def test_other_agents_have_no_fast_preset(agent: str) -> None:
    # Mutation: take it for paper.
    with pytest.raises(UserError, match=rf"^--preset: --agent {agent} has no settings for fast; choose cpu or paper$"):
        parse(["--preset", "fast", "--agent", agent], "test", "")


def test_noise_is_drawn_at_each_call_and_priorities_are_shares_of_the_largest() -> None:
    # Mutations: a draw every --replay-frequency calls; priorities from outputs that are not kept.
    agent = built(read("--preset cpu --noisy-std 0.1"))
    rng, seen, state = np.random.default_rng(0), [], Arrays()
    for _ in range(3):
        row = Row(rng.integers(0, 256, (84, 84), dtype=np.uint8), StepType.MID, 0.0, 1.0)
        output, state = agent.act(Rows.stack([row]), state, 10**8)
        assert output.extras == {}
        seen.append(agent.network.fcnoisy_h_v.bias_epsilon.clone())
    assert not torch.equal(seen[0], seen[1]) and not torch.equal(seen[1], seen[2])
    assert agent.initial_priorities({}).tolist() == [1.0] * agent.spec.length and agent.new_at_largest


def test_no_part_is_on_in_rainbow_iqn() -> None:
    # Bytes of runs depend on the weights' names and order, and on what is drawn.
    args = parse([], "test", "")
    agent = built(args)
    assert not agent.new_at_largest and not agent.network.norms and agent.network.nb_features == 3136
    assert not any(isinstance(layer, nn.LayerNorm) for layer in agent.network.modules())
    assert not any(args.get(name) for name in ("munchausen", "epsilon_end", "epsilon_decay", "pool", "spectral_norm"))
