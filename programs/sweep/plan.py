"""The runs that a YAML file names: their options, folders, Redis ports, and what has become of them.

# sweep.yaml
games: [pong, breakout]      # or environments, or both
agents: [impala, r2d2]
seeds: [1, 2, 3]
options:                     # of every run
  preset: cpu
  T-max: 200000
vary:                        # each value makes runs of its own
  hidden-size: [64, 256]
"""

import json
import math
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from rainbow_iqn_apex import args
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import read_regular, write_file
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.schema import Count
from rainbow_iqn_apex.environments.registry import task_name
from rainbow_iqn_apex.memory.broker.access import OF_A_SERVER, keeps_file
from rainbow_iqn_apex.options import command_line, config_file
from rainbow_iqn_apex.programs.machine import parse_for_start
from rainbow_iqn_apex.saber.results.run_record import read_record

if TYPE_CHECKING:
    import yaml

MOST_RUNS = 1000
_MOST_LINES = 40
_MOST_NAME = 200  # characters, of the 255 that a folder's name may have
_STATE = "sweep.json"
_LAST_PORT = 65_535
_OWN = (  # what a sweep gives each run
    *("game", "env", "agent", "rainbow-only", "seed", "path-to-results", "run-name"),
    *("host-redis", "port-redis", "redis-url", "id-actor", "id-eval-actor", "id-inference"),
)
_MAY_DIFFER = {"T_max", "nb_actor", "learner_threads", "model", "precision"}  # between the starts of a run, or machines
Port = Annotated[int, Meta(ge=1, le=_LAST_PORT)]
_MOST_VALUES = 1000  # of a list
_WANTED = config_file.Wanted(
    "FILE",
    "FILE: no such file: ",
    "expected the keys games or environments, agents, seeds, options and vary",
    "is it a file of a sweep?",
    "the name of a key",
)


@dataclass(frozen=True)
class Settings:
    """Lists what a sweep goes over; all values are texts, as on a command line."""

    games: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    agents: tuple[str, ...] = ("rainbow_iqn",)
    seeds: tuple[str, ...] = ("123",)
    options: tuple[tuple[str, str], ...] = ()  # names as they are written, without dashes before them
    vary: tuple[tuple[str, tuple[str, ...]], ...] = ()


def read(path: Path) -> tuple[Settings, list[str]]:
    """Return the settings of a file, and its mistakes, one a line; raises UserError if the file can be read as none."""
    values: dict[str, Any] = {}
    errors = []
    for key, node in config_file.read_yaml(path, _WANTED):
        try:
            if key not in _KEYS:
                raise ValueError(command_line.unknown(key, list(_KEYS)).partition(": ")[2])
            if key in values:
                raise ValueError("is given twice; leave out one of them")
            values[key] = _KEYS[key](node)
        except ValueError as error:
            errors += [f"{path}: {_shown(key)}: {line}" for line in str(error).splitlines()]
    if not errors and not values.get("games") and not values.get("environments"):
        errors.append(f"{path}: {_WANTED.lines}; there is neither a game nor an environment")
    return Settings(**values), errors


def _texts(node: "yaml.Node") -> tuple[str, ...]:
    """Return the values of a list, or a single one."""
    import yaml

    is_list = isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq"
    parts: Sequence[yaml.Node] = node.value if is_list else [node]
    if not 1 <= len(parts) <= _MOST_VALUES:
        raise ValueError(f"expected 1 to {_MOST_VALUES} values, got {len(parts)}")
    found = tuple(map(config_file.scalar, parts))
    if twice := {text for text in found if found.count(text) > 1}:
        raise ValueError(f"expected each value once, got {min(twice)!r} twice")
    return found


def _mapping(read_value: Callable[["yaml.Node"], Any]) -> Callable[["yaml.Node"], tuple[tuple[str, Any], ...]]:
    def read_mapping(node: "yaml.Node") -> tuple[tuple[str, Any], ...]:
        import yaml

        if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
            raise ValueError("expected a line `name: value` for each option")
        found: dict[str, Any] = {}
        errors = []
        for key, value in node.value:
            try:
                name = config_file.scalar(key).replace("_", "-")
                if name in found:
                    raise ValueError("is given twice; leave out one of them")
                found[name] = read_value(value)
            except ValueError as error:
                errors.append(f"{_shown(str(key.value))}: {error}")
        if errors:
            raise ValueError("\n".join(errors))
        return tuple(found.items())

    return read_mapping


def _shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= 100 else ascii(key)[:100]


_KEYS: dict[str, Callable[["yaml.Node"], Any]] = {
    "games": _texts,
    "environments": _texts,
    "agents": _texts,
    "seeds": _texts,
    "options": _mapping(config_file.scalar),
    "vary": _mapping(_texts),
}


@dataclass(frozen=True)
class State:
    """Records what a sweep has to know of a run again; a file in the run's folder."""

    port: Port  # of its Redis server, always the same: a run goes on with the server that it began with
    finished: Count  # the agent steps to which the run has come in good order, 0 until then


