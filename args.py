"""Every option of the three programs: frozen dataclasses that become a grouped --help, with bounds beside the defaults.

Options that all agents share stand here and in `options/`; an agent's own stand beside it. Parsing has no side effects
and imports nothing slow. All bad settings are reported together, one line each, naming the option. Options marked
`shared` must be the same in all processes of a run; the learner publishes them and the others compare.
"""

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rainbow_iqn_apex.agents.registry import AGENTS, agent_names, find_agent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import is_there, short_path
from rainbow_iqn_apex.common.option import bounds_errors, flag_of, option
from rainbow_iqn_apex.environments.interface import OwnOptions
from rainbow_iqn_apex.environments.registry import (
    ENVIRONMENTS,
    EnvId,
    entries,
    observes_pictures,
    own_options,
    task_name,
)
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.options import command_line, config_file
from rainbow_iqn_apex.options.agent_options import PRESETS, AgentOptions, LearningOptions, preset_of
from rainbow_iqn_apex.options.environment_names import environment_errors
from rainbow_iqn_apex.options.run_options import (
    EnvironmentOptions,
    InferenceOptions,
    MachineOptions,
    ReplayOptions,
    ResultOptions,
    named_twice,
    run_name_errors,
    server_errors,
)
from rainbow_iqn_apex.options.sink_options import SinkOptions

if __name__ == "args":
    raise ImportError("import rainbow_iqn_apex.args: under the name args every class would exist twice")

T = TypeVar("T")
_LOCKSTEP = "--synchronize-actors-with-learner"
_MOST_ACTORS = 4  # in lockstep


@dataclass(frozen=True)
class RunOptions:
    """run"""

    agent: str = option("rainbow_iqn", f"what learns: {', '.join(agent_names())} or package.module:Class", shared=True)
    rainbow_only: bool = option(False, "an older way to choose the agent rainbow", shared=True)
    seed: int = option(123, "each process derives its own from it and its id", least=0, shared=True)
    nb_actor: int = option(1, "actors of the run; may change when it is resumed", above=0, most=MAX_ACTORS, shared=True)
    id_actor: int = option(-1, "this actor's number, from 0; -1 is the learner", least=-1)
    nb_eval_actors: int = option(
        0,
        "evaluation actors, which play for scores alone, and for whom nobody waits; may change at any time",
        least=0,
        most=MAX_ACTORS,
    )
    id_eval_actor: int = option(
        -1, "number of this evaluation actor, from 0; -1: the process is none", least=-1, most=MAX_ACTORS - 1
    )
    nb_env_per_actor: int = option(
        1, "environments in an actor, batched through one forward pass", above=0, most=10_000, shared=True
    )
    synchronize_actors_with_learner: bool = option(
        True, "play and learn at one update per replay-frequency agent steps, waiting for each other", shared=True
    )
    T_max: int = option(50_000_000, "agent steps of the run, over all actors [4 frames each]", above=0, shared=True)
    force: bool = option(False, "accept settings that are refused as unwise", flag=True)
    run_name: str = option("", "name of the run on the Redis server: letters, digits, _, . and - [default: the game]")
    abandon_other_run: bool = option(
        False, "delete another run's experience, go on without that of a former server, break a lease", flag=True
    )
    config: Path | None = option(
        None, "file of settings (YAML, `name: value`) that the command line goes before, such as results/<game>.yaml"
    )
    preset: str = option(
        "paper",
        "defaults to begin with: cpu (small, for machines without a GPU), fast (btr's for the least time) or paper",
        choices=tuple(PRESETS),
    )
    model: Path | None = option(
        None, "snapshot, or folder for its newest, to evaluate, or to begin from with its weights and Adam's moments"
    )


