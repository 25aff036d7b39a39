"""Spectral normalisation against a slow transcription, and where its vectors go."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.networks.trunks import SpectralConv2d
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.programs.agent import make_agent
from tests.small import TINY
from tests.specs import discrete

Step = Callable[[Array, Array], tuple[Array, Array]]
CHANNELS = 5


def step(matrix: Array, left: Array) -> tuple[Array, Array]:
    """One step of the power iteration: u and v."""
    right = matrix.T @ left
    right = right / np.sqrt((right**2).sum())
    left = matrix @ right
    return left / np.sqrt((left**2).sum()), right


def layer_of(seed: int) -> SpectralConv2d:
    torch.manual_seed(seed)
    return SpectralConv2d(CHANNELS)


def check(one: Step) -> None:
    layer = layer_of(1)
    matrix, left = layer.weight.detach().flatten(1).double().numpy(), layer.left.double().numpy()
    x = torch.randn(2, CHANNELS, 6, 7)
    for _ in range(3):
        left, right = one(matrix, left)
        found = layer(x)
        np.testing.assert_allclose(layer.left, left, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.right, right, rtol=1e-4, atol=1e-5)
        divided = torch.from_numpy(matrix / (left @ matrix @ right)).float().view_as(layer.weight)
        torch.testing.assert_close(found, functional.conv2d(x, divided, layer.bias, padding=1), rtol=1e-4, atol=1e-5)


MUTANTS: dict[str, Step] = {
    "two steps": lambda matrix, left: step(matrix, step(matrix, left)[0]),
    "no step of the left vector": lambda matrix, left: (left, step(matrix, left)[1]),
    "not normalised": lambda matrix, left: (matrix @ (matrix.T @ left), matrix.T @ left),
}


def test_a_forward_pass_makes_one_step() -> None:
    check(step)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_check_sees(name: str) -> None:
    with pytest.raises(AssertionError):
        check(MUTANTS[name])


def test_the_first_estimate_is_near_the_largest_singular_value() -> None:
    # Mutations: begin with a random u, and a σ of three quarters, which a target network keeps until it is renewed;
    # five steps.
    torch.manual_seed(64)
    layer = SpectralConv2d(64)
    matrix = layer.weight.detach().flatten(1)
    assert layer.left @ matrix @ layer.right > 0.955 * torch.linalg.matrix_norm(matrix, 2)


def test_without_gradient_nothing_moves() -> None:
    layer, x = layer_of(3), torch.randn(1, CHANNELS, 4, 4)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    with torch.inference_mode():
        layer(x)
    layer.requires_grad_(False)(x)
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_vectors_travel_with_weights_and_to_the_target_network(precision: str) -> None:
    # Mutation: copy parameters alone to the target network.
    words = f"--architecture deep-2 --pool 2 --spectral-norm True --target-update 4 --precision {precision}"
    args = options.parse([*words.split(), *TINY, "--history-length", "2"], "test", "")
    environment = discrete((24, 20), "uint8", 4)
    learner, actor = (
        make_agent(args, environment, torch.device("cpu"), learns=learns, seed=int(learns)) for learns in (True, False)
    )
    assert isinstance(learner, QLearningAgent) and isinstance(actor, QLearningAgent)
    obs = torch.randint(256, (3, 2, 24, 20), dtype=torch.uint8)
    before = learner.network.features(obs).float()  # makes a step of the iteration
    vectors = {name: buffer for name, buffer in learner.network.named_buffers() if name.endswith((".left", ".right"))}
    assert len(vectors) == 24
    target = dict(learner.target.named_buffers())
    assert not any(torch.equal(target[name], buffer) for name, buffer in vectors.items() if name.endswith("left"))
    learner.count_update(4)
    actor.load(learner.network.published(), 1)
    for network in (learner.target, actor.network):
        found = dict(network.named_buffers())
        assert all(torch.equal(found[name], buffer) for name, buffer in vectors.items())
        with torch.no_grad():
            torch.testing.assert_close(network.features(obs).float(), before, rtol=0.05, atol=0.05)


def test_a_network_without_residual_convolutions_is_refused() -> None:
    for agent in ("rainbow_iqn", "rainbow"):
        with pytest.raises(UserError, match=r"^--spectral-norm: --architecture canonical has no .* choose deep,"):
            options.parse(["--agent", agent, "--spectral-norm", "True"], "test", "")


def test_the_gradient_takes_the_vectors_for_constants() -> None:
    layer, x = layer_of(4), torch.randn(1, CHANNELS, 4, 4)
    layer(x).square().sum().backward()
    left, right = layer.left.clone(), layer.right.clone()
    weight = layer.weight.detach().clone().requires_grad_()
    assert layer.bias is not None
    divided = weight / (left @ (weight.flatten(1) @ right))
    functional.conv2d(x, divided, layer.bias.detach(), padding=1).square().sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(layer.weight.grad, weight.grad)