@dataclass(frozen=True)
class Run:
    """A run of the start script."""

    name: str
    index: int  # among the runs of the sweep
    folder: Path
    words: tuple[str, ...]  # options, without those of its folder and its Redis server
    args: Args  # what the options come to

    def state(self) -> State | None:
        """Return what was written down; None for a run that was never started. Raises UserError for a damaged file."""
        path = self.folder / _STATE
        try:
            return schema.parse_record(schema.parse_json(read_regular(path, self.folder, 1000)), State)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not written by a sweep ({error}); move its folder away") from error

    def write(self, state: State) -> None:
        """Write down a state; raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / _STATE, f"{json.dumps(asdict(state))}\n".encode())

    def other_settings(self) -> str:
        """Return a line about what decides about results and was another in the run's last start; empty if nothing."""
        with suppress(OSError, ValueError):  # the start script reports a damaged record
            if record := read_record(self.folder / f"{self.args.task}.json"):
                before = record.starts[-1].settings
                preset = () if "preset" in self.args.given else (f"--preset={before.get('preset', 'paper')}",)
                settings = args.parse([*self.words, *preset], "", "").settings
                now = json.loads(json.dumps(settings, default=str))  # as the record has them
                decide = before.keys() & now.keys() - _MAY_DIFFER - self.args.own.unused
                if names := sorted(name for name in decide if before[name] != now[name]):
                    told = ", ".join(f"{flag_of(name)} {before[name]!r}, not {now[name]!r}" for name in names)
                    return f"{self.folder} was trained with {told}; give the same, or another --path-to-results"
        return ""

    def is_finished(self) -> bool:
        """Return whether the run has come to its T-max in good order."""
        state = self.state()
        return state is not None and state.finished >= self.args.T_max

    def finish(self) -> None:
        """Write down that the run has come to its T-max."""
        if state := self.state():
            self.write(replace(state, finished=self.args.T_max))


def planned(file: Path, folder: Path) -> list[Run]:
    """Return the runs of a file; raises UserError with every mistake, one a line."""
    found, errors = read(file)
    try:
        runs = _plan(found, folder, str(file))
    except UserError as error:
        errors += str(error).splitlines()
    else:
        errors += [f"{file}: {line}" for run in runs if run.is_finished() and (line := run.other_settings())]
    if errors:
        raise UserError("\n".join(errors))
    return runs


def _plan(settings: Settings, folder: Path, source: str) -> list[Run]:
    """Return the runs of these settings; raises UserError with all mistakes, one a line, which names the `source`."""
    environments = [("game", text) for text in settings.games] + [("env", text) for text in settings.environments]
    count = len(environments) * len(settings.agents) * len(settings.seeds)
    count *= math.prod(len(values) for _, values in settings.vary)
    if count > MOST_RUNS:
        raise UserError(f"{source}: expected at most {MOST_RUNS} runs, these are {count}; make several sweeps of them")
    errors = list(_wrong_names(settings, source))
    runs: list[Run] = []
    axes = [[(name, value) for value in values] for name, values in settings.vary]
    for environment, agent, varied, seed in product(environments, settings.agents, product(*axes), settings.seeds):
        more = [(name, value) for name, value in (*settings.options, *varied) if name not in _OWN]
        words = tuple(f"--{name}={value}" for name, value in (environment, ("agent", agent), ("seed", seed), *more))
        name = _name(environment[0], environment[1], agent, varied, seed)
        try:
            parsed = parse_for_start([*words, f"--path-to-results={folder / name}"])
            runs.append(Run(name, len(runs), folder / name, words, parsed))
        except UserError as error:
            errors += [f"{source}: {line}" for line in str(error).splitlines()]
    errors += [f"{source}: {line}" for line in _wrong_folders([run.name for run in runs])]
    if errors:
        different = list(dict.fromkeys(errors))
        if left := different[_MOST_LINES:]:
            different[_MOST_LINES:] = [f"{source}: and {len(left)} more"]
        raise UserError("\n".join(different))
    return runs


def _wrong_names(settings: Settings, source: str) -> Iterator[str]:
    both = {name for name, _ in settings.options} & {name for name, _ in settings.vary}
    for part, names in (("options", settings.options), ("vary", settings.vary)):
        for name, _ in names:
            if name in _OWN:
                yield f"{source}: {part}: {name}: a sweep gives this to each run; leave it out"
            elif name in both:
                yield f"{source}: {part}: {name}: stands in options and vary; leave out one of them"


def _name(kind: str, environment: str, agent: str, varied: Sequence[tuple[str, str]], seed: str) -> str:
    task = environment if kind == "game" else task_name(environment, "")
    parts = [task, agent, *(f"{name}-{value}" for name, value in varied), f"seed-{seed}"]
    return "_".join(re.sub(r"[^\w.-]", "-", part) for part in parts)


def _wrong_folders(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if len(name) > _MOST_NAME:
            yield f"the folder {name[:60]}... of a run would have {len(name)} letters, expected at most {_MOST_NAME}"
        elif names.count(name) > 1:
            yield f"two runs would write to the folder {name}; leave out one of them"


def port_for(run: Run, runs: Sequence[Run], first: int) -> int:
    """Return the port of a run's Redis server: that of its earlier starts, else one that is free.

    If another server has taken the port before the run's own has ever kept anything, it gets another one. Runs whose
    number differs try different ports, so they may be started at the same time, also on several machines.
    """
    if (state := run.state()) and (_is_free(state.port) or keeps_file(run.folder, state.port)):
        return state.port
    taken = {state.port for other in runs if (state := other.state())}
    for port in range(first + run.index, _LAST_PORT + 1, len(runs)):
        if port not in taken and _is_free(port):
            return port
    raise UserError(f"--port-redis: no port from {first} on is free for {run.name}; name a smaller one")


def _is_free(port: int) -> bool:
    """Return whether a server could listen there, as Redis would: connections that have ended do not matter."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def logs(runs: Iterable[Run]) -> list[Path]:
    """Return the folders of these runs that have a training log, of Atari alone."""
    return [run.folder for run in runs if run.args.env == "atari" and (run.folder / f"{run.args.task}.csv").exists()]


def check_environment() -> None:
    """Raise UserError if the environment names a Redis server, which all runs would share."""
    if named := sorted(filter(os.environ.get, OF_A_SERVER)):
        raise UserError(f"{named[0]}: is set, but each run of a sweep has a Redis server of its own; unset it")
