"""What the programs share: their commands, connections and environments, the rate limiter and log lines."""

import dataclasses
import os
import threading
import time
from datetime import datetime

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.expected_actors import LEARNER
from rainbow_iqn_apex.memory.broker.opening import open_servers
from rainbow_iqn_apex.memory.broker.run_status import RunStatus
from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.limiter import Crew, RateLimiter
from rainbow_iqn_apex.options import command_line


def launch_command(args: Args, id_actor: int) -> str:
    """Return the command that starts an actor of this run, or its LEARNER, with the options given to this process."""
    own = {"id_actor", "id_eval_actor", "gpu_number", "render", "model", "abandon_other_run", "verbose"}
    named = (f.name for part in args.parts for f in dataclasses.fields(part))
    given = {name: args.get(name) for name in named if name in args.given - own - args.file_keys.keys()}
    program, number = ("launch_learner.py", {}) if id_actor == LEARNER else ("launch_actor.py", {"id_actor": id_actor})
    return command_line.compose(program, number | given)


def connect_to_redis(args: Args, stop: threading.Event) -> Client:
    """Connect to the servers that the options and the environment name; raises UserError if there are none."""
    server = find_server(args.host_redis, args.port_redis, args.redis_url, os.environ)
    return open_servers(server, stop, args.redis_timeout)


def run_keys(args: Args, run: RunStatus) -> Keys:
    """Return the keys of a run of these settings."""
    return Keys(args.name, run.run_id, shards=args.redis_shards)


def open_environment(args: Args, seed: int, *, recorded_by: str = "", evaluation: bool = False) -> Environment:
    """Open an environment of the run; raises UserError if it cannot be made.

    `recorded_by` is the option that asks for its pictures, which it keeps then; empty for none. An environment for an
    `evaluation` has the levels that are held out from training, if there are any.
    """
    settings = EnvironmentSettings(
        env=args.env,
        game=args.game,
        proba_sticky_actions=args.proba_sticky_actions,
        action_repeat=args.action_repeat,
        saber_mode=not args.disable_SABER_mode,
        render=args.render and not recorded_by,
        record=bool(recorded_by),
        evaluation=evaluation,
        own=args.environment,
    )
    try:
        return make_environment(settings, seed)
    except RuntimeError as error:
        raise UserError(f"{recorded_by or '--render'}: {error}") from error
    except ValueError as error:
        option = "--game" if args.env == "atari" else "--env"
        raise UserError(f"{option}: {error}") from error


def make_limiter(args: Args, spec: ChunkSpec, crews: tuple[Crew, ...]) -> RateLimiter:
    """Make the rate limiter of a run that has had these crews, the same in all processes of the run."""
    if args.length_actor_buffer <= spec.window:
        raise UserError(f"--length-actor-buffer: must exceed the {spec.window} rows of a chunk")
    return RateLimiter.of(
        synchronize=args.synchronize_actors_with_learner,
        wanted_steps=args.round_steps,
        nb_env_per_actor=args.nb_env_per_actor,
        nb_actor=args.nb_actor,
        crews=crews,
        max_chunks=args.memory_capacity // spec.period,
        max_policy_lag=args.own.MAX_POLICY_LAG,
    )


def timestamp() -> str:
    """Return the local time as log lines show it."""
    return datetime.now().strftime("%Y-%m-%dT%H:%M:%S")


class IntervalLog:
    """Prints progress whenever T passes a multiple of the log interval.

    In lockstep T is the same in all processes. Without lockstep, learner and actors count different steps: a line names
    both counts.
    """

    def __init__(self, who: str, args: Args, start: int) -> None:
        self._who, self._interval, self._T_max = who, args.log_interval, args.T_max
        self._lockstep = args.synchronize_actors_with_learner
        self._passed = start // self._interval
        self._time = time.monotonic()

    def passes(self, T: int, *, played: int, trained: int) -> bool:
        """Return whether T has passed a multiple of the interval since the last call; print the lines if so.

        Without lockstep, the actors' T is `played` and the learner's T is `trained`, as far as this process has read.
        """
        if T // self._interval <= self._passed:
            return False
        self._passed = T // self._interval
        now = time.monotonic()
        print(f"[{timestamp()}] T = {self._passed * self._interval} / {self._T_max}")
        print(f"Time between 2 log_interval for {self._who} ({now - self._time:.3f} sec)", flush=True)
        if not self._lockstep:
            counts = f"agent steps played in the actors' lines ({played}), trained on in the learner's ({trained})"
            print(f"Without lockstep T counts {counts}", flush=True)
        self._time = now
        return True
