"""What Stable-Baselines3 learns for a comparison, with the hyperparameters that were published for each task.

Hyperparameters are arguments of its algorithms, as JSON: a learning rate ["linear", x] falls from x to 0 at the end.
Sources: RL Baselines3 Zoo (hyperparams/ppo.yml, sac.yml) for Pendulum and for SAC; for PPO on HalfCheetah CleanRL's
defaults of ppo_continuous_action.py, which are our own. CleanRL clips the values' loss, which neither of the two does
here; a `vf_coef` of 0.5 weighs half as much with CleanRL and ours, which halve the square of an error.
"""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class PeerRun:
    """Names one algorithm on one task; `ours` is the configuration to compare with, if there is one."""

    algorithm: str
    steps: int
    hyperparameters: dict[str, Any]
    ours: str | None = None
    environments: int = 1
    normalises: bool = False  # observations and rewards, by VecNormalize
    episodes: int = 100  # the last ones, which make the score


_MUJOCO = PeerRun(
    "PPO",
    1_000_000,
    {
        "n_steps": 2048,
        "batch_size": 64,
        "gae_lambda": 0.95,
        "gamma": 0.99,
        "n_epochs": 10,
        "ent_coef": 0.0,
        "learning_rate": ["linear", 3e-4],
        "clip_range": 0.2,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
    },
    ours="ppo-mujoco",
    normalises=True,
)
# The zoo trains PPO on Pendulum for 100 000 steps; these are as many as ours has.
PEERS: dict[str, dict[str, PeerRun]] = {
    "sb3-ppo": {
        "pendulum": PeerRun(
            "PPO",
            200_000,
            {
                "n_steps": 1024,
                "gae_lambda": 0.95,
                "gamma": 0.9,
                "n_epochs": 10,
                "ent_coef": 0.0,
                "learning_rate": 1e-3,
                "clip_range": 0.2,
                "use_sde": True,
                "sde_sample_freq": 4,
            },
            ours="ppo-pendulum",
            environments=4,
        ),
        "halfcheetah": _MUJOCO,
        "inverted_pendulum": replace(_MUJOCO, steps=200_000),
    },
    "sb3-sac": {
        "pendulum": PeerRun("SAC", 20_000, {"learning_rate": 1e-3}, ours="sac-pendulum", episodes=20),
        "halfcheetah": PeerRun("SAC", 50_000, {"learning_starts": 10_000}, ours="sac-mujoco", episodes=20),
    },
}
