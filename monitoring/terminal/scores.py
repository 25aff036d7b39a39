"""Words about a run's score, the same in log lines and on screens: its trend, what others score, when to expect it."""

from collections.abc import Mapping
from typing import Any

from rainbow_iqn_apex.monitoring import formats
from rainbow_iqn_apex.saber.results.task import Task, format_points

_FALLS = "↓ from", "down from"
_LEVEL = 0.02  # of the larger of two scores, within which they count as equal
# Agent steps of an environment until its first episode has ended, in the runs of Atari games in docs/measured.md.
_FIRST_EPISODE = (200, 4500)


def score(mean: float, before: float | None, *, arrow: bool = False) -> str:
    """Write a score and its trend, as in "12.40 up from 9.80", or for terminals "12.40 ↑ from 9.80".

    `before` is None while there is no trend.
    """
    text = formats.number(mean, 2)
    if before is None:
        return text
    is_level = abs(mean - before) <= _LEVEL * max(abs(mean), abs(before))
    sign, words = ("→ from", "level with") if is_level else ("↑ from", "up from") if mean > before else _FALLS
    return f"{text} {sign if arrow else words} {formats.number(before, 2)}"


def known_scores(settings: Mapping[str, Any]) -> str:
    """Write what random play and a human score in the game of a run; empty if that is not known."""
    game, env = settings.get("game"), settings.get("env", "atari")
    found = Task(game, env).scores if isinstance(game, str) and isinstance(env, str) else None
    if found is None:
        return ""
    human = "" if found.human is None else f", human {format_points(found.human)}"
    return f"random {format_points(found.random)}{human}"


def first_score(settings: Mapping[str, Any]) -> str:
    """Write when the first score can be expected."""
    environments = _count(settings, "nb_actor") * _count(settings, "nb_env_per_actor")
    if settings.get("env") != "atari":
        return "with the first episode that ends"
    first, last = (formats.number(steps * environments) for steps in _FIRST_EPISODE)
    return f"between T = {first} and {last}"


def first_update(settings: Mapping[str, Any]) -> str:
    """Write when learning can be expected to begin; agents without a replay have a `learn_start` of 1."""
    begins = _count(settings, "learn_start")
    return f"begins at T = {formats.number(begins)}" if begins > 1 else "begins with the first round that is played"


def expectations(settings: Mapping[str, Any], *, learns: bool, has_score: bool) -> str:
    """Write what is still to come of a run: the first update, the first score, the scores to compare with, the end."""
    known, T_max = known_scores(settings), formats.number(_count(settings, "T_max"))
    text = [] if learns else [f"learning {first_update(settings)}"]
    text += [] if has_score else [f"the first score comes {first_score(settings)}"]
    text += [f"{known} (known scores)"] if known else []
    return "; ".join([*text, f"the run ends at T = {T_max}"])


def _count(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name)
    return value if type(value) is int else 1
