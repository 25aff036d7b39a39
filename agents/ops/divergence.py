"""How far apart two policies over the same actions are."""

from torch import Tensor

from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Compute KL(p‖q) = Σ_a p(a) (log p(a) - log q(a)) in nats (Kullback and Leibler 1951, 10.1214/aoms/1177729694).

    It has gradient into both arguments. Probabilities are those of a softmax: their logarithms are finite.

    Args:
        log_p: [..., A] normalised log-probabilities of A actions.
        log_q: [..., A] likewise.

    Returns:
        [...], at least 0 but for rounding.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(log_p=(log_p, "..."), log_q=(log_q, "..."))
    return (log_p.exp() * (log_p - log_q)).sum(-1)
