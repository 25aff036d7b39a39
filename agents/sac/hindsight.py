"""How SAC learns from goals that were reached later in an episode (Andrychowicz et al. 2017, arXiv 1707.01495)."""

import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.hindsight import DISCOUNT, GOAL, REWARD


def with_other_goals(batch: Batch, desired: slice, probability: float, generator: torch.Generator) -> Batch:
    """Return a batch of transitions, of which so large a share has another goal, with its reward and discount.

    Letters: B batch, k goals that each row was given, of G numbers, N numbers of an observation.

    Args:
        batch: windows of two rows, whose observations are [2, B, N].
        desired: where in an observation the desired goal lies.
        probability: that a transition gets another goal, one of its k, all alike.
        generator: on the batch's device.
    """
    goals = batch.rows[GOAL][0]  # [B, k, G]
    B, k, _ = goals.shape
    is_other = torch.rand(B, generator=generator, device=goals.device) < probability
    chosen = torch.randint(k, (B,), generator=generator, device=goals.device)
    columns = torch.arange(B, device=goals.device)
    obs = batch.obs.clone()  # [2, B, N]
    obs[..., desired] = torch.where(is_other.unsqueeze(1), goals[columns, chosen], obs[..., desired])

    def arriving(own: Tensor, other: Tensor) -> Tensor:
        """Return [2, B] with the next row's numbers [B], of which some become those under another goal."""
        return torch.stack((own[0], torch.where(is_other, other[columns, chosen], own[1])))

    changed = {
        "obs": obs,
        "reward": arriving(batch.reward, batch.rows[REWARD][0]),
        "discount": arriving(batch.discount, batch.rows[DISCOUNT][0]),
    }
    return batch._replace(rows={name: batch.rows[name] for name in ("step_type", "action")} | changed)
