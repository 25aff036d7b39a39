"""The last layer of a policy."""

import math

import pytest
import torch

from rainbow_iqn_apex.agents.distributions import PolicySpec
from rainbow_iqn_apex.agents.networks.core import HIGHEST_LOG_STD, LOWEST_LOG_STD, PolicyHead
from rainbow_iqn_apex.agents.networks.trunks import orthogonal
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, MultiDiscrete

T, B, F, SIZE = 3, 5, 11, 7


@pytest.mark.parametrize("action", [Discrete(4), MultiDiscrete((2, 6, 3)), Box(SIZE)])
@pytest.mark.parametrize("box", ["tanh-normal", "clipped-normal"])
@pytest.mark.parametrize("state_dependent_std", [False, True])
def test_it_gives_parameters_of_its_distribution(action: ActionSpec, box: str, state_dependent_std: bool) -> None:
    spec = PolicySpec(action, box)
    parameters = PolicyHead(F, spec, state_dependent_std=state_dependent_std)(torch.randn(T, B, F))
    assert parameters.shape == (T, B, spec.nb_parameters)
    assert spec.distribution(parameters).entropy(torch.Generator()).isfinite().all()


def test_a_deviation_beside_the_network_is_the_same_everywhere_and_learns() -> None:
    head = PolicyHead(F, PolicySpec(Box(SIZE)))
    assert {name: tuple(p.shape) for name, p in head.named_parameters()} == {
        "linear.weight": (SIZE, F), "linear.bias": (SIZE,), "log_std": (SIZE,),
    }  # fmt: skip
    parameters = head(torch.randn(T, B, F))
    assert parameters[..., SIZE:].count_nonzero() == 0  # a deviation of 1
    parameters[..., SIZE:].sum().backward()
    assert head.log_std is not None and head.log_std.grad is not None
    assert head.log_std.grad.tolist() == [T * B] * SIZE


def test_a_deviation_of_the_network_stays_within_its_bounds_and_can_come_back() -> None:
    head = PolicyHead(1, PolicySpec(Box(1)), state_dependent_std=True)
    with torch.no_grad():
        head.linear.weight.fill_(1)
        head.linear.bias.zero_()
    bounded = head(torch.tensor([[-1e6], [0.0], [4.0], [1e6]]))[:, 1]
    log_std = bounded.detach()
    assert log_std[[0, 3]].tolist() == [LOWEST_LOG_STD, HIGHEST_LOG_STD]
    assert float(log_std[1]) == pytest.approx((LOWEST_LOG_STD + HIGHEST_LOG_STD) / 2)
    bounded[2].backward()
    assert head.linear.bias.grad is not None and head.linear.bias.grad[1] > 0  # Mutation: clamp(-5, 2) of the output


def test_its_weight_is_orthogonal_where_a_gain_is_given() -> None:
    head = PolicyHead(F, PolicySpec(Discrete(4)))
    orthogonal(head, 0.01)
    torch.testing.assert_close(head.linear.weight @ head.linear.weight.T, 1e-4 * torch.eye(4), rtol=0, atol=1e-8)
    assert head.linear.bias.count_nonzero() == 0
    entropy = PolicySpec(Discrete(4)).distribution(head(torch.randn(B, F))).entropy(torch.Generator())
    torch.testing.assert_close(entropy, torch.full((B,), math.log(4)), rtol=0, atol=1e-2)
