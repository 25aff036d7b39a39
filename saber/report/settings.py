"""Which recorded settings of a run take part in what it learns, and are compared when runs stand side by side.

All functions take a run's settings by name, as its record has them; a setting that a record lacks is not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rainbow_iqn_apex.environments.registry import ENVIRONMENTS, entries, task_name
from rainbow_iqn_apex.saber.results.run_record import RunRecord
from rainbow_iqn_apex.saber.results.task import STICKY

ACTION_REPEAT = 4  # frames per agent step in SABER, and of a game of the emulator without a record
AgentOptions = Mapping[str, frozenset[str]]  # names of each agent's own options, by the name of `--agent`

NOT_RECORDED = "not recorded"
UNUSED = "–"

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
    own = {_title(agent): names for agent, names in options.items()}
    foreign = frozenset[str]()  # options of other agents
    if "agent" in settings:
        foreign = frozenset().union(*own.values()) - own.get(str(settings["agent"]), frozenset())
    unused = foreign | _unused(settings) | (frozenset() if _rate_falls(settings) else {"T_max"})
    return str(settings.get(name, UNUSED if name in unused else NOT_RECORDED))


def agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether no setting that both record differs: programs record new settings while a benchmark's runs are made."""
    absent: dict[str, Any] = {TOGETHER: None}  # what it means that a record lacks one of these
    absent |= {"rate_decay": False} if one and other else {}  # where there is a record
    known = (one.keys() & other.keys()) | absent.keys()
    return all(one.get(name, absent.get(name)) == other.get(name, absent.get(name)) for name in known)


SABER_STICKINESS = 0.25  # also that of the published scores with sticky actions (Machado et al. 2018)
_NO_RULES = {"football_planes", "football_rewards", "dmlab_renderer"}  # options that leave the score what it is


@dataclass(frozen=True, order=True)
class Protocol:
    """The rules of a run."""

    label: str  # as it stands beside scores
    stickiness: float  # probability of a repeated action at each frame
    unlimited: bool  # whether episodes last as long as SABER lets them
    action_repeat: int = ACTION_REPEAT  # frames
    is_atari: bool = True

    @property
    def same_task(self) -> bool:
        """Whether stickiness and action repeat are SABER's, and those of the published scores with sticky actions."""
        return self.is_atari and (self.stickiness, self.action_repeat) == (SABER_STICKINESS, ACTION_REPEAT)

    @property
    def sentence(self) -> str:
        """The label, and for Atari whether these are SABER's rules."""
        is_saber = self.unlimited and self.same_task
        return f"{self.label}, {'by' if is_saber else 'not'} SABER's rules" if self.is_atari else self.label


@dataclass(frozen=True)
class Protocols:
    """The rules of all runs of a report."""

    known: tuple[Protocol, ...]  # different ones
    unknown: int  # runs that do not record theirs
    runs: int

    @property
    def label(self) -> str:
        """All of them: no score of ours should be shown without it."""
        if not self.known:
            return "protocol unknown"
        return " or ".join([*(protocol.label for protocol in self.known), *(["unknown"] if self.unknown else [])])

    @property
    def sentence(self) -> str:
        """Return the notes that a reader of these scores needs."""
        parts = [one.sentence for one in self.known]
        if self.unknown:
            parts.append(f"by what rules {self.unknown} of {self.runs} runs were played was not recorded")
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}."

    def limit_name(self, limit: str) -> str:
        """Return the name of one of LIMITS: only what is known not to be cut is unlimited."""
        unlimited = not self.unknown and all(protocol.unlimited for protocol in self.known)
        return {"5min": "5 min", "30min": "30 min", "saber": "unlimited" if unlimited else "whole episodes"}[limit]

    def equal(self, published: str) -> bool:
        """Whether all runs are known to have played with a published column's sticky actions."""
        ours = all(protocol.same_task for protocol in self.known) and not self.unknown
        return ours and published == STICKY


def protocols_of(records: Sequence[RunRecord | None]) -> Protocols:
    """Read them from the runs' records, of all starts."""
    found = [{protocol_of(start.settings) for start in record.starts} if record else {None} for record in records]
    known = sorted({protocol for one in found for protocol in one if protocol})
    return Protocols(tuple(known), sum(None in one for one in found), len(records))


def protocol_of(settings: Mapping[str, Any]) -> Protocol | None:
    """Read the rules from settings of a run or an evaluation; None if they are not recorded."""
    drawn = ", actions drawn" * bool(settings.get("stochastic"))
    if not is_atari(settings):
        rules = f"rules of {str(settings['env']).removeprefix('gymnasium:')}{_changed(settings)}{drawn}"
        return Protocol(rules, 0.0, unlimited=True, is_atari=False)
    stickiness, cut = (settings.get(name) for name in ("proba_sticky_actions", "disable_SABER_mode"))
    if not isinstance(stickiness, int | float) or not isinstance(cut, bool):
        return None
    repeat = settings.get("action_repeat", ACTION_REPEAT)
    label = f"sticky actions {stickiness:g}" if stickiness else "no sticky actions"
    label += f", action repeat {repeat}" * (repeat != ACTION_REPEAT) + ", cut at 30 min" * cut + drawn
    return Protocol(label, stickiness, unlimited=not cut, action_repeat=repeat)


def _changed(settings: Mapping[str, Any]) -> str:
    """Write what an environment's own options change, such as its levels, and another action repeat."""
    entry = ENVIRONMENTS.get(str(settings["env"]).partition(":")[0])
    own = fields(entry.options) if entry else ()
    of_rules = [field for field in own if not field.metadata.get("machine") and field.name not in _NO_RULES]
    usual = {field.name: field.default for field in of_rules}
    usual |= {"action_repeat": ACTION_REPEAT} if repeats(settings) else {}
    changed = {name: settings[name] for name in usual if settings.get(name, usual[name]) != usual[name]}
    return "".join(f", {name.replace('_', ' ')} {value}" for name, value in changed.items())