@dataclass(frozen=True)
class Args(
    InferenceOptions,
    MachineOptions,
    SinkOptions,
    ResultOptions,
    LearningOptions,
    ReplayOptions,
    EnvironmentOptions,
    RunOptions,
):
    """All settings of a process; `own` holds the agent's, and `environment` the environment's."""

    own: AgentOptions = AGENTS[RunOptions.agent].options()
    environment: OwnOptions = OwnOptions()
    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)  # names, by command line or file
    file_keys: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)  # of those that --config gave
    unused: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)  # given, which other agents use

    def __post_init__(self) -> None:
        """Make paths absolute: the working directory may move, by an environment's or agent's code."""
        for f in dataclasses.fields(self):
            if isinstance(path := getattr(self, f.name), Path):
                object.__setattr__(self, f.name, path.absolute())

    @property
    def task(self) -> str:
        """Name of the game or environment, or of all that the run lists, in the names of files."""
        return task_name(self.env, self.game)

    @property
    def entries(self) -> tuple[EnvId, ...]:
        """Return the games or environments that the run plays, see `environments/registry.py`."""
        return entries(self.env, self.game)

    def entry(self, number: int) -> "Args":
        """Return the settings of one who plays entry `number` mod n alone."""
        played = self.entries[number % len(self.entries)]
        return dataclasses.replace(self, env=played.env, game=played.game)

    @property
    def name(self) -> str:
        """Name of the run on the Redis server."""
        return self.run_name or self.task

    @property
    def sees_pictures(self) -> bool:
        """Whether the agent's settings are those for pictures, not for vectors."""
        return _sees_pictures(type(self.own), self.env, self.environment)

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        """The settings by whose they are: all agents' and environments', the agent's, the environment's."""
        return self, self.own, self.environment

    @property
    def nb_env(self) -> int:
        """Environments over all actors."""
        return self.nb_actor * self.nb_env_per_actor

    @property
    def update_size(self) -> int | None:
        """Samples of an update; None for an agent that takes turns with its actors: all that they have played."""
        return self.batch_size if self.own.MAX_POLICY_LAG else None

    @property
    def round_steps(self) -> int:
        """Agent steps of a round: in lockstep over all actors, else of one process."""
        return self.own.round_rows * self.nb_env or self.weight_synchro_frequency

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that all processes of a run have in common, by name: without lockstep, actors come and go."""
        free = set() if self.synchronize_actors_with_learner else {"nb_actor"}
        return {name: value for name, value in self.marked("shared").items() if name not in free}

    @property
    def described(self) -> dict[str, Any]:
        """The shared settings, by name, and the number of actors at this start: what a picture of the run tells of."""
        return self.shared | {"nb_actor": self.nb_actor}

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a result depends on, by name: the shared ones and the learner's own."""
        names = [f.name for group in (ReplayOptions, LearningOptions) for f in dataclasses.fields(group)]
        rest = {name: getattr(self, name) for name in (*names, "nb_actor", "learner_threads")}
        rest["model"] = self.model and Path(short_path(self.model))
        return self.shared | rest | dataclasses.asdict(self.own)

    def marked(self, mark: str) -> dict[str, Any]:
        """Return the settings whose options have a mark: "shared", "policy" or "evaluation".

        The environment's have every mark, but for those that belong to a machine.
        """
        return {
            f.name: getattr(part, f.name)
            for part in self.parts
            for f in dataclasses.fields(part)
            if f.metadata.get(mark) or (part is self.environment and not f.metadata.get("machine"))
        }

    def get(self, name: str) -> Any:
        """Return a setting, whosever it is; None if there is none of this name."""
        if name in _COMMON:
            return getattr(self, name)
        return getattr(self.own, name, getattr(self.environment, name, None))

    def not_used(self) -> str:
        """Return a line about the options given that the agent or environment does not use; empty if all are used."""
        known = (_COMMON | _names(type(self.own)) | _names(type(self.environment))) - self.own.unused
        names = sorted(self.given - known)
        lines = [f"Not used by --agent {self.agent}: {', '.join(map(flag_of, names))}"] if names else []
        has_no_game = self.env.partition(":")[0] in ENVIRONMENTS.keys() - {"atari"}
        if has_no_game and "game" in self.given - self.file_keys.keys():
            lines.append(f"Not used by --env {self.env}: --game")
        return "\n".join(lines)

    def name_source(self, errors: str) -> str:
        """Return the lines of errors, each with the file and the key if `--config` has given the option."""
        lines = (config_file.name_source(line, self.config, self.file_keys) for line in errors.splitlines())
        return "\n".join(lines)

    def replace(self, **values: Any) -> "Args":
        """Return the settings with other values; those of other agents and environments are left out."""
        common = {name: value for name, value in values.items() if name in _COMMON}
        if "agent" not in common and "rainbow_only" in common:
            common["agent"] = "rainbow" if common["rainbow_only"] else RunOptions.agent
        agent = find_agent(common.get("agent", self.agent)).options
        common["rainbow_only"] = agent is AGENTS["rainbow"].options
        before = self.unused | vars(self.own) | vars(self.environment)
        environment = own_options(common.get("env", self.env))
        common |= {"own": _made(agent, before | values), "environment": _made(environment, before | values)}
        return dataclasses.replace(self, **common)


