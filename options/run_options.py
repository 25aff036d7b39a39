"""The options of environment, replay, results, machine and inference, which all agents share."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.memory.broker import access
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS


@dataclass(frozen=True)
class EnvironmentOptions:
    """environment"""

    env: str = option(
        "atari",
        "environment: atari, gymnasium:<id>, another of docs/environments.md, such as vizdoom:basic, or "
        "package.module:make",
        shared=True,
    )
    game: str = option(
        "space_invaders",
        "ALE game in snake_case, or several, as in pong,breakout, which actors play in turn; an evaluation takes the "
        "snapshot's",
        shared=True,
    )
    proba_sticky_actions: float = option(
        0.25, "probability of a repeated action at each frame; 0: none", least=0, most=1, shared=True
    )
    action_repeat: int = option(4, "frames per agent step", above=0, shared=True, policy=True)
    disable_SABER_mode: bool = option(
        False, "30 minutes per episode and no stuck rule, instead of SABER's rules", shared=True, flag=True
    )
    render: bool = option(False, "show the game in a window; needs a display", flag=True)


@dataclass(frozen=True)
class ReplayOptions:
    """replay"""

    memory_capacity: int = option(1_000_000, "transitions over all actors", above=0, shared=True)
    replay_device: str = option(
        "auto", "where replay lives: cpu, cuda, or auto (with the learner, if it fits)", choices=("auto", "cpu", "cuda")
    )
    priority_weight: float = option(
        0.4, "importance-sampling beta, annealed linearly over T-max - learn-start", least=0, most=1
    )
    final_priority_weight: float = option(1.0, "importance-sampling beta at T-max", least=0, most=1)
    length_actor_buffer: int = option(1000, "most rows of an environment that are not sent yet", above=0)
    queue_size: int = option(
        1,
        "batches drawn at once on a CPU, before any is learned from: beyond 1 they miss the newest priorities",
        above=0,
    )


@dataclass(frozen=True)
class ResultOptions:
    """results and evaluation"""

    path_to_results: Path = option(
        Path("results"),
        "folder of CSV, plot and snapshots; a stopped run resumes from it. The episodes of test_multiple_seed.py go to "
        "evaluations/<game>_<snapshot>_seed<seed>.csv in it",
    )
    log_interval: int = option(25_000, "agent steps between log lines", above=0)
    verbose: bool = option(False, "print each setting of the preset with its reason", flag=True)
    evaluation_interval: int = option(500_000, "agent steps between snapshots, plots and value estimates", above=0)
    evaluation_episodes: int = option(100, "episodes of test_multiple_seed.py, each with a seed of its own", above=0)
    evaluation_workers: int = option(
        0,
        "processes of test_multiple_seed.py; 0: one per processor core, at most 32, 8 on a GPU and 1 with --render",
        least=0,
    )
    record: Path | None = option(
        None,
        "folder for videos (WebM, 2 MB at most) of test_multiple_seed.py's best, median and worst episode; needs no "
        "screen",
    )
    export: Path | None = option(None, "folder for a model card of test_multiple_seed.py, as Hugging Face takes it")
    record_evaluations: bool = option(
        False, "film what evaluation actors play, and show the best and the newest episode (docs/sinks.md)", flag=True
    )
    keep_checkpoints: int = option(
        10,
        "even intervals of T-max at whose ends the weights are kept for evaluations, as model_<game>_<steps>.pth (40 "
        "MB with the papers' network); they are always kept at SABER's marks, 10, 50, 100 and 200 million "
        "frames; a round of several intervals keeps them once",
        least=0,
        most=10_000,
    )
    evaluation_size: int = option(500, "replayed states whose mean value the learner reports", above=0)


@dataclass(frozen=True)
class RedisOptions:
    """Redis server"""

    host_redis: str = option("localhost", "machine of the Redis server")
    port_redis: int = option(access.DEFAULT_PORT, "port of the Redis server", least=1, most=65535, short="-p_red")
    redis_url: str = option(
        "",
        "redis://host:port/db, or rediss:// for TLS, in the place of these two; user, password and certificates come "
        "from the environment, see docs/access.md [default: the variable REDIS_URL]",
    )


@dataclass(frozen=True)
class MachineOptions(RedisOptions):
    """machine and network"""

    redis_timeout: float = option(
        60.0,
        "seconds for which a process waits for a Redis server that is away; then it ends with exit code 1",
        above=0,
    )
    weight_synchro_frequency: int = option(
        400,
        "agent steps between weight publications and pulls; without lockstep, of each actor's own",
        above=0,
        shared=True,
    )
    redis_shards: int = option(
        1,
        "shards of a run's keys, by the actor's number, which a Redis cluster spreads over its servers",
        above=0,
        most=access.MAX_SHARDS,
        shared=True,
    )
    redis_replicas: bool = option(
        False, "actors fetch weights from the replicas of a cluster or service", flag=True, shared=True
    )
    learner_threads: int = option(
        0,
        "processor threads of the learner's tensor operations, where cores are left one more for targets; 0: PyTorch's "
        "choice",
        least=0,
        most=1024,
    )
    gpu_number: int = option(0, "CUDA device of this process", least=0)
    disable_cuda: bool = option(False, "compute on the CPU", flag=True)
    disable_cudnn: bool = option(False, "do not use cuDNN", flag=True)


@dataclass(frozen=True)
class InferenceOptions:
    """inference"""

    inference: str = option(
        "local",
        "where an actor's actions are computed: local (in the actor), server (by launch_inference.py, so that actors "
        "load no torch), or learner (as server, and the learner starts one itself); the run's name and settings stay",
        choices=("local", "server", "learner"),
    )
    id_inference: int = option(0, "number of this inference server, from 0", least=0, most=MAX_ACTORS - 1)
    inference_host: str = option(
        "", "name or address by which other machines reach this inference server; empty: it serves its machine alone"
    )
    inference_port: int = option(0, "port of this inference server; 0: any that is free", least=0, most=65535)


def named_twice(options: RedisOptions, given: Collection[str]) -> list[str]:
    """Return a line if the options given, by name, and a URL both name the Redis server."""
    url = options.redis_url or os.environ.get(access.URL)
    if not url or {"host_redis", "port_redis"}.isdisjoint(given):
        return []
    other = access.URL_OPTION if url == options.redis_url else f"the environment variable {access.URL}"
    return [f"--host-redis, --port-redis: {other} names the Redis server, too; leave out one of them"]


def run_name_errors(name: str) -> list[str]:
    """Return what is wrong with `--run-name`, or with the name that a run has by default."""
    if access.is_run_name(name):
        return []
    return [
        f"--run-name: expected at most {access.MOST_NAME} letters, digits, '_', '.' and '-', and none of the last two "
        f"first, got {name[:200]!a}"
    ]


def server_errors(host: str, url: str) -> list[str]:
    """Return what is wrong with `--host-redis` and `--redis-url`."""
    errors = access.check_url(url) if url else []
    if "://" in host or "@" in host:
        errors.append(f"--host-redis: expected the name or address of a machine; {access.URL_OPTION} takes a URL")
    return errors
