"""The options of Rainbow-IQN, and of BTR, which is the same with other parts and settings."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.q_learning.options import QLearningOptions
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import Preset


@dataclass(frozen=True)
class RainbowIqnOptions(QLearningOptions):
    """Rainbow-IQN (--agent rainbow_iqn)"""

    CPU: ClassVar[Preset] = QLearningOptions.CPU | {
        "num_tau_samples": (4, "heads of 8 cost most of an update; road_runner rose faster than with 8 or 2"),
        "num_tau_prime_samples": (4, "as above"),
        "num_quantile_samples": (4, "as above, at every action"),
        "munchausen": (0.9, "BTR's; 2.5 million frames taught breakout, qbert and seaquest a third more"),
        "lr_IQN": (5e-4, "a short run needs larger steps: with 1e-4 it took two to four times as long"),
        "adam_eps_IQN": (1.5e-4, "Rainbow's"),
        "priority_exponent_IQN": (0.5, "Rainbow's: rare rewards are seen again sooner"),
    }

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
    munchausen: float = option(
        0.0,
        "alpha of Munchausen's targets: add this share of tau log pi(a|s), by the online network, to rewards, and "
        "bootstrap from the soft policy pi of the target network in the place of double Q; 0: off",
        least=0,
        most=1,
    )
    munchausen_temperature: float = option(0.03, "tau: pi is the softmax of values / tau", above=0)
    munchausen_clip: float = option(-1.0, "lowest tau log pi(a|s), of which the share is added", most=0)
    priority_exponent_IQN: float = option(0.2, "omega: priority = loss^omega", least=0, shared=True)
    lr_IQN: float = option(5e-5, "Adam's learning rate", above=0)
    adam_eps_IQN: float = option(3.125e-4, "Adam's epsilon", above=0)


@dataclass(frozen=True)
class BtrOptions(RainbowIqnOptions):
    """BTR, Beyond the Rainbow (--agent btr; Clark et al. 2024, arXiv 2411.03820)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {
        "nb_env_per_actor": 64,
        "replay_frequency": 64,
        "batch_size": 256,
        "discount": 0.997,
        "learn_start": 200_000,
        "memory_capacity": 2**20,
        "priority_weight": 0.2,
        "final_priority_weight": 0.2,
        "max_gradient_norm": 10.0,
        "architecture": "deep-2",
        "pool": 6,
        "spectral_norm": True,
        "noisy_std": 0.5,
        "num_tau_samples": 8,
        "num_tau_prime_samples": 8,
        "num_quantile_samples": 8,
        "munchausen": 0.9,
        "epsilon_end": 0.01,
        "epsilon_decay": 2e6,
        "epsilon_until": 25_000_000,
        "initial_priorities": "largest",
        "lr_IQN": 1e-4,
        "adam_eps_IQN": 0.005 / 256,
    }
    FAST: ClassVar[Preset] = {
        "replay_frequency": (256, "each row is sampled once on average, and not four times"),
        "pool": (0, "helps only where rows are sampled more often"),
        "spectral_norm": (False, "helps late, where rows are sampled more often, and costs time"),
        "layer_norm": (True, "in its place"),
    }
    CPU: ClassVar[Preset] = RainbowIqnOptions.CPU | {
        "num_tau_samples": (8, "as in the paper: learned with it, not tried with fewer"),
        "num_tau_prime_samples": (8, "as above"),
        "num_quantile_samples": (8, "as above, at every action"),
        "pool": (0, "few features as it is"),
        "spectral_norm": (False, "that trunk has no residual convolutions"),
        "batch_size": (32, "an eighth"),
        "epsilon_decay": (10_000.0, "agent steps; a short run explores for a short time"),
        "epsilon_until": (0, "never off"),
    }
    NOISE_CALLS: ClassVar[int] = 1
    QUIET_BIASES: ClassVar[bool] = True
