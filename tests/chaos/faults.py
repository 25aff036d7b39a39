"""A seeded schedule of faults, in bursts of one to three that happen at the same time to different targets."""

import random
from typing import NamedTuple

LEARNER, REDIS = "learner", "redis"
# How often each kind is drawn. Killing costs a system the time of a lease, so there is more of what costs less.
_KINDS = {
    "kill": 3,
    "terminate": 2,
    "freeze": 4,
    "freeze past the lease": 1,
    "reset": 4,
    "cut": 4,
    "delay": 4,
    "drop": 3,
    "drop silently": 1,
}
_KINDS_OF_REDIS = {"kill": 3, "freeze": 2}
_ALONE = {"usurp": "actor", "intrude": ""}  # nothing else at that time may loosen the hold on the lease
_ALONE_IN = 8  # bursts


class Fault(NamedTuple):
    """What happens to whom, and for how long if it lasts."""

    kind: str
    who: str  # "learner", "redis" or an actor's number
    seconds: float


def schedule(seed: int, count: int, actors: int) -> list[list[Fault]]:
    """At least `count` faults; the first bursts hold each kind once, so that a short schedule misses none."""
    dice = random.Random(seed)
    processes = [LEARNER, *map(str, range(actors))]
    bursts = [[_draw(dice, kind, dice.choice(processes))] for kind in _KINDS]
    bursts += [[_draw(dice, kind, REDIS)] for kind in _KINDS_OF_REDIS]
    bursts += [[_draw(dice, "kill", who)] for who in processes]
    bursts += [[_alone(dice, kind, processes)] for kind in _ALONE]
    dice.shuffle(bursts)
    while sum(map(len, bursts)) < count:
        if dice.randrange(_ALONE_IN) == 0:
            bursts.append([_alone(dice, dice.choice(list(_ALONE)), processes)])
        else:
            targets = dice.sample([*processes, REDIS], dice.randint(1, 3))
            bursts.append([_draw_any(dice, who) for who in targets])
    return bursts


def _draw_any(dice: random.Random, who: str) -> Fault:
    kinds = _KINDS_OF_REDIS if who == REDIS else _KINDS
    return _draw(dice, dice.choices(list(kinds), list(kinds.values()))[0], who)


def _draw(dice: random.Random, kind: str, who: str) -> Fault:
    return Fault(kind, who, round(dice.uniform(0.05, 1.0), 2))


def _alone(dice: random.Random, kind: str, processes: list[str]) -> Fault:
    return _draw(dice, kind, dice.choice(processes[1:] if _ALONE[kind] else processes))