GROUPS: tuple[type, ...] = (
    RunOptions,
    EnvironmentOptions,
    ReplayOptions,
    LearningOptions,
    ResultOptions,
    SinkOptions,
    MachineOptions,
    InferenceOptions,
)
ALL_GROUPS = (*GROUPS, *(entry.options for entry in AGENTS.values()))
_COMMON = {f.name for group in GROUPS for f in dataclasses.fields(group)}


def parse(argv: Sequence[str] | None, program: str, description: str) -> Args:
    """Read a command line; --help exits with 0. Raises UserError with every bad setting, one a line.

    A setting that the command line leaves out is the configuration file's, else the preset's, else the agent's (for
    pictures, or for vectors), else the common default.
    """
    given = read(argv)
    errors: list[str] = []
    agent = _agent(given.values, errors)
    if command_line.asks_for_help(argv) and not errors:
        options = find_agent(agent).options
        environment = _environment(given.values)
        groups = (*GROUPS, options, type(environment))
        command_line.print_help(groups, program, description, _defaults(options, given.values, environment))
    args = _args(agent, given)
    errors += _unused_errors(args) + verify(args) + named_twice(args, args.given)
    if errors or given.errors:
        raise UserError("\n".join([*given.errors, *map(args.name_source, errors)]))
    return args


def read(argv: Sequence[str] | None) -> config_file.Settings:
    """Read what a command line and its configuration file give, of the options of all agents."""
    first = config_file.read((RunOptions, EnvironmentOptions), argv).values
    groups = (*ALL_GROUPS, environment := own_options(first.get("env", EnvironmentOptions.env)))
    with suppress(UserError):  # `parse` names the mistake
        groups = (*groups, find_agent(first.get("agent", RunOptions.agent)).options)
    used = _COMMON | _names(environment) | _names(find_agent(_agent(first, [])).options)
    return config_file.read(groups, argv, used)


def _agent(values: dict[str, Any], errors: list[str]) -> str:
    """Return the agent that command line or file name; `--rainbow-only` is an older way to choose between two."""
    agent = values.get("agent", RunOptions.agent)
    rainbow_only = values.get("rainbow_only")
    if "agent" in values and rainbow_only is not None and rainbow_only != (agent == "rainbow"):
        errors.append(f"--rainbow-only: {rainbow_only} contradicts --agent {agent}; leave out --rainbow-only")
    if rainbow_only:
        return "rainbow"
    try:
        options = find_agent(agent).options
    except UserError as error:
        errors.append(str(error))
        return RunOptions.agent
    errors += [f"--agent: {agent} sets an option {name}, which does not exist" for name in options.misnamed(_COMMON)]
    return str(agent)


def _args(agent: str, given: config_file.Settings) -> Args:
    values = given.values
    options = find_agent(agent).options
    environment = _environment(values)
    pictures = _sees_pictures(options, values.get("env", EnvironmentOptions.env), environment)
    capacity = values.get("memory_capacity")
    named = preset_of(values.get("preset", "paper"), options, pictures=pictures, capacity=capacity)
    preset = {name: value for name, (value, _) in named.items()}
    chosen = (
        _defaults(options, values, environment)
        | preset
        | {name: values[name] for name in values.keys() - options.UNUSED}
    )
    own = _names(options) | _names(type(environment))
    common = {name: value for name, value in chosen.items() if name in _COMMON}
    return Args(
        **common | {"agent": values.get("agent", agent), "rainbow_only": agent == "rainbow"},
        own=_made(options, chosen),
        environment=environment,
        given=frozenset(values),
        file_keys=given.keys,
        unused={name: value for name, value in values.items() if name not in _COMMON - options.UNUSED | own},
    )


def _names(options: type) -> set[str]:
    return {f.name for f in dataclasses.fields(options)}


def _made(options: type[T], values: dict[str, Any]) -> T:
    """Return options with those of the values that are theirs."""
    return options(**{name: values[name] for name in values.keys() & _names(options)})


def _environment(values: dict[str, Any]) -> OwnOptions:
    return _made(own_options(values.get("env", EnvironmentOptions.env)), values)


def _defaults(options: type[AgentOptions], values: dict[str, Any], environment: OwnOptions) -> dict[str, Any]:
    """Return the agent's defaults that are not those of the options themselves."""
    env = values.get("env", EnvironmentOptions.env)
    return options.DEFAULTS | ({} if _sees_pictures(options, env, environment) else options.VECTORS)


