"""What the programs share: their commands, connections and environments, the rate limiter and log lines."""

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.checkout import Code, present
from rainbow_iqn_apex.common.errors import LeaseLostError, Stopped, UserError
from rainbow_iqn_apex.common.plugins import kept_settings
from rainbow_iqn_apex.common.text import name_error, name_exit
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import find_environment, make_environment, own_options
from rainbow_iqn_apex.environments.vector import Vector, VectorEnvironment
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import LEARNER, this_host
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import FAILED, Commands, ReportStore
from rainbow_iqn_apex.memory.broker.run_client import wait_for_run
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.limiter import Crew, RateLimiter
from rainbow_iqn_apex.monitoring.report import MAX_BYTES, Event, EventLog, Report, ReportError, Role, decode, encode
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.environment_names import option_of

# Ends that are no failure of the actor's; where its lease is lost, the report is its successor's.
_IN_ORDER = (Stopped, UserError, BrokerError, LeaseLostError)
_LONG_ROW = 4096  # numbers: a grey picture of 64 x 64


def launch_command(args: Args, id_actor: int) -> str:
    """Return the command that starts an actor of this run, or its LEARNER, with the options given to this process."""
    own = {"id_actor", "id_eval_actor", "gpu_number", "render", "model", "abandon_other_run", "verbose"}
    own |= {"id_inference"} | ({"inference_host", "inference_port"} if args.inference == "server" else set())
    named = (f.name for part in args.parts for f in dataclasses.fields(part))
    given = {name: args.get(name) for name in named if name in args.given - own - args.file_keys.keys()}
    program, number = ("launch_learner.py", {}) if id_actor == LEARNER else ("launch_actor.py", {"id_actor": id_actor})
    return command_line.compose(program, number | given)


def launch_commands(args: Args) -> Commands:
    """Return the commands that start the processes of this run."""
    return Commands(launch_command(args, LEARNER), launch_command(args, 0))


def connect_to_redis(args: Args, stop: threading.Event) -> Client:
    """Connect to the servers that the options and the environment name; raises UserError if there are none."""
    server = find_server(args.host_redis, args.port_redis, args.redis_url, os.environ)
    return open_servers(server, stop, args.redis_timeout)


def run_keys(args: Args, run: RunStatus) -> Keys:
    """Return the keys of a run of these settings."""
    return Keys(args.name, run.run_id, shards=args.redis_shards)


@contextmanager
def joined(args: Args, stop: threading.Event, role: Role, number: int) -> Iterator[tuple[Client, RunStatus]]:
    """Wait for the learner's run of these settings; let all see why this process of the run has failed, if it has."""
    client = connect_to_redis(args, stop)
    run = wait_for_run(client, args.name, args.shared, stop, launch_commands(args))
    keys = replace(run_keys(args, run), evaluation=role == "evaluation actor", inference=role == "inference server")
    with failure_reported(client, keys, role, number):
        yield client, run


@contextmanager
def failure_reported(client: Client, keys: Keys, role: Role, number: int) -> Iterator[None]:
    """Write into the actor's report that it has failed, as an alarm, and let the exception go on."""
    began = time.time()
    try:
        yield
    except _IN_ORDER:
        raise
    except (Exception, SystemExit) as error:  # the latter by somebody's environment
        now = time.time()
        told = name_exit(error) if isinstance(error, SystemExit) else name_error(error)
        failed = Event(now, f"{FAILED}{told})", is_alarm=True)
        with suppress(BrokerError), closing(ReportStore(client, keys)) as store:
            own = Report(role, number, this_host(), os.getpid(), began, now, ended=True)
            last = _read(store, number) or own
            events = (*(event for event in last.events if not event.is_alarm), failed)
            store.write(number, encode(replace(own, values=last.values, histograms=last.histograms, events=events)))
        raise


def _read(store: ReportStore, actor: int) -> Report | None:
    found = store.read([actor], MAX_BYTES).get(actor)
    with suppress(ReportError):
        return decode(found.data) if found else None
    return None


class CodeWatch:
    """Looks at the record of a run, again and again: another learner may lead it meanwhile."""

    def __init__(self, events: EventLog) -> None:
        self._own = present()
        self._learners: Code | None = None
        self._events = events
        self._told = ""

    def look(self, record: RunStatus) -> None:
        """Print a line, and note an alarm, if the learner's code has come to differ from this process's."""
        if record.code is None or record.code == self._learners:
            return
        self._learners = record.code
        self._events.withdraw(self._told)
        if self._own.differs_from(record.code):
            self._told = text = f"other code than the learner: {self._own}, not {record.code}; bring both to the same"
            print(f"This process has {text}", flush=True)
            self._events.note(text, is_alarm=True)


