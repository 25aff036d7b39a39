"""The quantile Huber loss of IQN (Dabney et al. 2018, arXiv 1806.06923).

Letters: N online quantiles, M target quantiles (N' in the paper), B batch.
"""

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def quantile_huber_loss(quantiles: Tensor, taus: Tensor, targets: Tensor, kappa: float) -> Tensor:
    """Compute the loss of each sample, equation 3 of the paper with its Huber quantile ρ: sum over N, mean over M.

        Σ_{i=1..N} 1/M Σ_{j=1..M} |τ_i − 1{δ_ij < 0}| · huber_κ(δ_ij) / κ,    δ_ij = targets_j − quantiles_i

    Gradients flow into `quantiles` alone.

    Args:
        quantiles: [N, B] float, Z_{τ_i}(s_t, a_t).
        taus: [N, B] float in [0, 1], the τ_i at which they were computed.
        targets: [M, B] float, R + discount · Z_{τ'_j}(s_{t+m}, a*).
        kappa: κ > 0, where the Huber loss turns from quadratic to linear.

    Returns:
        [B], not weighted.

    Raises:
        ValueError: the shapes do not fit, or κ is not positive.
    """
    check_shapes(quantiles=(quantiles, "N B"), taus=(taus, "N B"), targets=(targets, "M B"))
    if not kappa > 0:
        raise ValueError(f"kappa must be positive, not {kappa}")
    pairs = (len(quantiles), *targets.shape)
    # Views, not copies: autograd keeps these two for the backward pass, and not the differences.
    online = quantiles.unsqueeze(1).expand(pairs)  # [N, M, B]
    target = targets.detach().unsqueeze(0).expand(pairs)  # [N, M, B]
    tau = taus.detach().unsqueeze(1)  # [N, 1, B]
    weight = torch.where(target < online, 1 - tau, tau)  # [N, M, B]
    loss = weight * huber_loss(online, target, reduction="none", delta=kappa)  # [N, M, B]
    return loss.mean(1).sum(0) / kappa  # [B]
