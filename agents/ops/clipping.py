"""Clipping of rewards (Mnih et al. 2015, 10.1038/nature14236)."""

from torch import Tensor


def clip_reward(reward: Tensor, limit: float, scale: float = 1.0) -> Tensor:
    """Return rewards of any shape times `scale`, none beyond +- `limit`; not clipped for the limit 0."""
    if scale != 1:
        reward = reward * scale
    return reward.clamp(-limit, limit) if limit > 0 else reward
