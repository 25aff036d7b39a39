"""Prices of quantities: fixed ones, and multipliers that are learned until a bound holds."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.agents.ops.multipliers import LEAST, Constraint, PositiveNumber


def trained(constraint: Constraint, steps: int, rate: float, multiplier_rate: float) -> Tensor:
    """Return probabilities [A] of a policy that maximises rewards of 1, 0, 0, 0 under a bound of its entropy."""
    reward = torch.tensor([1.0, 0.0, 0.0, 0.0])
    logits = torch.zeros(4, requires_grad=True)
    optimiser = torch.optim.Adam(
        [{"params": [logits], "lr": rate}, {"params": constraint.parameters(), "lr": multiplier_rate}]
    )
    for _ in range(steps):
        log_pi = functional.log_softmax(logits, 0)
        loss = constraint((log_pi.exp() * log_pi).sum()) - (log_pi.exp() * reward).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return logits.detach().softmax(0)


@pytest.mark.slow
@pytest.mark.parametrize("start", [1e-3, 10.0])
def test_a_constraint_converges_to_its_bound(start: float) -> None:
    constraint = Constraint(-0.9, start)
    probabilities = trained(constraint, 3000, 0.05, 0.0005)
    entropy = -float((probabilities * probabilities.log()).sum())
    assert entropy == pytest.approx(0.9, abs=0.01)
    # At the optimum π is proportional to exp(reward / α): the price is the slope of the reward over the entropy.
    price = 1 / float(probabilities[0].log() - probabilities[1].log())
    assert constraint.price().item() == pytest.approx(price, rel=0.05)
    # Mutation: the sign of the excess; the entropy then ends at 0 or log 4


def test_a_bound_that_holds_anyway_costs_almost_nothing() -> None:
    constraint = Constraint(0.0, 1.0)  # no entropy is below 0
    probabilities = trained(constraint, 1000, 0.05, 0.05)
    assert float(probabilities[0]) > 0.99
    assert constraint.price() < 1e-6


def test_a_multiplier_of_almost_0_comes_back_at_once() -> None:
    constraint = Constraint(1.0, 1.0)
    optimiser = torch.optim.SGD(constraint.parameters(), lr=0.1)

    def step(quantity: float) -> None:
        optimiser.zero_grad()
        constraint(torch.tensor(quantity)).backward()
        optimiser.step()

    for _ in range(1000):
        step(0.0)
    assert 0 < constraint.price() <= LEAST
    for _ in range(30):
        step(2.0)
    # Mutation: without the clamp the multiplier is exp(-1000) by then and stays 0
    assert constraint.price() > 0.1


def test_what_is_charged_does_not_move_the_price_and_the_price_does_not_charge() -> None:
    constraint = Constraint(0.5, 0.2, speed=2.0)
    quantity = torch.tensor(0.8, requires_grad=True)
    constraint(quantity).backward()
    assert quantity.grad is not None and quantity.grad.item() == pytest.approx(0.2)
    exponent = constraint.multiplier.exponent
    assert exponent.grad is not None and exponent.grad.item() == pytest.approx(-0.3)


def test_a_positive_number_begins_where_it_shall_and_is_restored() -> None:
    number = PositiveNumber(0.25, 10)
    assert number().item() == pytest.approx(0.25)
    assert number.exponent.item() == pytest.approx(math.log(0.25) / 10)
    assert PositiveNumber(0, 10)().item() == pytest.approx(LEAST)
    other = PositiveNumber(3, 10)
    other.load_state_dict(number.state_dict())
    assert other() == number()