def _sees_pictures(options: type[AgentOptions], env: str, environment: OwnOptions) -> bool:
    """Return whether settings are those for pictures; opens no environment for an agent that makes no difference."""
    return not options.VECTORS or observes_pictures(env, environment)


def _unused_errors(args: Args) -> list[str]:
    fields = {f.name: f for group in ALL_GROUPS for f in dataclasses.fields(group)}
    known = {name: value for name, value in args.unused.items() if name in fields}  # no other package's agent's own
    found = ((name, fields[name].metadata["bounds"].error(value)) for name, value in known.items())
    return [f"{flag_of(name)}: {error}" for name, error in found if error]


def verify(args: Args) -> list[str]:
    """Everything that is wrong with the settings, alone or together; one line each, naming the option."""
    errors = [error for part in args.parts for error in bounds_errors(part)]
    errors += environment_errors(args.env, args.game)
    if args.run_name or not errors:
        errors += run_name_errors(args.name)
    errors += server_errors(args.host_redis, args.redis_url)
    errors += args.own.errors() + args.environment.errors()
    return errors + _same_names(args) + _combinations(args)


def _same_names(args: Args) -> list[str]:
    same = _names(type(args.environment)) & (_COMMON | _names(type(args.own)))
    return [f"--env: {args.env} has an option {flag_of(name)}, which --agent {args.agent} has, too" for name in same]


def _combinations(args: Args) -> list[str]:
    errors = []
    if 0 < args.nb_actor <= args.id_actor:
        errors.append(
            f"--id-actor: {args.id_actor} is not one of --nb-actor {args.nb_actor} (0 to {args.nb_actor - 1})"
        )
    if 0 < args.nb_eval_actors <= args.id_eval_actor:
        errors.append(
            f"--id-eval-actor: {args.id_eval_actor} is not one of --nb-eval-actors {args.nb_eval_actors} (0 to "
            f"{args.nb_eval_actors - 1})"
        )
    if args.id_eval_actor >= 0 <= args.id_actor:
        errors.append("--id-actor, --id-eval-actor: an actor has either of them")
    if args.preset == "fast" and not args.own.FAST:
        errors.append(f"--preset: --agent {args.agent} has no settings for fast; choose cpu or paper")
    if args.learn_start > args.memory_capacity:
        errors.append(
            f"--learn-start: {args.learn_start} transitions never fit into --memory-capacity {args.memory_capacity}"
        )
    if args.learn_start >= args.T_max:
        errors.append(f"--T-max: must exceed --learn-start {args.learn_start}, is {args.T_max}")
    plays = args.id_actor >= 0 or args.id_eval_actor >= 0  # then the weights come from the learner
    if args.model is not None and not plays and not is_there(args.model):
        errors.append(f"--model: no such file or folder: {short_path(args.model)}")
    if args.inference_port and not args.inference_host:
        errors.append("--inference-port: is for other machines; name this one with --inference-host, too")
    lockstep = args.synchronize_actors_with_learner
    errors += args.own.size_errors(args.nb_env, args.batch_size)
    return errors + _lockstep_errors(args.agent, args.own, args.nb_actor, lockstep=lockstep, force=args.force)


def _lockstep_errors(agent: str, own: AgentOptions, nb_actor: int, *, lockstep: bool, force: bool) -> list[str]:
    """Return what is wrong with a run's lockstep, or its absence; `force` accepts what is possible and unwise."""
    takes_turns = own.MAX_POLICY_LAG == 0
    if takes_turns and not lockstep:
        return [f"{_LOCKSTEP}: --agent {agent} takes turns with its actors; leave the option out"]
    if force:
        return []
    if not lockstep and nb_actor == 1 and not own.WAITS_FOR_ROWS:
        return [
            f"{_LOCKSTEP}: a single actor that is not synchronised may be outrun by the learner, which then trains too "
            "often on too little; use more actors, or --force if this is meant"
        ]
    if lockstep and nb_actor > _MOST_ACTORS:
        free = "" if takes_turns else f"or {_LOCKSTEP} False, "
        return [
            f"{_LOCKSTEP}: {nb_actor} synchronised actors wait for the slowest of them and for the learner, round "
            f"after round; use at most {_MOST_ACTORS}, {free}or --force if this is meant"
        ]
    return []
