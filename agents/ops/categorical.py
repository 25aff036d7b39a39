"""The categorical distribution of C51 (Bellemare, Dabney and Munos 2017, arXiv 1707.06887).

Letters: A atoms, B batch.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def project(support: Tensor, probabilities: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
    """Project the distribution of return_ + discount · Z back onto the support of Z (algorithm 1, equation 7).

    Every atom's mass goes to the two atoms nearest to where it lands, in proportion to their nearness; what lands
    outside the support goes to its end. Written as the hat function of equation 7 and not as the paper's additions at
    ⌊b⌋ and ⌈b⌉, which lose the mass of an atom that lands exactly on another (⌊b⌋ = ⌈b⌉ = b).

    Args:
        support: [A] float, evenly spaced and ascending, A >= 2.
        probabilities: [B, A] float, of Z at the bootstrap row.
        return_: [B] float, the n-step return.
        discount: [B] float, 0 at a true end.

    Returns:
        [B, A], without gradient; each row has the mass of its row in `probabilities`.

    Raises:
        ValueError: the shapes do not fit, or there is only one atom.
    """
    check_shapes(
        support=(support, "A"), probabilities=(probabilities, "B A"), return_=(return_, "B"), discount=(discount, "B")
    )
    if len(support) < 2:
        raise ValueError(f"a support needs at least two atoms, not {tuple(support.shape)}")
    steps = len(support) - 1
    width = (support[-1] - support[0]) / steps
    landed = return_.unsqueeze(1) + discount.unsqueeze(1) * support  # [B, A]
    position = ((landed - support[0]) / width).clamp(0, steps)  # [B, A] b in algorithm 1, counted in atoms
    atoms = torch.arange(len(support), dtype=support.dtype, device=support.device)  # [A]
    share = (1 - (position.unsqueeze(1) - atoms.unsqueeze(1)).abs()).clamp(min=0)  # [B, A to, A from]
    # A matrix product could be rounded to TF32 and would not conserve mass.
    return (share * probabilities.unsqueeze(1)).sum(2).detach()  # [B, A]


def cross_entropy(target_probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    """Compute −Σ_i m_i log p_i, the loss of each sample (last line of algorithm 1).

    Args:
        target_probabilities: [B, A] float, the projected m; no gradient flows into it.
        log_probabilities: [B, A] float, log p(s_t, a_t), as log_softmax gives it.

    Returns:
        [B].

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(target_probabilities=(target_probabilities, "B A"), log_probabilities=(log_probabilities, "B A"))
    return -(target_probabilities.detach() * log_probabilities).sum(1)
