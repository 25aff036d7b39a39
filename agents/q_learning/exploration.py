"""Random actions beside a network's noise: their share in each environment, as a run goes on."""

import math

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.q_learning.options import QLearningOptions
from rainbow_iqn_apex.agents.randomness import ladder


def exploration_rates(places: Tensor, nb_env: int, step: int, options: QLearningOptions) -> Tensor:
    """Return the shares of random actions [E] at places [E] int64 among N environments, at a step of the run.

    Environment i has e_i + (1 - e_i) exp(-step / decay), or e_i at once without a decay, with e_i from epsilon-end to
    epsilon-ladder by `ladder`, and without a ladder e_i = epsilon-end. The schedule is that of BTR (Clark et al. 2024,
    arXiv 2411.03820).
    """
    end, last = options.epsilon_end, options.epsilon_ladder
    ends = ladder(places, nb_env, end, last) if last else torch.full(places.shape, end, dtype=torch.float64)
    left = math.exp(-step / options.epsilon_decay) if options.epsilon_decay else 0.0
    return (ends + (1 - ends) * left).float()
