"""The options of Rainbow-IQN."""

from dataclasses import dataclass

from agents.options import option
from agents.q_learning.options import QLearningOptions


@dataclass(frozen=True)
class RainbowIqnOptions(QLearningOptions):
    """Rainbow-IQN (--agent rainbow_iqn)"""

    kappa: float = option(1.0, "threshold of the quantile Huber loss", above=0, shared=True)
    num_tau_samples: int = option(
        64, "N: quantiles of the online network in the loss", above=0, most=10_000, shared=True
    )
    num_tau_prime_samples: int = option(64, "N': quantiles of the target network in the loss", above=0, most=10_000)
    num_quantile_samples: int = option(
        32, "K: quantiles over which the policy takes the mean", above=0, most=10_000, shared=True, policy=True
    )
    quantile_embedding_dim: int = option(
        64, "cosines that a quantile fraction is embedded in", above=0, most=10_000, shared=True
    )
    priority_exponent_IQN: float = option(0.2, "omega: priority = loss^omega", least=0, shared=True)
    lr_IQN: float = option(5e-5, "Adam's learning rate", above=0)
    adam_eps_IQN: float = option(3.125e-4, "Adam's epsilon", above=0)
