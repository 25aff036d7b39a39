"""IMPALA's loss (arXiv 1802.01561) term by term and row by row, with what CLEAR, LASER and IMPACT add to it."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array, StepType
from tests.ground_truth import replayed
from tests.ground_truth.gae import Rows
from tests.ground_truth.vtrace import vtrace


def loss_terms(
    at: dict[str, Array], gamma: float, *, rho: float = 1.0, trace: float = 1.0, threshold: float = 0.0,
    impact: tuple[float, float] | None = None,
) -> dict[str, float]:  # fmt: skip
    """Return each term's sum over its own rows, over the number of all rows chosen at; `impact` has clip and rho.

    Given are reward, discount, step_type and value [T + 1, B], action [T, B], the probabilities pi, mu and target
    [T, B, A], and where sequences are replayed also replayed [B] and recorded [T, B].
    """
    T, B = at["action"].shape
    trust = replayed.trusted(at["pi"], at["mu"], threshold) if threshold else np.ones((T, B), bool)
    chosen = at["step_type"][:-1] != StepType.LAST
    terms = {name: np.zeros((T, B)) for name in ("policy", "value", "entropy", "kl")}
    for b in range(B):
        actions = at["action"][:, b].astype(int)
        pi, mu, target = (at[name][np.arange(T), b, actions] for name in ("pi", "mu", "target"))
        rows = Rows(*(at[name][:, b] for name in Rows._fields))
        targets, advantages = vtrace(rows, (target if impact else pi) / mu, gamma, rho, 1.0, 1.0, trace, trust[:, b])
        for t in np.flatnonzero(chosen[:, b] & trust[:, b]):
            if impact:
                ratio = min(mu[t] / target[t], impact[1]) * pi[t] / mu[t]
                clipped = np.clip(ratio, 1 - impact[0], 1 + impact[0])
                terms["policy"][t, b] = -min(ratio * advantages[t], clipped * advantages[t])
            else:
                terms["policy"][t, b] = -np.log(pi[t]) * advantages[t]
            terms["value"][t, b] = 0.5 * (targets[t] - at["value"][t, b]) ** 2
            terms["entropy"][t, b] = -(at["pi"][t, b] * np.log(at["pi"][t, b])).sum()
            terms["kl"][t, b] = np.log(mu[t] / pi[t])
    if "replayed" in at:
        terms["cloning"] = replayed.policy_cloning(at["pi"], at["mu"], chosen & at["replayed"])
        terms["values"] = replayed.value_cloning(at["value"][:-1], at["recorded"], chosen & at["replayed"])
    return {name: replayed.shared_mean(losses, chosen) for name, losses in terms.items()}