def open_environment(
    args: Args, seed: int, entry: int = 0, *, recorded_by: str = "", evaluation: bool = False
) -> Environment:
    """Open an environment of the run; raises UserError if it cannot be made.

    Of several that the run lists, it is number `entry` mod n. `recorded_by` is the option that asks for its pictures,
    which it keeps then; empty for none. An environment for an `evaluation` has the levels that are held out from
    training, if there are any.
    """
    with _named(args, recorded_by):
        return make_environment(_settings(args, entry, recorded_by, evaluation=evaluation), seed)


@contextmanager
def temporary_environment(
    args: Args, seed: int, entry: int = 0, *, recorded_by: str = "", evaluation: bool = False
) -> Iterator[Environment]:
    """Open an environment for the block alone; after that the process has its own settings and folder again."""
    with (
        kept_settings(),
        closing(open_environment(args, seed, entry, recorded_by=recorded_by, evaluation=evaluation)) as environment,
    ):
        yield environment


def open_vector(args: Args, seeds: list[int], entry: int) -> Vector:
    """Open an actor's environments, as many as seeds, that step together; raises UserError if they cannot be made.

    A vector that makes all of them itself gets the first seed.
    """
    settings = _settings(args, entry, "")
    if (found := find_environment(settings.env)) and (make := found.load_vector()):
        with _named(args, ""), kept_settings(folder=False):
            return make(settings, seeds[0], len(seeds))
    return VectorEnvironment([open_environment(args, seed, entry) for seed in seeds])


def _settings(args: Args, entry: int, recorded_by: str, *, evaluation: bool = False) -> EnvironmentSettings:
    played = args.entry(entry)
    return EnvironmentSettings(
        env=played.env,
        game=played.game,
        proba_sticky_actions=args.proba_sticky_actions,
        action_repeat=args.action_repeat,
        saber_mode=not args.disable_SABER_mode,
        render=args.render and not recorded_by,
        record=bool(recorded_by),
        evaluation=evaluation,
        own=args.environment,
    )


@contextmanager
def _named(args: Args, recorded_by: str) -> Iterator[None]:
    """Let a UserError name the option because of which an environment cannot be made."""
    try:
        yield
    except RuntimeError as error:
        if not (option := recorded_by or "--render" * args.render):
            raise  # by its own code, of which the traceback tells
        raise UserError(f"{option}: {error}") from error
    except ValueError as error:
        raise UserError(f"{option_of(args.env)}: {error}") from error


def look_at_entries(args: Args) -> Environment:
    """Open all environments that the run lists, one after the other, and return the first, closed.

    Raises UserError if one of them has other observations, actions or options than the first.
    """
    with temporary_environment(args, args.seed) as first:
        pass  # some engines allow one in a process
    for entry in range(1, len(args.entries)):
        ours, theirs = (args.entry(number) for number in (0, entry))
        with temporary_environment(args, args.seed, entry) as environment:
            if differing := _differing(first, environment) or _other_options(ours, theirs):
                raise UserError(
                    f"{option_of(args.env)}: all that it lists must have the same observations, actions and options, "
                    f"and {theirs.task} has {differing[1]}, where {ours.task} has {differing[0]}"
                )
    return first


def warn_of_long_rows(environment: EnvironmentSpec) -> None:
    """Print a line about observations that were perhaps meant to be pictures, and are a vector to the network."""
    rows = [field for field in environment.observation.inner or (environment.observation,) if len(field.shape) == 1]
    longest = max((field.shape[0] for field in rows), default=0)
    if longest >= _LONG_ROW:
        print(
            f"Observations hold {longest:,} numbers in a row, for a dense network; pictures of bytes [H, W], [C, H, W] "
            "or [H, W, C] get a convolutional one, and --history-length stacks them (docs/environments.md)",
            flush=True,
        )


def _differing(one: Environment, other: Environment) -> tuple[str, str] | None:
    """Return what differs between two environments for one agent, in words; None if nothing does."""
    for pair in ((one.spec.observation, other.spec.observation), (one.spec.action, other.spec.action)):
        if pair[0] != pair[1]:
            return _words(pair[0]), _words(pair[1])
    repeats = (one.action_repeat, other.action_repeat)
    return None if repeats[0] == repeats[1] else (f"{repeats[0]} frames a step", f"{repeats[1]} frames a step")


def _other_options(ours: Args, theirs: Args) -> tuple[str, str] | None:
    """Return the names of the options if two environments have others: the command gives those of the first alone."""
    one, other = (own_options(args.env) for args in (ours, theirs))
    return None if one is other else (_place(one), _place(other))


def _place(options: type) -> str:
    return f"{options.__module__}.{options.__qualname__}"


def _words(space: Field | ActionSpec) -> str:
    """Describe observations by dtype and shape, actions as Python shows them."""
    if not isinstance(space, Field):
        return str(space)[:100]
    return " and ".join(f"{kind.dtype} {list(kind.shape)}" for kind in space.inner or (space,))


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
        self._who = who
        self._interval = args.log_interval
        self._T_max = args.T_max
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
