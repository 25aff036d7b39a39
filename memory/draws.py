"""Prioritised draws (Schaul et al. 2016, arXiv 1511.05952): a drawn batch, and its importance weights."""

from typing import NamedTuple

from torch import Tensor


class Drawn(NamedTuple):
    """A prioritised batch of leaves."""

    indices: Tensor  # [B] int64
    probabilities: Tensor  # [B] float64, p_i / Σp at the moment of the draw


def importance_weights(probabilities: Tensor, beta: float | Tensor) -> Tensor:
    """Compute the weights [B] in (0, 1]: (N · P)^(−β), divided by the largest (Schaul et al. 2016, section 3.4).

    The division cancels N, the number of leaves that can be drawn, and the largest is that of the least probability.

    Args:
        probabilities: [B] float, P(i) > 0 of each sample.
        beta: β in [0, 1]; 1 corrects the whole bias.

    Raises:
        ValueError: `probabilities` is not [B].
    """
    if probabilities.dim() != 1:
        raise ValueError(f"probabilities {tuple(probabilities.shape)} must be [B]")
    return (probabilities.min() / probabilities).pow_(beta)
