"""Optimisers whose settings are those of the command line, also after a snapshot is loaded."""

from typing import Any

import torch
from torch import Tensor


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


_NOT_QUICK = ("capturable", "amsgrad", "maximize", "decoupled_weight_decay")


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
