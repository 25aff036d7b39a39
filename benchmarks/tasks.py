"""What learning is measured on: configurations of a run, with the agent steps that were fixed before any run was made.

A task is an Atari game, or one of TASKS by its name.
"""

from dataclasses import dataclass, replace
from typing import Any

from benchmarks.plots import LAST
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.saber.games import check_game

TASKS = {
    "cartpole": "gymnasium:CartPole-v1",
    "cue": "gymnasium:benchmarks.cue:Cue-v0",
    "pendulum": "gymnasium:Pendulum-v1",
    "inverted_pendulum": "gymnasium:InvertedPendulum-v5",
    "halfcheetah": "gymnasium:HalfCheetah-v5",
    "fetch_reach": "gymnasium:gymnasium_robotics:FetchReach-v4",  # not among our requirements: see results/README.md
}
STEPS = 200_000  # agent steps of a run without a GPU: fixed with the preset, before any run with it was made
GAMES = ("road_runner", "kung_fu_master", "krull", "crazy_climber", "ms_pacman", "space_invaders")


@dataclass(frozen=True)
class Configuration:
    """Holds the options of a run, its agent steps per task, and how many of its last episodes make its score."""

    options: str
    steps: dict[str, int]
    episodes: int = LAST
    ends: bool = True  # at these steps by itself, as learning rates fall until then


def _small(words: str, steps: dict[str, int]) -> Configuration:
    """Return a run on observations that are a few numbers."""
    return Configuration(f"--preset cpu --history-length 1 {words}", steps, episodes=100)


def _on_policy(words: str, steps: dict[str, int]) -> Configuration:
    """Return a run of the on-policy family on numbers, in one thread as the peers have it; its learning rate falls."""
    return Configuration(f"{words} --learner-threads 1", steps, episodes=100)


_ATARI = dict.fromkeys(GAMES, STEPS)
_CARTPOLE = "--nb-env-per-actor 8 --unroll-length 64 --minibatches 4 --lr-on-policy 1e-3"
_PENDULUM = "--nb-env-per-actor 8 --unroll-length 128 --minibatches 8 --discount 0.9 --lr-on-policy 1e-3"
_VPG = "--nb-env-per-actor 8 --unroll-length 32 --minibatches 4 --lr-on-policy 2e-3"
_FETCH = "--agent sac --learn-start 1000 --lr-SAC 1e-3 --discount 0.95 --learner-threads 1"
_IMPALA_SUM = "--loss-reduction sum --rms-eps-IMPALA 0.01 --max-gradient-norm 40"  # as published
_CUE = "--unroll-length 22 --batch-size 16 --weight-synchro-frequency 352 --lr-IMPALA 3e-3 --entropy-cost 0.001"
_PLAIN = "--proba-sticky-actions 0"
_CLEAR = "--preset cpu --agent impala --policy-cloning-cost 0.01 --value-cloning-cost 0.005"
_MIXED = {  # all of one capacity: a fifth of the run's sequences; candidates until the last of 6250 updates
    "uniform": "--replay-mix queue:0.5,uniform:0.5:5000",
    "elite1": "--replay-mix queue:0.5,elite:0.5:5000 --elite-strategy 1 --candidates-annealed-over 6250",
    "elite3": "--replay-mix queue:0.5,elite:0.5:5000 --elite-strategy 3 --candidates-annealed-over 6250",
    "attentive": "--replay-mix queue:0.5,attentive:0.5:5000 --candidates-annealed-over 6250",
}


def _mixed() -> dict[str, Configuration]:
    """Return the experiment on what is replayed: 2 million frames under SABER's rules, and without sticky actions."""
    steps = dict.fromkeys(("breakout", "seaquest"), 500_000)
    runs = {f"clear-{name}-cpu": f"{_CLEAR} {mix}" for name, mix in _MIXED.items()}
    plain = {f"clear-{name}-plain-cpu": f"{_CLEAR} {_MIXED[name]} {_PLAIN}" for name in ("uniform", "elite3")}
    return {name: Configuration(words, steps, episodes=100) for name, words in (runs | plain).items()}


