"""What an actor-critic does with replayed rows: stay near what was recorded, and leave out rows that are too far off.

Letters: T rows of a sequence, B batch, A actions. Everywhere:

    log_pi_all: [T, B, A] log π(a), of the policy that learns; log_mu_all: [T, B, A] log μ(a), recorded while acting.
    kept: [T, B] bool, rows to learn from; what stands elsewhere may be anything.

Losses are those of each row, 0 where not kept, so that the caller may take their mean or their sum over the rows that
are kept. All raise ValueError if the shapes do not fit.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.divergence import kl_divergence
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def policy_cloning(log_pi_all: Tensor, log_mu_all: Tensor, kept: Tensor) -> Tensor:
    """Compute KL(μ‖π) [T, B], the loss that keeps a policy near the one that acted (CLEAR: Rolnick et al. 2019).

    arXiv 1811.11682: Σ_a μ(a) (log μ(a) - log π(a)). It has gradient into log_pi_all alone.
    A recorded logarithm above 0 belongs to no probability, and counts as 0: the loss of a forged message is finite.
    """
    check_shapes(log_pi_all=(log_pi_all, "T B A"), log_mu_all=(log_mu_all, "T B A"), kept=(kept, "T B"))
    inside = kept.unsqueeze(2)  # [T, B, 1]
    log_pi = torch.where(inside, log_pi_all, 0)  # [T, B, A]
    log_mu = torch.where(inside, log_mu_all.detach(), 0).clamp(max=0)  # [T, B, A]
    return kl_divergence(log_mu, log_pi)


def value_cloning(value: Tensor, recorded: Tensor, kept: Tensor) -> Tensor:
    """Compute (V_μ - V)² [T, B], the loss that keeps values near the recorded ones (CLEAR: Rolnick et al. 2019).

    arXiv 1811.11682, which writes ‖V - V_μ‖²: each row's square, and no norm over the batch.

    Args:
        value: [T, B] V, with gradient.
        recorded: [T, B] V_μ of the network that acted; no gradient flows into it.
        kept: see above.
    """
    check_shapes(value=(value, "T B"), recorded=(recorded, "T B"), kept=(kept, "T B"))
    return torch.where(kept, value - recorded.detach(), 0).square()


def trusted_rows(log_pi_all: Tensor, log_mu_all: Tensor, threshold: float) -> Tensor:
    """Return where KL(π‖μ) < threshold [T, B] bool: LASER's trust region (Schmitt et al. 2020, arXiv 1909.11583).

    A divergence that is not a number is not trusted. `agents.ops.vtrace.vtrace` takes the answer.
    """
    check_shapes(log_pi_all=(log_pi_all, "T B A"), log_mu_all=(log_mu_all, "T B A"))
    with torch.no_grad():
        return kl_divergence(log_pi_all, log_mu_all) < threshold
