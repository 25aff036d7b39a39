import torch

from rainbow_iqn_apex.agents.ops.clipping import clip_reward

REWARD = torch.tensor([[-7.0, -0.5, 0.0], [0.25, 1.0, 400.0]])


def test_rewards_lie_within_the_limit() -> None:
    assert clip_reward(REWARD, 1.0).tolist() == [[-1.0, -0.5, 0.0], [0.25, 1.0, 1.0]]
    assert clip_reward(REWARD, 0.5).tolist() == [[-0.5, -0.5, 0.0], [0.25, 0.5, 0.5]]


def test_no_limit_leaves_them_as_they_are() -> None:
    # Mutation: clamp to the limit 0, and every reward is 0.
    assert torch.equal(clip_reward(REWARD, 0.0), REWARD)


def test_a_scale_comes_before_the_clip() -> None:
    assert clip_reward(REWARD, 1.0, 0.5).tolist() == [[-1.0, -0.25, 0.0], [0.125, 0.5, 1.0]]
    assert torch.equal(clip_reward(REWARD, 0.0, 0.5), REWARD / 2)