CONFIGURATIONS = {
    "cpu": Configuration("--preset cpu", _ATARI, ends=False),
    "cpu-float32": Configuration("--preset cpu --precision float32", _ATARI, ends=False),
    "rainbow-cpu": Configuration("--preset cpu --agent rainbow", _ATARI, ends=False),
    # Its learning rate falls to 0 at the end; an update of 160 steps costs less than four of Rainbow's.
    "impala-cpu": Configuration(
        "--preset cpu --agent impala",
        dict.fromkeys((*GAMES, "pong", "breakout"), 3 * STEPS) | {"crazy_climber": 4 * STEPS},  # README's first command
    ),
    **_mixed(),
    "ppo-cpu": Configuration("--preset cpu --agent ppo", dict.fromkeys(GAMES, 3 * STEPS)),
    "r2d2-cpu": Configuration("--preset cpu --agent r2d2", _ATARI, ends=False),
    "impala-cartpole": _small(
        "--agent impala --hidden-size 64 --nb-env-per-actor 8 --batch-size 8 --weight-synchro-frequency 160 "
        f"--lr-IMPALA 2e-3 {_IMPALA_SUM}",
        {"cartpole": 500_000},
    ),
    "impala-cue": _small(f"--agent impala --hidden-size 32 --max-gradient-norm 1 {_CUE}", {"cue": 600_000}),
    "impala-lstm-cue": _small(
        f"--agent impala --hidden-size 32 --lstm-size 64 --max-gradient-norm 1 {_CUE}", {"cue": 600_000}
    ),
    "r2d2-cue": _small(
        "--agent r2d2 --hidden-size 32 --lstm-size 32 --nb-env-per-actor 8 --burn-in 0 --sequence-length 44 "
        "--sequence-period 22 --batch-size 16 --learn-start 4000 --memory-capacity 50000 --samples-per-insert 8 "
        "--target-period 200 --lr-R2D2 1e-3 --weight-synchro-frequency 176",
        {"cue": 300_000},
    ),
    # Its hyperparameters are those that peer_tasks gives to Stable-Baselines3, whose exploration it has not.
    "ppo-pendulum": _on_policy(
        "--agent ppo --nb-env-per-actor 4 --unroll-length 1024 --minibatches 64 --discount 0.9 --lr-on-policy 1e-3 "
        "--normalise-observations False --normalise-rewards False --reward-clip 0 --baseline-cost 1",
        {"pendulum": 200_000},
    ),
    "ppo-mujoco": _on_policy("--agent ppo", {"halfcheetah": 1_000_000, "inverted_pendulum": 200_000}),
    "pqn-cartpole": _on_policy("--agent pqn", {"cartpole": 250_000}),
    "vmpo-cartpole": _on_policy(f"--agent vmpo --epochs 4 {_CARTPOLE}", {"cartpole": 200_000}),
    "awr-cartpole": _on_policy(f"--agent awr --epochs 4 {_CARTPOLE}", {"cartpole": 500_000}),
    "vtrace-cartpole": _on_policy(f"--agent vtrace --epochs 4 {_CARTPOLE}", {"cartpole": 500_000}),
    "vpg-cartpole": _on_policy(f"--agent vpg {_VPG}", {"cartpole": 500_000}),
    "vmpo-pendulum": _on_policy(f"--agent vmpo --epochs 4 {_PENDULUM}", {"pendulum": 500_000}),
    "awr-pendulum": _on_policy(f"--agent awr --epochs 4 {_PENDULUM}", {"pendulum": 300_000}),
    # Neither learns Pendulum within a million steps. This is CartPole's with a force for an action, and 1000 the most.
    "vtrace-mujoco": _on_policy(f"--agent vtrace --epochs 2 {_CARTPOLE}", {"inverted_pendulum": 300_000}),
    "vpg-mujoco": _on_policy(f"--agent vpg {_VPG}", {"inverted_pendulum": 300_000}),
    "sac-pendulum": Configuration(
        "--agent sac --learn-start 100 --lr-SAC 1e-3 --learner-threads 1", {"pendulum": 20_000}
    ),
    # Published for hindsight with SAC (RL Baselines3 Zoo, hyperparams/her.yml).
    "sac-hindsight": Configuration(f"{_FETCH} --hindsight 0.8", {"fetch_reach": 20_000}),
    "sac-without-hindsight": Configuration(_FETCH, {"fetch_reach": 20_000}),
    "sac-mujoco": Configuration("--agent sac --learn-start 10000 --learner-threads 1", {"halfcheetah": 50_000}),
}


def environment_of(task: str) -> EnvironmentSettings:
    """Return the settings of a task's environment; raises ValueError for an unknown one."""
    if task in TASKS:
        return EnvironmentSettings(env=TASKS[task])
    if wrong := check_game(task):
        raise ValueError(wrong)
    return EnvironmentSettings(game=task)


def options_of(task: str) -> list[str]:
    """Return the options that choose a task."""
    return ["--env", TASKS[task]] if task in TASKS else ["--game", task]


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
