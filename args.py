"""Every option of the three programs, with default, unit and meaning: frozen dataclasses that become a grouped --help.

Parsing has no side effects. All bad settings are reported together, one line each, naming the option. Options marked
`shared` must be the same in all processes of a run; the learner publishes them and the others compare.
"""

import dataclasses
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.options import flag_of, option
from memory.broker import access
from memory.errors import UserError
from memory.limiter import MAX_ACTORS
from programs import command_line
from programs.presets import PRESETS
from saber.games import check_game
from saber.registry import ENVIRONMENTS


@dataclass(frozen=True)
class RunOptions:
    """run"""

    seed: int = option(123, "each process derives its own from it and its id", shared=True)
    nb_actor: int = option(1, "actors of the run; may change when it is resumed", shared=True)
    id_actor: int = option(-1, "this actor's number, from 0; -1 is the learner")
    nb_env_per_actor: int = option(1, "environments in an actor, batched through one forward pass", shared=True)
    synchronize_actors_with_learner: bool = option(
        True, "play and learn at one update per replay-frequency agent steps, waiting for each other", shared=True
    )
    T_max: int = option(50_000_000, "length of the run [agent steps over all actors; 4 frames each]", shared=True)
    force: bool = option(False, "accept settings that are refused as unwise", flag=True)
    run_name: str = option("", "name of the run on the Redis server [default: the game]")
    abandon_other_run: bool = option(
        False, "delete another run's experience that has the run's name, and take a lease that outlasts all", flag=True
    )
    preset: str = option("paper", "defaults to begin with: cpu (small, for machines without a GPU) or paper")


@dataclass(frozen=True)
class EnvironmentOptions:
    """environment"""

    env: str = option("atari", "kind of environment: atari, or gymnasium:<id>", shared=True)
    game: str = option("space_invaders", "ALE game in snake_case; an evaluation takes the snapshot's", shared=True)
    proba_sticky_actions: float = option(0.25, "probability of a repeated action at each frame; 0: none", shared=True)
    action_repeat: int = option(4, "frames per agent step", shared=True)
    history_length: int = option(4, "frames in an observation stack", shared=True)
    disable_SABER_mode: bool = option(
        False, "30 minutes per episode and no stuck rule, instead of SABER's rules", shared=True, flag=True
    )
    render: bool = option(False, "show the game in a window; needs a display", flag=True)


@dataclass(frozen=True)
class NetworkOptions:
    """network"""

    architecture: str = option("canonical", "convolutions: canonical (DQN's) or data-efficient (two)", shared=True)
    precision: str = option(
        "auto", "of the large products: float32, bfloat16, or auto (bfloat16 where the device computes in it)"
    )
    hidden_size: int = option(512, "units of each noisy hidden layer", shared=True)
    noisy_std: float = option(0.1, "initial standard deviation of the noisy layers", shared=True)
    model: Path | None = option(
        None, "snapshot, or folder for its newest, to evaluate, or to begin from with its weights and Adam's moments"
    )


@dataclass(frozen=True)
class ReplayOptions:
    """replay"""

    memory_capacity: int = option(1_000_000, "transitions over all actors", shared=True)
    replay_device: str = option("auto", "where replay lives: cpu, cuda, or auto (with the learner, if it fits)")
    priority_weight: float = option(0.4, "importance-sampling beta, annealed linearly to 1 over T-max - learn-start")
    length_actor_buffer: int = option(1000, "most rows of an environment that are not sent yet")
    queue_size: int = option(5, "batches prepared ahead of the learner")


@dataclass(frozen=True)
class LearningOptions:
    """learning"""

    learn_start: int = option(
        80_000, "agent steps over all actors before learning (papers give frames: 4 times as many)", shared=True
    )
    replay_frequency: int = option(4, "agent steps per learner update, and per noise draw of an actor", shared=True)
    target_update: int = option(32_000, "agent steps between target network updates (papers give frames)")
    batch_size: int = option(32, "transitions of an update")
    max_gradient_norm: float = option(0.0, "gradients are scaled down to this norm if theirs is larger; 0: off")
    multi_step: int = option(3, "n of the n-step return [agent steps]", shared=True)
    discount: float = option(0.99, "discount factor of an agent step", shared=True)
    reward_clip: float = option(
        1.0, "rewards are clipped to +- this for learning, never in scores; 0: off", shared=True
    )


