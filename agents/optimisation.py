"""One step of an agent's optimiser: the only place where gradients are computed, clipped and used.

    step = setup.optimisation(Adam(...))                     # in an agent's constructor
    norm = step([Objective(loss, weights), ...])             # in its update

Nothing here looks at the values of a tensor: a GPU records the step as a part of its graph.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.optimisers import Optimiser


class Objective(NamedTuple):
    """A loss, and the weights that learn from it and from no other loss."""

    loss: Tensor  # []
    weights: Sequence[nn.Parameter]  # whose gradients are clipped to one common norm
    multipliers: Sequence[nn.Parameter] = ()  # of the loss's own parts; their gradients are not clipped


class OptimisationStep:
    """Makes the steps of one optimiser; gradients are clipped to the norm `limit` (0: not at all).

    They are the means of the gradients of all `ranks`, so weights that begin the same stay the same.
    """

    def __init__(self, optimiser: Optimiser, limit: float, ranks: Ranks = ALONE) -> None:
        self._optimiser = optimiser
        self._limit = limit
        self._ranks = ranks
        self._trained: list[nn.Parameter] = [weight for group in optimiser.param_groups for weight in group["params"]]
        self._is_checked = False

    def __call__(self, objectives: Sequence[Objective]) -> Tensor:
        """Change all weights by the gradients of their losses; returns the norm [] of the gradients before clipping.

        A loss changes its own weights alone, even where it depends on others. A first call raises ValueError if a
        weight of the optimiser is no objective's, or two objectives', or has no gradient: it would never be trained.
        """
        for weight in self._trained:
            weight.grad = None
        for loss, weights, multipliers in objectives:  # a single loss is that of all weights: to name them takes time
            own = [*weights, *multipliers] if len(objectives) > 1 else None
            loss.backward(inputs=own)  # type: ignore[no-untyped-call]
        if not self._is_checked:
            self._check(objectives)
        self._ranks.average([weight.grad for weight in self._trained if weight.grad is not None])
        norms = [clip_gradients(objective.weights, self._limit) for objective in objectives]
        self._optimiser.take_step()
        return norms[0] if len(norms) == 1 else torch.stack(norms).square().sum().sqrt()

    def _check(self, objectives: Sequence[Objective]) -> None:
        learning = [weight for _, weights, multipliers in objectives for weight in (*weights, *multipliers)]
        if sorted(map(id, learning)) != sorted(map(id, self._trained)):
            raise ValueError(f"{len(learning)} weights have a loss each, and the optimiser trains {len(self._trained)}")
        if missing := [tuple(weight.shape) for weight in learning if weight.grad is None]:
            raise ValueError(f"a weight of shape {missing[0]} has no gradient from its loss")
        self._is_checked = True


@torch.no_grad()
def clip_gradients(weights: Sequence[nn.Parameter], limit: float) -> Tensor:
    """Scale gradients down to a common norm of `limit` if theirs is larger (0: never); returns the norm [] before.

    Does what `nn.utils.clip_grad_norm_` does for weights of one device and dtype, which it need not sort.
    """
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if limit:
        torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1))
    return norm
