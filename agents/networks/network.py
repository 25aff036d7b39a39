"""The base of all networks that act, and what of a network acts."""

from torch import Tensor, nn


class Network(nn.Module):
    """The part "model": what acts, and what the learner publishes for those who act elsewhere."""

    def published(self) -> dict[str, Tensor]:
        """Return copies of what `Policy.load` takes over."""
        return {name: tensor.detach().clone() for name, tensor in acting_tensors(self).items()}


def acting_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that decide how a network acts, by name: its parameters, and the buffers of its state.

    A module leaves out the buffers that are named in its `OWN_BUFFERS`: noise that each process draws itself, say.
    """
    found: dict[str, Tensor] = dict(network.named_parameters())
    saved = network.state_dict().keys()
    for path, module in network.named_modules():
        own: frozenset[str] = getattr(module, "OWN_BUFFERS", frozenset())
        buffers = {
            f"{path}.{name}".lstrip("."): tensor
            for name, tensor in module.named_buffers(recurse=False)
            if name not in own
        }
        found |= {name: tensor for name, tensor in buffers.items() if name in saved}
    return found
