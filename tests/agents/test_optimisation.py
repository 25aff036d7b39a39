"""The one optimisation step: each loss changes its own weights, and no weight is left out unnoticed."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from rainbow_iqn_apex.agents.optimisation import Adam, Objective, OptimisationStep, Optimiser, RMSProp, clip_gradients

CPU = torch.device("cpu")
OPTIMISERS: dict[str, Callable[[list[nn.Parameter]], Optimiser]] = {
    "fused Adam": lambda weights: Adam(weights, lr=0.1, fused=True),
    "Adam": lambda weights: Adam(weights, lr=0.1),
    "RMSProp": lambda weights: RMSProp(weights, 0.1, 0.01, 0.99, CPU),
}


class ActorCritic:
    """An actor whose loss goes through its critic, and a price of that loss, as in SAC."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.actor, self.critic, self.price = nn.Linear(5, 3), nn.Linear(3, 1), nn.Parameter(torch.ones(()))
        self.input = torch.randn(4, 5)

    @property
    def trained(self) -> list[nn.Parameter]:
        return [*self.actor.parameters(), self.price, *self.critic.parameters()]

    def objectives(self) -> list[Objective]:
        action = self.actor(self.input).tanh()  # [4, 3]
        actor_loss = -self.critic(action).mean() * 30 + self.price * 7
        critic_loss = (self.critic(action.detach()) - 5).square().mean()
        return [
            Objective(actor_loss, list(self.actor.parameters()), [self.price]),
            Objective(critic_loss, list(self.critic.parameters())),
        ]


@pytest.mark.parametrize("limit", [0.0, 0.5, 1000.0])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_each_loss_changes_its_own_weights_and_multipliers_are_not_clipped(name: str, limit: float) -> None:
    # Mutations: leave out `inputs`; clip multipliers, too; clip all weights to one norm; keep the last gradients; scale
    # gradients up to the limit, too.
    ours, plain = ActorCritic(), ActorCritic()
    step, optimiser = OptimisationStep(OPTIMISERS[name](ours.trained), limit), OPTIMISERS[name](plain.trained)
    for _ in range(3):
        norm = step(ours.objectives())
        norms = []
        for weight in plain.trained:
            weight.grad = None
        for loss, weights, multipliers in plain.objectives():
            own = [*weights, *multipliers]
            for weight, gradient in zip(own, torch.autograd.grad(loss, own), strict=True):
                weight.grad = gradient
            norms.append(nn.utils.clip_grad_norm_(weights, limit or torch.inf))
        optimiser.step()
        assert norm.item() == pytest.approx(float(torch.stack(norms).norm()))
        assert [weight.tolist() for weight in ours.trained] == [weight.tolist() for weight in plain.trained]


def test_a_weight_that_would_not_be_trained_is_refused() -> None:
    # Mutation: leave out the check.
    both = ActorCritic()
    step = OptimisationStep(Adam(both.trained, lr=0.1), 0.0)
    with pytest.raises(ValueError, match="the optimiser trains 5"):
        step(both.objectives()[:1])  # the critic's weights are left out
    actor, critic = both.objectives()
    with pytest.raises(ValueError, match="the optimiser trains 5"):
        step([actor, critic._replace(multipliers=actor.multipliers)])
    actor, critic = both.objectives()
    with pytest.raises(ValueError, match=r"shape \(\) has no gradient"):
        step([actor._replace(loss=-both.critic(both.actor(both.input)).mean()), critic])


def test_a_weight_without_a_gradient_is_not_clipped() -> None:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    weights[0].grad = torch.tensor([3.0, 4.0])
    assert clip_gradients(weights, 0.5) == 5 and weights[1].grad is None
    torch.testing.assert_close(weights[0].grad, torch.tensor([0.3, 0.4]))
