"""Clipping of rewards (Mnih et al. 2015, 10.1038/nature14236)."""

from torch import Tensor


def clip_reward(reward: Tensor, limit: float) -> Tensor:
    """Return rewards of any shape, none beyond +- `limit`; as they are for the limit 0."""
    return reward.clamp(-limit, limit) if limit > 0 else reward
