"""Losses of a value estimate.

Letters: T rows of a sequence, B batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.agents.ops.masks import mean_of
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


class ValueClip(NamedTuple):
    """How far a value may move from what was recorded while acting before its loss stops to fall."""

    recorded: Tensor  # [T, B] the acting network's value
    distance: float


def value_loss(
    value: Tensor, target: Tensor, kept: Tensor, huber: float | None = None, clip: ValueClip | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:  # fmt: skip
    """Compute the mean loss [] of value - target over the rows that are kept.

    The loss of a row is half the error's square, or Huber's, which is linear beyond `huber`. With a clip it is the
    larger one of two: the value's, and that of the value clipped to within `distance` of the recorded one (Andrychowicz
    et al. 2020, arXiv 2006.05990).

    Args:
        value: [T, B], with gradient.
        target: [T, B]; no gradient flows into it.
        kept: [T, B] bool, rows to learn from; what stands elsewhere may be anything.
        huber: the error from which on the loss is linear; None: it is quadratic everywhere.
        clip: None: not pessimistic.
        ranks: the learners over whose rows together the mean is; each gets its share, as of `agents.ops.masks`.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(value=(value, "T B"), target=(target, "T B"), kept=(kept, "T B"))
    value, target = torch.where(kept, value, 0), torch.where(kept, target.detach(), 0)  # [T, B]
    losses = _losses(value, target, huber)  # [T, B]
    if clip is not None:
        check_shapes(value=(value, "T B"), recorded=(clip.recorded, "T B"))
        recorded = torch.where(kept, clip.recorded, 0)  # [T, B]
        near = recorded + (value - recorded).clamp(-clip.distance, clip.distance)  # [T, B]
        losses = torch.maximum(losses, _losses(near, target, huber))
    return mean_of(losses, kept, ranks)


def _losses(value: Tensor, target: Tensor, huber: float | None) -> Tensor:
    if huber is None:
        return 0.5 * functional.mse_loss(value, target, reduction="none")
    return functional.huber_loss(value, target, reduction="none", delta=huber)
