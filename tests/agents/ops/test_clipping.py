import pytest
import torch

from rainbow_iqn_apex.agents.ops.n_step import clip_reward


@pytest.mark.parametrize(
    ("limit", "scale", "shown"),
    [
        (1.0, 1.0, [-1.0, -0.5, 0.0, 0.25, 1.0, 1.0]),
        (0.5, 1.0, [-0.5, -0.5, 0.0, 0.25, 0.5, 0.5]),
        (1.0, 0.5, [-1.0, -0.25, 0.0, 0.125, 0.5, 1.0]),  # the scale comes before the clip
        (0.0, 0.5, [-3.5, -0.25, 0.0, 0.125, 0.5, 200.0]),  # Mutation: clamp to the limit 0, and every reward is 0.
    ],
)
def test_rewards_are_scaled_and_then_lie_within_the_limit(limit: float, scale: float, shown: list[float]) -> None:
    reward = torch.tensor([-7.0, -0.5, 0.0, 0.25, 1.0, 400.0])
    assert clip_reward(reward, limit, scale).tolist() == shown
