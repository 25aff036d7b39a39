"""What a policy scores that does not look at the game: random actions, and one action all the time."""

import statistics
from collections.abc import Callable
from contextlib import closing
from itertools import product
from typing import TypeAlias

import numpy as np

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete
from rainbow_iqn_apex.memory.rows import Array, StepType

_TRIALS = 5  # episodes per action from which the best one is chosen; its score comes from others
_CONSTANTS = 64  # actions that are tried at the most
_LEVELS = (-1.0, 0.0, 1.0)  # of all numbers of a Box at once

Action: TypeAlias = int | Array


def play(
    settings: EnvironmentSettings, seed: int, episodes: int, choose: Callable[[ActionSpec], Action]
) -> list[float]:
    """Return the scores of consecutive episodes, of Atari under SABER's rules; `choose` gets what the actions are."""
    environment = make_environment(settings, seed)
    scores = []
    for _ in range(episodes):
        row, score = environment.reset(), 0.0
        while row.step_type != StepType.LAST:
            row = environment.step(choose(environment.spec.action))
            score += float(row.reward)
        scores.append(score)
    environment.close()
    return scores


def random_action(action: ActionSpec, generator: np.random.Generator) -> Action:
    """Draw an action uniformly."""
    if isinstance(action, Discrete):
        return int(generator.integers(action.count))
    if isinstance(action, Box):
        return generator.uniform(-1, 1, action.size).astype(np.float32)
    return generator.integers(action.counts)


def random_policy(settings: EnvironmentSettings, seed: int, episodes: int) -> list[float]:
    """Return scores under uniformly random actions."""
    generator = np.random.default_rng(seed)
    return play(settings, seed, episodes, lambda action: random_action(action, generator))


def constant_actions(action: ActionSpec) -> list[Action]:
    """Return the actions of which the best constant one is chosen.

    These are all choices, and of a Box the lowest, middle and highest numbers. Raises ValueError for too many choices.
    """
    if isinstance(action, Discrete):
        return list(range(action.count))
    if isinstance(action, Box):
        return [np.full(action.size, level, np.float32) for level in _LEVELS]
    if np.prod(action.counts, dtype=float) > _CONSTANTS:
        raise ValueError(f"more than {_CONSTANTS} combinations of choices: {action}")
    return [np.array(choices) for choices in product(*map(range, action.counts))]


def best_constant_action(settings: EnvironmentSettings, seed: int, episodes: int) -> tuple[Action, list[float]]:
    """Return the action that scores most when it is always taken, and its scores in new episodes."""
    with closing(make_environment(settings, seed)) as environment:
        actions = constant_actions(environment.spec.action)
    trials = [statistics.mean(play(settings, seed, _TRIALS, _always(action))) for action in actions]
    best = actions[trials.index(max(trials))]
    return best, play(settings, seed + 1, episodes, _always(best))


def _always(action: Action) -> Callable[[ActionSpec], Action]:
    return lambda _: action
