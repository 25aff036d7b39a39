"""By what rules the runs of a report were played, as far as their records have them, and what may stand beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rainbow_iqn_apex.environments.registry import ENVIRONMENTS
from rainbow_iqn_apex.saber.report.runs import ACTION_REPEAT, Run
from rainbow_iqn_apex.saber.report.settings import is_atari, repeats
from rainbow_iqn_apex.saber.results.atari_scores import STICKY

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
    def is_saber(self) -> bool:
        """Whether these are SABER's rules."""
        return self.unlimited and self.same_task

    @property
    def same_task(self) -> bool:
        """Whether stickiness and action repeat are SABER's, and those of the published scores with sticky actions."""
        return self.is_atari and (self.stickiness, self.action_repeat) == (SABER_STICKINESS, ACTION_REPEAT)

    @property
    def sentence(self) -> str:
        """The label, and for Atari whether these are SABER's rules."""
        return f"{self.label}, {'by' if self.is_saber else 'not'} SABER's rules" if self.is_atari else self.label


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


def protocols_of(runs: Sequence[Run]) -> Protocols:
    """Read them from the records, of all starts."""
    found = [{protocol_of(start.settings) for start in run.record.starts} if run.record else {None} for run in runs]
    known = sorted({protocol for one in found for protocol in one if protocol})
    return Protocols(tuple(known), sum(None in one for one in found), len(runs))


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