@dataclass(frozen=True)
class RainbowIqnOptions:
    """Rainbow-IQN (the default agent)"""

    kappa: float = option(1.0, "threshold of the quantile Huber loss", shared=True)
    num_tau_samples: int = option(64, "N: quantiles of the online network in the loss", shared=True)
    num_tau_prime_samples: int = option(64, "N': quantiles of the target network in the loss")
    num_quantile_samples: int = option(32, "K: quantiles over which the policy takes the mean", shared=True)
    quantile_embedding_dim: int = option(64, "cosines that a quantile fraction is embedded in", shared=True)
    priority_exponent_IQN: float = option(0.2, "omega: priority = loss^omega", shared=True)
    lr_IQN: float = option(5e-5, "Adam's learning rate")
    adam_eps_IQN: float = option(3.125e-4, "Adam's epsilon")


@dataclass(frozen=True)
class RainbowOptions:
    """Rainbow (with --rainbow-only 1)"""

    rainbow_only: bool = option(False, "the agent is Rainbow (C51 in the place of IQN)", shared=True)
    atoms: int = option(51, "atoms of the value distribution", shared=True)
    V_min: float = option(-10.0, "lowest atom", shared=True)
    V_max: float = option(10.0, "highest atom", shared=True)
    priority_exponent_Rainbow: float = option(0.5, "omega: priority = loss^omega", shared=True)
    lr_Rainbow: float = option(6.25e-5, "Adam's learning rate")
    adam_eps_Rainbow: float = option(1.5e-4, "Adam's epsilon")


@dataclass(frozen=True)
class ResultOptions:
    """results and evaluation"""

    path_to_results: Path = option(
        Path("results"),
        "folder of CSV, plot and snapshots; a stopped run resumes from it. The episodes of test_multiple_seed.py go to "
        "evaluations/<game>_<snapshot>_seed<seed>.csv in it",
    )
    log_interval: int = option(25_000, "agent steps between log lines")
    evaluation_interval: int = option(500_000, "agent steps between snapshots, plots and value estimates")
    evaluation_episodes: int = option(100, "episodes of test_multiple_seed.py, each with a seed of its own")
    evaluation_workers: int = option(
        0, "processes of test_multiple_seed.py; 0: one per processor core, at most 32, 8 on a GPU and 1 with --render"
    )
    record: Path | None = option(
        None, "folder for videos (WebM) of test_multiple_seed.py's best, median and worst episode; needs no screen"
    )
    keep_checkpoints: int = option(
        10,
        "even intervals of T-max at whose ends the weights are kept for evaluations, as model_<game>_<steps>.pth (40 "
        "MB with the papers' network); they are always kept at SABER's marks, 10, 50, 100 and 200 million frames",
    )
    evaluation_size: int = option(500, "replayed states whose mean value the learner reports")


@dataclass(frozen=True)
class MachineOptions:
    """machine and network"""

    host_redis: str = option("localhost", "machine of the Redis server")
    port_redis: int = option(6379, "port of the Redis server", short="-p_red")
    redis_url: str = option(
        "",
        "redis://host:port/db, or rediss:// for TLS, in the place of these two; user, password and certificates come "
        "from the environment, see docs/access.md [default: the variable REDIS_URL]",
    )
    weight_synchro_frequency: int = option(
        400, "agent steps between weight publications and pulls; without lockstep, of each actor's own", shared=True
    )
    learner_threads: int = option(0, "processor threads of the learner's tensor operations; 0: PyTorch's choice")
    gpu_number: int = option(0, "CUDA device of this process")
    disable_cuda: bool = option(False, "compute on the CPU", flag=True)
    disable_cudnn: bool = option(False, "do not use cuDNN", flag=True)


