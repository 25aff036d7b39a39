"""Steps of Adam that are made in less time than PyTorch's: they are the same."""

import copy

import torch
from torch import nn

from rainbow_iqn_apex.agents.optimisers import Adam

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
