"""The entries of a run: the games or environments that `--game` or `--env` lists, and which process plays which.

--game pong,breakout lists games of Atari. What follows the colon lists those of another environment: --env
gymnasium:CartPole-v1,Acrobot-v1 is gymnasium:CartPole-v1 and gymnasium:Acrobot-v1. All entries have the same
observations, actions and options. Actor i plays entry i mod n. Evaluation actor j plays its episode k in entry
j + k mod n, so that it plays all in turn.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rainbow_iqn_apex.environments.registry import listed, outside
from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord

MOST_ENTRIES = 256
_NOT_IN_NAMES = re.compile(r"[^\w.-]")
_LONGEST = 100  # characters of a task, which the names of files hold beside others


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
