"""`--layer-norm`: each stream's hidden layer is normalised by itself, before its ReLU."""

from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.duelling import CategoricalNetwork, NetworkSpec, QuantileNetwork, Weights
from rainbow_iqn_apex.agents.networks.encoder import EncoderSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array

B, N, H, A = 5, 4, 7, 3
FIELD = Field((6,), "uint8")


Network = TypeVar("Network", QuantileNetwork, CategoricalNetwork)


def made(kind: type[Network], numbers: int, precision: torch.dtype = torch.float32) -> Network:
    """Make a network with noise, whose norms have scales and shifts that differ."""
    network = kind(NetworkSpec(EncoderSpec(FIELD, 2, "canonical", H, precision), A, 0.5, layer_norm=True), numbers)
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.norms.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    network.draw_noise(draw)
    return network


def slow_hidden(inputs: Array, weights: Weights, network: QuantileNetwork | CategoricalNetwork) -> list[Array]:
    """The hidden units of both streams [M, H], a row at a time: (x - mean) / sqrt(variance + 1e-5), scale and shift."""
    linear = inputs @ weights.hidden_weight.double().numpy().T + weights.hidden_bias.double().numpy()
    streams = []
    for part, norm in zip((linear[:, :H], linear[:, H:]), network.norms, strict=True):
        scale, shift = (parameter.detach().double().numpy() for parameter in norm.parameters())
        rows = [(row - row.mean()) / np.sqrt(((row - row.mean()) ** 2).mean() + 1e-5) for row in part]
        streams.append(np.maximum(np.stack(rows) * scale + shift, 0))
    return streams


def slow_duel(hidden: list[Array], weights: Weights, outputs: int) -> Array:
    value = hidden[0] @ weights.value_weight.double().numpy().T + weights.value_bias.double().numpy()
    advantage = hidden[1] @ weights.advantage_weight.double().numpy().T + weights.advantage_bias.double().numpy()
    advantage = advantage.reshape(-1, A, outputs)
    return np.asarray(value[:, None, :] + advantage - advantage.mean(1, keepdims=True))


def stacks() -> Tensor:
    return torch.randint(256, (B, 2, 6), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@torch.no_grad()
def test_quantiles_equal_a_slow_transcription() -> None:
    # Mutations: one norm over both streams; the ReLU first; the norms exchanged; no norm in `best_actions`.
    network, obs = made(QuantileNetwork, 8), stacks()
    weights, taus = network.weights(), torch.rand(N, B, generator=torch.Generator().manual_seed(3))
    cosines = np.cos(taus.double().numpy().reshape(-1, 1) * np.pi * np.arange(1, 9))
    weight, bias = (part.double().numpy() for part in (network.iqn_fc.weight, network.iqn_fc.bias))
    features = network.features(obs).double().numpy()
    modulated = np.maximum(cosines @ weight.T + bias, 0) * np.tile(features, (N, 1))
    expected = slow_duel(slow_hidden(modulated, weights, network), weights, 1).reshape(N, B, A)
    found = network(obs, taus, weights)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(network.best_actions(obs, taus, weights), found.mean(0).argmax(1))


@torch.no_grad()
def test_atoms_equal_a_slow_transcription() -> None:
    network, obs = made(CategoricalNetwork, 5), stacks()
    weights = network.weights()
    logits = slow_duel(slow_hidden(network.features(obs).double().numpy(), weights, network), weights, 5)
    expected = logits - np.log(np.exp(logits).sum(2, keepdims=True))
    np.testing.assert_allclose(network(obs, weights).numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_gradients_reach_the_norms_and_actors_get_them_whole(precision: torch.dtype) -> None:
    # Mutation: publish the norms in bfloat16.
    network = made(QuantileNetwork, 8, precision)
    network(stacks(), torch.rand(N, B), network.weights()).square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.norms.parameters())
    published = network.published()
    names = [name for name in published if name.startswith("norms.")]
    assert len(names) == 4 and all(published[name].dtype == torch.float32 for name in names)
