"""Which recorded settings of a run take part in what it learns, and are compared when runs stand side by side.

All functions take a run's settings by name, as its record has them; a setting that a record lacks is not known.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from rainbow_iqn_apex.environments.entries import entries, task_name
from rainbow_iqn_apex.environments.registry import ENVIRONMENTS

AgentOptions = Mapping[str, frozenset[str]]  # names of each agent's own options, by the name of `--agent`

NOT_RECORDED, UNUSED = "not recorded", "–"

# Settings in which runs of one agent may differ: which run it is, how long it is, how its work was spread over
# processes and machines, and which preset its settings began with.
FREE = {"seed", "game", "T_max", "preset", "nb_actor", "nb_env_per_actor"}
FREE |= {"device", "precision", "replay_device", "learner_threads", "length_actor_buffer"}
FREE |= {"redis_shards", "redis_replicas"}
# Older records have the folders of an environment, too.
FREE |= {f.name for entry in ENVIRONMENTS.values() for f in fields(entry.options) if f.metadata.get("machine")}

# T_max takes part where the learning rate falls to 0 there: with `rate_decay`, or where an agent has one of these.
_FALLING = frozenset({"lr_IMPALA", "lr_on_policy"})

_TITLES = {"rainbow": "Rainbow", "rainbow_iqn": "Rainbow-IQN", "vmpo": "V-MPO", "vtrace": "V-trace"}
TOGETHER = "played_together"  # of a run that plays several games: which they are
_ONLY_ATARI = frozenset({"game", "proba_sticky_actions", "disable_SABER_mode"})


def agent_name(settings: Mapping[str, Any]) -> str | None:
    """Name the agent; None if it is not known."""
    return _title(str(settings["agent"])) if "agent" in settings else None


def _title(agent: str) -> str:
    """Write the name of an agent's option as papers do, most of them in capitals; a class keeps its own."""
    return agent if ":" in agent else _TITLES.get(agent, agent.upper())


def is_atari(settings: Mapping[str, Any]) -> bool:
    """Return whether games of the emulator are played, as by default."""
    return bool(settings.get("env", "atari") == "atari")


def repeats(settings: Mapping[str, Any]) -> bool:
    """Return whether an action is held for `action_repeat` frames, and not for the environment's own step."""
    entry = ENVIRONMENTS.get(str(settings.get("env", "atari")).partition(":")[0])
    return entry is not None and entry.repeats


def applicable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that the run's agent or environment has no use for; "agent" is a title."""
    agent = agent_name(settings)
    unused = _unused(settings) | {"rainbow_only"}
    used = {name: value for name, value in settings.items() if name not in unused}
    return used if agent is None else used | {"agent": agent}


def foreign(settings: Mapping[str, Any], options: AgentOptions) -> frozenset[str]:
    """Return the options of other agents that the agent of these `comparable` settings does not have."""
    if "agent" not in settings:
        return frozenset()
    names = {_title(agent): own for agent, own in options.items()}
    return frozenset().union(*names.values()) - names.get(str(settings["agent"]), frozenset())


def _unused(settings: Mapping[str, Any]) -> frozenset[str]:
    others = frozenset() if is_atari(settings) else _ONLY_ATARI
    return others if repeats(settings) else others | {"action_repeat"}


def _rate_falls(settings: Mapping[str, Any]) -> bool:
    return bool(settings.get("rate_decay")) or not _FALLING.isdisjoint(settings)


def comparable(settings: Mapping[str, Any], begun_from: str | None) -> dict[str, Any]:
    """Return what runs of one agent agree in, as far as it is known.

    `begun_from` is the snapshot that the run began with. Which snapshot it was, and which environment of its kind is
    played, depend on the game; whether there was one, and the kind, do not.
    """
    free = FREE - {"T_max"} if _rate_falls(settings) else FREE
    found = {name: value for name, value in applicable(settings).items() if name not in free}
    if "env" in found:
        found["env"] = str(found["env"]).partition(":")[0]
    if len(played := entries(str(settings.get("env", "atari")), str(settings.get("game", "")))) > 1:
        found[TOGETHER] = ", ".join(task_name(*one) for one in played)
    if "model" in found:
        found["model"] = "none" if begun_from is None else "a snapshot"
    return found


def format_value(name: str, settings: Mapping[str, Any], options: AgentOptions) -> str:
    """Write one of the `comparable` settings of an agent; a dash stands for one that it does not have."""
    if name == TOGETHER:
        return str(settings.get(name, "one game or environment"))
    unused = foreign(settings, options) | _unused(settings) | (frozenset() if _rate_falls(settings) else {"T_max"})
    return str(settings.get(name, UNUSED if name in unused else NOT_RECORDED))


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether no setting that both record differs: programs record new settings while a benchmark's runs are made."""
    absent: dict[str, Any] = {TOGETHER: None}  # what it means that a record lacks one of these
    absent |= {"rate_decay": False} if one and other else {}  # where there is a record
    known = (one.keys() & other.keys()) | absent.keys()
    return all(one.get(name, absent.get(name)) == other.get(name, absent.get(name)) for name in known)