@dataclass(frozen=True)
class Args(
    MachineOptions,
    ResultOptions,
    RainbowOptions,
    RainbowIqnOptions,
    LearningOptions,
    ReplayOptions,
    NetworkOptions,
    EnvironmentOptions,
    RunOptions,
):
    """All settings of a process."""

    given: frozenset[str] = dataclasses.field(  # names of the settings that the command line gave
        default=frozenset(), compare=False, metadata={"shared": False}
    )

    @property
    def agent(self) -> str:
        """Name of the agent in `agents.registry`."""
        return "rainbow" if self.rainbow_only else "rainbow_iqn"

    @property
    def task(self) -> str:
        """Name of the game or environment in the names of files: for `--env`, the text after its colon."""
        _, colon, environment = self.env.partition(":")
        return re.sub(r"[^\w.-]", "-", environment) if colon else self.game

    @property
    def name(self) -> str:
        """Name of the run on the Redis server."""
        return self.run_name or self.task

    @property
    def nb_env(self) -> int:
        """Environments over all actors."""
        return self.nb_actor * self.nb_env_per_actor

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that all processes of a run have in common, by name: without lockstep, actors come and go."""
        free = set() if self.synchronize_actors_with_learner else {"nb_actor"}
        names = {f.name for f in dataclasses.fields(self) if f.metadata["shared"]} - free
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name in names}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a result depends on, by name: the shared ones and the learner's own."""
        groups = (NetworkOptions, ReplayOptions, LearningOptions, RainbowIqnOptions, RainbowOptions)
        own = {f.name: getattr(self, f.name) for group in groups for f in dataclasses.fields(group)}
        return self.shared | own | {"nb_actor": self.nb_actor, "learner_threads": self.learner_threads}


GROUPS: tuple[type, ...] = tuple(reversed(Args.__bases__))


def parse(argv: Sequence[str] | None, program: str, description: str) -> Args:
    """Read a command line; --help exits with 0. Raises UserError with every bad setting, one a line."""
    values, errors = command_line.read(GROUPS, argv, program, description)
    preset = PRESETS.get(values.get("preset", "paper"), {})
    args = Args(**{name: value for name, (value, _) in preset.items()} | values, given=frozenset(values))
    errors += verify(args)
    if {"host_redis", "port_redis"} & values.keys() and (url := args.redis_url or os.environ.get(access.URL)):
        other = access.URL_OPTION if url == args.redis_url else f"the environment variable {access.URL}"
        errors.append(f"--host-redis, --port-redis: {other} names the Redis server, too; leave out one of them")
    if errors:
        raise UserError("\n".join(errors))
    return args


def verify(args: Args) -> list[str]:
    """Everything that is wrong with the settings, alone or together; one line each, naming the option."""
    return _ranges(args) + _environment(args) + _combinations(args)


