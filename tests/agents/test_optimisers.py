"""Steps of Adam that are made in less time than PyTorch's: they are the same. Steps of RMSProp, against slow ones."""

import copy

import numpy as np
import torch
from torch import nn

from rainbow_iqn_apex.agents.optimisation import Adam, RMSProp

SHAPES = [(5, 3), (7,), (), (2, 3, 4)]


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def give_gradients(found: list[nn.Parameter], seed: int, left_out: int | None) -> None:
    """Give all parameters gradients of all sizes but one."""
    generator = torch.Generator().manual_seed(seed)
    for place, parameter in enumerate(found):
        gradient = torch.randn(parameter.shape, generator=generator) * 10.0 ** (seed % 4 - 2)
        parameter.grad = None if place == left_out else gradient


def play(*, is_quick: bool) -> tuple[list[nn.Parameter], Adam]:
    """Make steps of which the first two have no gradient of one parameter; in the middle a state is loaded."""
    found = parameters()
    optimiser = Adam(found, lr=0.1, eps=1e-5, weight_decay=0.1, fused=True)
    for seed in range(12):
        optimiser.anneal(seed / 12)
        give_gradients(found, seed, 1 if seed < 2 else 2 if seed == 7 else None)
        optimiser.take_step() if is_quick else optimiser.step()
        if seed == 5:
            optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    return found, optimiser


def test_a_quick_step_is_that_of_pytorch() -> None:
    # Mutations: leave out the count of steps, or the decay; take the betas in the other order.
    (quick, optimiser), (slow, other) = play(is_quick=True), play(is_quick=False)
    torch.testing.assert_close(quick, slow, rtol=0, atol=0)
    torch.testing.assert_close([*optimiser.state.values()], [*other.state.values()], rtol=0, atol=0)


RATE, EPSILON, DECAY, STEPS = 0.1, 1e-3, 0.9, 6
CPU = torch.device("cpu")


def rms_prop(found: list[nn.Parameter]) -> RMSProp:
    return RMSProp(found, RATE, EPSILON, DECAY, CPU)


def slow_rms_prop(found: list[nn.Parameter]) -> list[np.ndarray]:
    weights = [parameter.detach().double().numpy().copy() for parameter in found]
    squares = [np.zeros_like(weight) for weight in weights]
    for step in range(1, STEPS + 1):
        give_gradients(found, step, None)
        for place, parameter in enumerate(found):
            assert parameter.grad is not None
            gradient = parameter.grad.double().numpy()
            squares[place] = DECAY * squares[place] + (1 - DECAY) * gradient**2
            mean = squares[place] / (1 - DECAY**step)
            weights[place] = weights[place] - RATE * gradient / (np.sqrt(mean) + EPSILON)
    return weights


def test_rms_prop_is_corrected_for_its_beginning() -> None:
    # Mutations: PyTorch's RMSprop, whose first steps are 1 / sqrt(1 - decay) times as long; a momentum; no epsilon.
    found = parameters()
    optimiser = rms_prop(found)
    for step in range(1, STEPS + 1):
        give_gradients(found, step, None)
        optimiser.take_step()
    for weight, wanted in zip(found, slow_rms_prop(parameters()), strict=True):
        np.testing.assert_allclose(weight.detach().numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_what_is_loaded_are_the_moments_alone() -> None:
    # Mutation: take over the settings that were saved.
    before, optimiser = rms_prop(parameters()), rms_prop(parameters())
    own = {name: value for name, value in optimiser.param_groups[0].items() if name != "params"}
    before.param_groups[0].update(lr=9.0, initial_lr=9.0, eps=0.5, betas=(0.5, 0.5), weight_decay=0.5, maximize=True)
    optimiser.load_state_dict(before.state_dict())
    assert {name: value for name, value in optimiser.param_groups[0].items() if name != "params"} == own
