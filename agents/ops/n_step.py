"""The n-step return that stops at an episode's end (Rainbow, Hessel et al. 2018, arXiv 1710.02298, equation 2).

Letters: n steps, T rows of a sequence, B batch. Everywhere:

    reward, discount: that arrived with each row; row 0's arrived before its action and are not read.
    step_type: uint8.
    gamma: γ, the discount of an agent step.

All raise ValueError if the shapes differ, or if there are too few rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.ops.vtrace import Targets


def clip_reward(reward: Tensor, limit: float, scale: float = 1.0) -> Tensor:
    """Return rewards of any shape times `scale`, none beyond +- `limit`; not clipped for the limit 0 (Mnih 2015)."""
    if scale != 1:
        reward = reward * scale
    return reward.clamp(-limit, limit) if limit > 0 else reward


class NStep(NamedTuple):
    """Parts of n-step targets: return_ + discount · value(row t + steps)."""

    return_: Tensor  # [B] of the reward's dtype
    discount: Tensor  # [B] of the reward's dtype: 0 at a true end, else γ^m · Π d
    steps: Tensor  # [B] int64, m: the bootstrap row is row m of the window


def n_step(reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float) -> NStep:
    """Sum the rewards of the next n rows, or of those up to the episode's LAST row if it comes sooner.

    With r_{t+k} and d_{t+k} the reward and the discount that arrived with row t+k, and m the number of rows after t up
    to and including LAST, at most n:

        return_  = Σ_{k=1..m} γ^{k-1} (Π_{i=1..k-1} d_{t+i}) r_{t+k}
        discount = γ^m Π_{i=1..m} d_{t+i}

    LAST counts: its reward belongs to this episode, and after a truncation (d = 1) its observation is the one to
    bootstrap from. A window that starts at LAST is never learned from; it gives return_ 0, discount 1, steps 0.

    All are [n + 1, B], row t first.
    """
    check_shapes(reward=(reward, "T B"), discount=(discount, "T B"), step_type=(step_type, "T B"))
    if len(reward) < 2:
        raise ValueError(f"n-step returns need n + 1 >= 2 rows, not {tuple(reward.shape)}")
    counts = (step_type[:-1] != LAST).cumprod(0)  # [n, B] 1 for row t+k if none of rows t..t+k-1 is LAST
    inside = counts.bool()  # [n, B]
    product = torch.where(inside, gamma * discount[1:], 1).cumprod(0)  # [n, B] γ^k Π_{i<=k} d_{t+i}
    before = torch.cat((torch.ones_like(product[:1]), product[:-1]))  # [n, B] the same up to k - 1
    return_ = torch.where(inside, before * reward[1:], 0).sum(0)  # [B]
    return NStep(return_, product[-1], counts.sum(0))


def n_step_rows(reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float, n: int) -> NStep:
    """Return `n_step` [T, B] of each row of a sequence [T + n, B] but the last n, where n is at least 1."""
    T = len(reward) - n
    if T < 1:
        raise ValueError(f"n-step returns of {n} steps need more than {len(reward)} rows")

    def windows(rows: Tensor) -> Tensor:  # [n + 1, T * B]
        return torch.stack([rows[k : k + T] for k in range(n + 1)]).flatten(1)

    ahead = n_step(windows(reward), windows(discount), windows(step_type), gamma)
    return NStep(*(part.view(T, -1) for part in ahead))


def n_step_targets(value: Tensor, reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float, n: int) -> Targets:
    """Compute the n-step target of every row of a sequence, and the advantage; they carry no gradient.

    With m the smaller of n and the number of rows up to and including the episode's LAST row or the sequence's end,
    v_t is `n_step`'s return_ + discount V_{t+m}, and advantage_t = v_t - V_t (Mnih et al. 2016, arXiv 1602.01783,
    section 4). n passes over the sequence give it, each of which goes one row further.

    All are [T + 1, B]; `value` has V_t, and the row after the sequence is bootstrapped from.
    """
    check_shapes(value=(value, "T B"), reward=(reward, "T B"), discount=(discount, "T B"), step_type=(step_type, "T B"))
    with torch.no_grad():
        learnable = step_type[:-1] != LAST  # [T, B]
        ahead = gamma * discount[1:]  # [T, B]
        target = value[:-1]  # [T, B]
        for _ in range(min(n, len(learnable))):  # what is further ahead is beyond the rows
            following = torch.cat((target[1:], value[-1:]))  # [T, B]
            target = torch.where(learnable, reward[1:] + ahead * following, value[:-1])
        return Targets(target, target - value[:-1], learnable)