def _ranges(args: Args) -> list[str]:
    positive = (
        "nb_actor nb_env_per_actor T_max action_repeat history_length hidden_size memory_capacity length_actor_buffer "
        "queue_size learn_start replay_frequency target_update batch_size multi_step kappa num_tau_samples "
        "num_tau_prime_samples num_quantile_samples quantile_embedding_dim lr_IQN adam_eps_IQN lr_Rainbow "
        "adam_eps_Rainbow log_interval evaluation_interval evaluation_episodes evaluation_size weight_synchro_frequency"
    )
    not_negative = (
        "noisy_std reward_clip max_gradient_norm learner_threads priority_exponent_IQN priority_exponent_Rainbow "
        "gpu_number seed evaluation_workers keep_checkpoints"
    )
    narrow = (
        "nb_env_per_actor history_length hidden_size multi_step num_tau_samples num_tau_prime_samples batch_size atoms "
        "num_quantile_samples quantile_embedding_dim"
    )
    errors = command_line.outside(args, positive, "must be above 0", lambda value: value > 0)
    errors += command_line.outside(args, not_negative, "must not be below 0", lambda value: value >= 0)
    shares = "proba_sticky_actions priority_weight discount"
    errors += command_line.outside(args, shares, "must lie in [0, 1]", lambda value: 0 <= value <= 1)
    errors += command_line.outside(args, narrow, "must not be above 10000", lambda value: value <= 10_000)
    errors += command_line.outside(args, "learner_threads", "must not be above 1024", lambda value: value <= 1024)
    counts = f"{positive} {not_negative}"
    errors += command_line.outside(args, counts, "must not be above 1e15", lambda value: value <= 1e15)
    if not 1 <= args.port_redis <= 65535:
        errors.append(f"--port-redis: must lie in 1 to 65535, is {args.port_redis}")
    if "://" in args.host_redis or "@" in args.host_redis:
        errors.append(f"--host-redis: expected the name or address of a machine; {access.URL_OPTION} takes a URL")
    if args.redis_url:
        errors += access.check_url(args.redis_url)
    if args.atoms < 2:
        errors.append(f"--atoms: at least 2 are needed, is {args.atoms}")
    choices = {
        "preset": tuple(PRESETS),
        "architecture": ("canonical", "data-efficient"),
        "precision": ("float32", "bfloat16", "auto"),
        "replay_device": ("auto", "cpu", "cuda"),
    }
    errors += [
        f"{flag_of(name)}: expected {', '.join(known[:-1])} or {known[-1]}, got {value!r}"
        for name, known in choices.items()
        if (value := getattr(args, name)) not in known
    ]
    return errors


def _environment(args: Args) -> list[str]:
    errors = []
    env, colon, name = args.env.partition(":")
    if env not in ENVIRONMENTS:
        errors.append(f"--env: there is no environment {args.env!r}; known are {', '.join(sorted(ENVIRONMENTS))}")
    elif env == "gymnasium" and not name:
        errors.append("--env: gymnasium needs an id, as in gymnasium:CartPole-v1")
    elif env != "gymnasium" and colon:
        errors.append(f"--env: expected {env} alone, got {args.env!r}; --game names the game")
    if env == "atari" and (error := check_game(args.game)):
        errors.append(f"--game: {error}")
    return errors


def _combinations(args: Args) -> list[str]:
    errors = []
    if args.nb_actor > MAX_ACTORS:
        errors.append(f"--nb-actor: a run has at most {MAX_ACTORS} actors, is {args.nb_actor}")
    if not -1 <= args.id_actor < args.nb_actor:
        errors.append(
            f"--id-actor: {args.id_actor} is not one of --nb-actor {args.nb_actor} (0 to {args.nb_actor - 1})"
        )
    if args.V_min >= args.V_max:
        errors.append(f"--V-min: must be below --V-max, {args.V_min} is not below {args.V_max}")
    if args.learn_start > args.memory_capacity:
        errors.append(
            f"--learn-start: {args.learn_start} transitions never fit into --memory-capacity {args.memory_capacity}"
        )
    if args.learn_start >= args.T_max:
        errors.append(f"--T-max: must exceed --learn-start {args.learn_start}, is {args.T_max}")
    if args.model is not None and not (args.model.is_file() or args.model.is_dir()):
        errors.append(f"--model: no such file or folder: {args.model}")
    if args.force:
        return errors
    if args.nb_actor == 1 and not args.synchronize_actors_with_learner:
        errors.append(
            "--synchronize-actors-with-learner: a single actor that is not synchronised may be outrun by the learner, "
            "which then trains too often on too little; use more actors, or --force if this is meant"
        )
    if args.nb_actor > 4 and args.synchronize_actors_with_learner:
        errors.append(
            f"--synchronize-actors-with-learner: {args.nb_actor} synchronised actors mostly wait for the learner; use "
            "at most 4, or --synchronize-actors-with-learner False, or --force if this is meant"
        )
    return errors
