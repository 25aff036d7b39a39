"""Q(lambda) as a mixture of k-step returns that bootstrap from the best action (Gallici et al. 2024, 2407.04811)."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array
from tests.ground_truth.gae import Rows, k_step_advantage, steps_ahead


def q_lambda(rows: Rows, gamma: float, trace: float) -> Array:
    """Return targets [T] from rows whose values are max_a Q: (1 - λ) Σ_k λ^{k-1} G^(k); the value itself at LAST."""
    targets = rows.value[:-1].copy()
    for t in range(len(targets)):
        if (longest := steps_ahead(rows, t)) == 0:
            continue
        returns = np.array([k_step_advantage(rows, t, k, gamma) + rows.value[t] for k in range(1, longest + 1)])
        weights = (1 - trace) * trace ** np.arange(longest, dtype=float)
        weights[-1] = trace ** (longest - 1)
        targets[t] = weights @ returns
    return targets
