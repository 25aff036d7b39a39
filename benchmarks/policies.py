"""What a policy scores that does not look at the game: random actions, and one action all the time."""

import statistics
from collections.abc import Callable

import numpy as np

from memory.rows import StepType
from saber.atari import NB_ACTIONS
from saber.environment import EnvironmentSettings
from saber.registry import make_environment

_TRIALS = 5  # episodes per action from which the best one is chosen; its score comes from others


def play(game: str, seed: int, episodes: int, choose: Callable[[int], int]) -> list[float]:
    """Scores of consecutive episodes under SABER's rules; `choose` gets the number of actions."""
    environment = make_environment(EnvironmentSettings(game=game), seed)
    scores = []
    for _ in range(episodes):
        row, score = environment.reset(), 0.0
        while row.step_type != StepType.LAST:
            row = environment.step(choose(NB_ACTIONS))
            score += float(row.reward)
        scores.append(score)
    environment.close()
    return scores


def random_policy(game: str, seed: int, episodes: int) -> list[float]:
    """Scores under uniformly random actions."""
    generator = np.random.default_rng(seed)
    return play(game, seed, episodes, lambda actions: int(generator.integers(actions)))


def best_constant_action(game: str, seed: int, episodes: int) -> tuple[int, list[float]]:
    """The action that scores most when it is always taken, and its scores in new episodes."""
    trials = {action: statistics.mean(play(game, seed, _TRIALS, _always(action))) for action in range(18)}
    best = max(trials, key=lambda action: trials[action])
    return best, play(game, seed + 1, episodes, _always(best))


def _always(action: int) -> Callable[[int], int]:
    return lambda _: action
