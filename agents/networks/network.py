"""The base of all networks that act."""

from torch import Tensor, nn


class Network(nn.Module):
    """The part "model": what acts, and what the learner publishes for those who act elsewhere."""

    def published(self) -> dict[str, Tensor]:
        """Return copies of what `Agent.load` takes over, as tensors of float32 or bfloat16."""
        return {name: parameter.detach().clone() for name, parameter in self.named_parameters()}
