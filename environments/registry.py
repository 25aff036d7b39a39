"""Environments by name. A new environment is a folder with its options, and one line here.

Environments of other packages need no line: `--env package.module:make` names a function of `EnvironmentSettings` and a
seed that returns an `Environment`. So does an entry point of the group `rainbow_iqn_apex.environments`; what follows a
colon after its name is the environment's own, as in gymnasium:<id>.

A run plays one entry or several. --game pong,breakout lists games of Atari; --env gymnasium:CartPole-v1,Acrobot-v1 is
gymnasium:CartPole-v1 and gymnasium:Acrobot-v1. All entries have the same observations, actions and options. Actor i
plays entry i mod n. Evaluation actor j plays its episode k in entry j + k mod n, so that it plays all in turn.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from rainbow_iqn_apex.common import plugins
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import fault_of
from rainbow_iqn_apex.environments.dmlab.options import ALL, DMLAB30, DmlabOptions
from rainbow_iqn_apex.environments.football.options import FootballOptions
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings, OwnOptions
from rainbow_iqn_apex.environments.procgen.options import ProcgenOptions
from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.environments.vector import Vector
from rainbow_iqn_apex.environments.vizdoom.options import VizdoomOptions
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.rows import DTYPES

GROUP = "rainbow_iqn_apex.environments"  # of entry points
Make = Callable[[EnvironmentSettings, int], Environment]
_NEEDED = ("reset", "step", "snapshot", "restore", "close", "action_repeat")  # of all that an environment has
MakeVector = Callable[[EnvironmentSettings, int, int], Vector]
MOST_ENTRIES = 256
_NOT_IN_NAMES = re.compile(r"[^\w.-]")
_LONGEST = 100  # characters of a task, which the names of files hold beside others


class Entry(NamedTuple):
    """An environment: what makes it, as package.module:name, and the options that it has besides those of all."""

    place: str
    options: type[OwnOptions] = OwnOptions
    example: str = ""  # of what follows a colon after the environment's name; empty: nothing does
    vector: str = ""  # what makes several at once, of settings, a seed and a number, if that is not one by one
    check: str = ""  # what raises ValueError for a name that there is not, as package.module:name
    names_of: Callable[[str], Sequence[str]] = lambda name: (name,)  # those that one name stands for
    repeats: bool = False  # an action for --action-repeat frames; the others have a step of their own

    def load(self) -> Make:
        """Import what makes it; raises UserError if that fails."""
        make: Make = plugins.load("--env", self.place)
        return make

    def fault_of(self, name: str) -> str:
        """Return what is wrong with the name behind the colon, empty if nothing is known to be."""
        if not self.check:
            return ""
        try:
            plugins.load("--env", self.check)(name)
        except ValueError as error:
            return str(error)
        return ""

    def load_vector(self) -> MakeVector | None:
        """Import what makes several at once; None if they are made one by one."""
        make: MakeVector | None = plugins.load("--env", self.vector) if self.vector else None
        return make


def _within(kind: str, name: str) -> str:
    return f"rainbow_iqn_apex.environments.{kind}.environment:{name}"


ENVIRONMENTS = {
    "atari": Entry("rainbow_iqn_apex.saber.atari:AtariEnvironment", repeats=True),
    "football": Entry(
        _within("football", "make_football"),
        FootballOptions,
        "11_vs_11_easy_stochastic",
        check=_within("football", "check_name"),
    ),
    "gymnasium": Entry(
        _within("gymnasium", "GymnasiumEnvironment"), example="CartPole-v1", check=_within("gymnasium", "find_spec")
    ),
    "gymnasium-vector": Entry(
        _within("gymnasium_vector", "GymnasiumVectorEnvironment"),
        example="CartPole-v1",
        vector=_within("gymnasium_vector", "GymnasiumVector"),
        check=_within("gymnasium", "find_spec"),
    ),
    "vizdoom": Entry(
        _within("vizdoom", "VizdoomEnvironment"),
        VizdoomOptions,
        "basic",
        repeats=True,
        check=_within("vizdoom", "check_name"),
    ),
    "dmlab": Entry(
        _within("dmlab", "DmlabEnvironment"),
        DmlabOptions,
        "explore_goal_locations_small",
        check="rainbow_iqn_apex.environments.dmlab.options:check_level",
        names_of=lambda name: DMLAB30 if name == ALL else (name,),
        repeats=True,
    ),
    "procgen": Entry(
        _within("procgen", "ProcgenEnvironment"), ProcgenOptions, "coinrun", check=_within("procgen", "check_name")
    ),
    "crafter": Entry(
        _within("crafter", "CrafterEnvironment"), example="CrafterReward-v1", check=_within("crafter", "check_name")
    ),
    "nle": Entry(_within("nle", "NleEnvironment"), example="NetHackScore-v0", check=_within("nle", "check_name")),
}


def listed(env: str) -> list[str]:
    """Return the environments that `--env` lists behind its colon, each as `--env` names it alone."""
    kind, colon, names = env.partition(":")
    entry = ENVIRONMENTS.get(kind)
    found = (name for part in names.split(",") for name in (entry.names_of(part) if entry else (part,)))
    return [f"{kind}{colon}{name}" for name in found]


def outside(env: str) -> str:
    """Return where an environment of another package is made, as package.module:make; empty for one of the registry."""
    kind = env.partition(":")[0]
    return "" if kind in ENVIRONMENTS else plugins.offered(GROUP).get(kind, env)


def named_module(env: str) -> str:
    """Return the module that is imported because `env` itself names it; empty if none is, the first of several."""
    kind = env.partition(":")[0]
    if kind in ENVIRONMENTS:
        modules = (one.partition(":")[2].rpartition(":")[0] for one in listed(env))
        return next(filter(None, modules), "")
    return "" if kind in plugins.offered(GROUP) else kind


def find_environment(env: str) -> Entry | None:
    """Return the environment that `--env` names, None if there is none.

    Raises UserError if the environment's module cannot be imported, or makes none.
    """
    if not (place := outside(env)):
        return ENVIRONMENTS.get(env.partition(":")[0])
    if not plugins.module_exists(place):
        return None
    make = plugins.load("--env", place)
    if not callable(make):
        raise UserError(f"--env: {env} is no function that makes an environment")
    options = getattr(make, "options_type", OwnOptions)
    if not (isinstance(options, type) and issubclass(options, OwnOptions)):
        raise UserError(f"--env: expected options_type of {env} to be derived from OwnOptions, got {options!r}")
    if fault := fault_of(options):
        raise UserError(f"--env: {env}: {fault}")
    return Entry(place, options)


def own_options(env: str) -> type[OwnOptions]:
    """Return the options of the environment that `--env` names, the first of several.

    There are none besides those of all if it cannot be found.
    """
    with suppress(UserError):  # `options.environment_names` names the mistake
        if entry := find_environment(listed(env)[0]):
            return entry.options
    return OwnOptions


@lru_cache
def observes_pictures(env: str, own: OwnOptions) -> bool:
    """Return whether the environment that `--env` names, the first of several, shows pictures.

    Others than Atari's are opened to see. One that cannot be made shows none.
    """
    if env == EnvironmentSettings.env:
        return True
    with plugins.kept_settings():
        try:
            environment = make_environment(EnvironmentSettings(env=listed(env)[0], own=own), 0)
        except Exception:  # noqa: BLE001 - users' code raises what it likes; where it is to be played, that is told
            return False
        with closing(environment):
            return environment.spec.observation.is_picture


def make_environment(settings: EnvironmentSettings, seed: int) -> Environment:
    """Make the environment that `settings.env` names; `seed` decides all its randomness.

    Raises UserError if what is named makes something else.
    """
    if (entry := find_environment(settings.env)) is None:
        raise ValueError(f"unknown environment {settings.env!r}; there are: {', '.join(sorted(ENVIRONMENTS))}")
    if not isinstance(settings.own, entry.options):
        settings = replace(settings, own=entry.options())
    make = entry.load()
    try:
        with plugins.kept_settings(folder=False):
            made = make(settings, seed)
    except TypeError as error:
        if error.__traceback__ and error.__traceback__.tb_next:
            raise  # by its own code, of which the traceback tells
        raise UserError(f"--env: {settings.env} does not take settings and a seed: {error}") from error
    if not isinstance(getattr(made, "spec", None), EnvironmentSpec):
        raise UserError(f"--env: {settings.env} makes no environment but a {type(made).__name__}, which has no spec")
    if lacking := [name for name in _NEEDED if not hasattr(made, name)]:
        raise UserError(f"--env: {settings.env} has no {', '.join(lacking)}; see environments/interface.py")
    if (dtype := made.spec.observation.dtype) not in DTYPES:
        made.close()
        raise UserError(f"--env: {settings.env} has observations of {dtype}; choose from {', '.join(DTYPES)}")
    return made


class EnvId(NamedTuple):
    """Names what one process plays: `--env` and `--game` of a single environment."""

    env: str
    game: str


@lru_cache
def entries(env: str, game: str) -> tuple[EnvId, ...]:
    """Return what `--env` and `--game` list, one or several."""
    if env == "atari":
        return tuple(EnvId(env, name) for name in game.split(","))
    return tuple(EnvId(name, game) for name in listed(env))


def task_name(env: str, game: str) -> str:
    """Return what a run plays in the names of files: of an environment of gymnasium the id, of several games all."""
    several = len(entries(env, game))
    name = _joined(env, game)
    if several > 1 and len(name) > _LONGEST:
        return f"{task_name(*entries(env, game)[0])[:_LONGEST]}-and-{several - 1}-more"
    return name


def _joined(env: str, game: str) -> str:
    if outside(env):
        return _NOT_IN_NAMES.sub("-", env)
    _, colon, environment = env.partition(":")
    return _NOT_IN_NAMES.sub("-", environment) if colon else game.replace(",", "-")


def evaluated_entry(actor: int, episode: int) -> int:
    """Return the number, before mod n, of the entry in which an evaluation actor plays its episode."""
    return actor + episode


def entry_of(record: EpisodeRecord, count: int) -> int:
    """Return the number of the entry, of `count`, in which an episode was played."""
    is_evaluation = isinstance(record, VersionedRecord)
    return (evaluated_entry(record.actor, record.episode) if is_evaluation else record.actor) % count


def parted(records: Sequence[EpisodeRecord], count: int) -> list[list[EpisodeRecord]]:
    """Return the episodes of each of `count` entries, in their order."""
    parts: list[list[EpisodeRecord]] = [[] for _ in range(count)]
    for record in records:
        parts[entry_of(record, count)].append(record)
    return parts
