"""The options of PQN; defaults are those of the authors' Atari runs (github.com/mttga/purejaxql)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.sequence_options import RoundOptions, layer_size
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import Preset


@dataclass(frozen=True)
class PqnOptions(RoundOptions):
    """PQN (--agent pqn; Gallici et al. 2024, arXiv 2407.04811)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {
        "learn_start": 1,
        "memory_capacity": 8192,
        "nb_env_per_actor": 128,
        "max_gradient_norm": 10.0,
        "unroll_length": 32,
        "epochs": 2,
        "minibatches": 32,
    }
    VECTORS: ClassVar[dict[str, Any]] = {
        "history_length": 1,
        "nb_actor": 1,  # also with the preset
        "nb_env_per_actor": 32,
        "memory_capacity": 4096,
        "length_actor_buffer": 10_000,
        "unroll_length": 64,
        "epochs": 4,
        "minibatches": 16,
        "hidden_size": 256,
        "trace_lambda": 0.95,
        "exploration_end": 0.2,
        "exploration_steps": 50_000,
        "lr_PQN": 1e-3,
        "rate_decay": True,
    }
    CPU: ClassVar[Preset] = {
        "architecture": ("data-efficient", "576 features of a picture in the place of 3136"),
        "hidden_size": (256, "half the width"),
        "nb_actor": (2, "both cores play while the learner waits"),
        "nb_env_per_actor": (8, "short rounds: new weights every 512 steps"),
        "minibatches": (8, "64 rows in each, half as many as in the paper"),
        "memory_capacity": (1024, "two rounds"),
        "exploration_steps": (50_000, "a short run explores for a short time"),
        "learner_threads": (0, "its actors wait while it learns, so all cores are its own"),
    }

    hidden_size: int = layer_size(512, "features of an observation; of numbers, units of both hidden layers")
    trace_lambda: float = option(0.65, "lambda: 0 is one-step Q-learning, 1 the return of the round", least=0, most=1)
    exploration_steps: int = option(
        5_000_000,
        "agent steps over all actors in which epsilon falls linearly from 1 (a tenth of T-max's default)",
        above=0,
        shared=True,
    )
    exploration_end: float = option(
        0.001, "epsilon from then on: the share of random actions; evaluations have 0.001", least=0, most=1, shared=True
    )
    lr_PQN: float = option(2.5e-4, "RAdam's learning rate", above=0)
    rate_decay: bool = option(False, "let the learning rate fall linearly to 0 at T-max")
