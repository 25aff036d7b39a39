"""The networks: initial values, noise, and what bfloat16 leaves of values and gradients."""

import math

import pytest
import torch

from rainbow_iqn_apex.agents.networks.duelling import (
    PUBLISHED,
    DuellingNetwork,
    NetworkSpec,
    NoisyLinear,
    QuantileNetwork,
)
from rainbow_iqn_apex.agents.networks.encoder import EncoderSpec
from rainbow_iqn_apex.memory.environment_spec import Field

FRAME, VECTOR = Field((84, 84), "uint8"), Field((5,), "uint8")


@pytest.mark.parametrize(("quiet", "count"), [(False, 20), (True, 300)])
def test_noisy_layers_start_as_the_interface_says(quiet: bool, count: int) -> None:
    layer = NoisyLinear(300, 20, 0.1, quiet_biases=quiet)
    assert torch.all(layer.weight_sigma == torch.tensor(0.1 / math.sqrt(300)))
    assert torch.all(layer.bias_sigma == torch.tensor(0.1 / math.sqrt(count)))
    for parameter in (layer.weight_mu, layer.bias_mu):
        mu = parameter.detach()
        assert mu.abs().max() <= 1 / math.sqrt(300)
        assert mu.std() == pytest.approx(1 / math.sqrt(900), rel=0.5), "uniform"


def test_without_deviation_a_network_is_plain() -> None:
    # Mutations: draw all the same; learn the deviations.
    plain, noisy = (
        DuellingNetwork(NetworkSpec(EncoderSpec(VECTOR, 2, "canonical", 11), 3, std), outputs=4) for std in (0.0, 0.1)
    )
    noisy.load_state_dict(plain.state_dict())  # its deviations are 0 now
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    plain.draw_noise(generator)
    assert torch.equal(generator.get_state(), state)
    noisy.draw_noise(generator)
    for ours, theirs in zip(plain.weights(), noisy.weights(), strict=True):
        assert torch.equal(ours, theirs)
    fixed = {name for name, weight in plain.named_parameters() if not weight.requires_grad}
    assert fixed == {name for name, _ in plain.named_parameters() if name.endswith("sigma")} and len(fixed) == 8


def gradient_of(network: torch.nn.Module) -> torch.Tensor:
    parts = []
    for parameter in network.parameters():
        assert parameter.grad is not None
        parts.append(parameter.grad.flatten())
    return torch.cat(parts)


@pytest.mark.parametrize("observation", [FRAME, VECTOR])
@pytest.mark.parametrize("architecture", PUBLISHED)
def test_bfloat16_gives_nearly_the_same_values_and_gradients(architecture: str, observation: Field) -> None:
    torch.manual_seed(0)
    exact = QuantileNetwork(NetworkSpec(EncoderSpec(observation, 4, architecture, 64), 18, 0.5), 16)
    coarse = QuantileNetwork(NetworkSpec(EncoderSpec(observation, 4, architecture, 64, torch.bfloat16), 18, 0.5), 16)
    coarse.load_state_dict(exact.state_dict())
    obs, taus = torch.randint(0, 256, (8, 4, *observation.shape), dtype=torch.uint8), torch.rand(3, 8)
    gradients = []
    for network in (exact, coarse):
        network.draw_noise(torch.Generator().manual_seed(0))
        quantiles = network(obs, taus, network.weights())
        assert quantiles.dtype == torch.float32
        quantiles.square().sum().backward()
        gradients.append(gradient_of(network))
        gradients.append(quantiles.detach().flatten())
    for wanted, got in zip(gradients[:2], gradients[2:], strict=True):
        assert not torch.equal(wanted, got), "the products are made in bfloat16"
        assert (wanted - got).norm() < 0.02 * wanted.norm()
