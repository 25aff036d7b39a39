"""Optimisers, and one step of them: the only place where gradients are computed, clipped and used.

    step = setup.optimisation(Adam(...))                     # in an agent's constructor
    norm = step([Objective(loss, weights), ...])             # in its update

Nothing here looks at the values of a tensor: a GPU records the step as a part of its graph.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks

_NOT_QUICK = ("capturable", "amsgrad", "maximize", "decoupled_weight_decay")  # options of Adam


class Optimiser(torch.optim.Optimizer):
    """Makes steps, and keeps its own settings when a state is loaded."""

    def take_step(self) -> None:
        """Make a step."""
        self.step()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add weights, and remember the learning rate with which they begin."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group["initial_lr"] = float(group["lr"])

    def anneal(self, progress: float | Tensor) -> None:
        """Set the learning rate of the next step, which falls linearly to 0 as `progress` goes from 0 to 1.

        Within a recorded graph the rate and the progress must be tensors of the graph's device.
        """
        for group in self.param_groups:
            rate = group["initial_lr"] * (1 - progress)
            if isinstance(group["lr"], Tensor):
                group["lr"].copy_(torch.as_tensor(rate))
            else:
                group["lr"] = float(rate)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the moments alone, onto the device where these settings want them."""
        own = [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]
        given = state_dict["param_groups"]  # PyTorch refuses another number of groups, in words
        groups = [*(group | kept for group, kept in zip(given, own, strict=False)), *given[len(own) :]]
        super().load_state_dict(state_dict | {"param_groups": groups})


class Adam(Optimiser, torch.optim.Adam):
    """Adam (Kingma and Ba 2015, arXiv 1412.6980)."""

    _warned_capturable_if_run_uncaptured = True  # updates before a CUDA graph is recorded are not a mistake

    @torch.no_grad()
    def take_step(self) -> None:
        """Make the step that `step` makes, to the same bits; a `fused` one without what PyTorch does beside it.

        PyTorch sorts, checks and records at every step; with small weights this takes longer than the step itself.
        """
        if not self.defaults["fused"] or any(group.get(name) for group in self.param_groups for name in _NOT_QUICK):
            self.step()
            return
        learned = [[p for p in group["params"] if p.grad is not None] for group in self.param_groups]
        if any(parameter not in self.state for parameters in learned for parameter in parameters):
            self.step()  # the first one, which makes the state
            return
        for group, parameters in zip(self.param_groups, learned, strict=True):
            states = [self.state[parameter] for parameter in parameters]
            steps = [state["step"] for state in states]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                parameters,
                [parameter.grad for parameter in parameters],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                steps,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )


class RAdam(Optimiser, torch.optim.RAdam):
    """RAdam: Adam whose first steps are rectified (Liu et al. 2020, arXiv 1908.03265)."""


class RMSProp(Adam):
    """RMSProp whose mean of squares is corrected for its beginning, as Adam's; epsilon stands beside the root.

    Without the correction the first steps are 1 / sqrt(1 - decay) times as long, 10 times, which switches ReLUs off for
    good. The learning rate is a tensor, which graphs can read.
    """

    def __init__(
        self, parameters: list[torch.nn.Parameter], lr: float, eps: float, decay: float, device: torch.device
    ) -> None:
        rate = torch.tensor(lr, device=device)
        on_gpu = device.type != "cpu"
        super().__init__(parameters, lr=rate, betas=(0.0, decay), eps=eps, fused=True, capturable=on_gpu)


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
