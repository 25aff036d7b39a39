"""A network from some updates ago, and the count of updates after which it is copied anew."""

import torch
from torch import Tensor, nn


class UpdateCounter:
    """Counts updates, for the target network; snapshots hold the count."""

    def __init__(self) -> None:
        self.made = 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return the count."""
        return {"made": torch.tensor(self.made)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on counting."""
        self.made = int(state["made"])

    def count(self, period: int, target: nn.Module, network: nn.Module) -> None:
        """Count an update; after every `period` of them, copy the weights of the network to the target."""
        self.made += 1
        if self.made % period == 0:
            with torch.no_grad():
                torch._foreach_copy_(list(target.parameters()), list(network.parameters()))
