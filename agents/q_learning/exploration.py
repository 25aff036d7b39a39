"""Random actions beside a network's noise: their share in each environment, as a run goes on."""

import math

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.q_learning.options import QLearningOptions


def exploration_rates(places: Tensor, nb_env: int, step: int, options: QLearningOptions) -> Tensor:
    """Return the shares of random actions [E] at places [E] int64 among N environments, at a step of the run.

    Environment i has e_i + (1 - e_i) exp(-step / decay), or e_i at once without a decay, with

        e_i = end^(1 - s) ladder^s,    s = i / (N - 1)    (0.5 of a single environment)

    and without a ladder e_i = end. The schedule is that of BTR (Clark et al. 2024, arXiv 2411.03820); the ladder
    spreads the shares evenly on a logarithmic scale, as Ape-X's does (Horgan et al. 2018, arXiv 1803.00933).
    """
    i = places.double()
    s = i / (nb_env - 1) if nb_env > 1 else torch.full_like(i, 0.5)
    end = options.epsilon_end ** (1 - s) * options.epsilon_ladder**s if options.epsilon_ladder else options.epsilon_end
    left = math.exp(-step / options.epsilon_decay) if options.epsilon_decay else 0.0
    return (torch.zeros_like(i) + end + (1 - end) * left).float()
