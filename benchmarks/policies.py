"""What a policy scores that does not look at the game: random actions, and one action all the time."""

import statistics
from collections.abc import Callable
from contextlib import closing

import numpy as np

from memory.environment_spec import Discrete
from memory.rows import StepType
from saber.environment import Environment, EnvironmentSettings
from saber.registry import make_environment

_TRIALS = 5  # episodes per action from which the best one is chosen; its score comes from others


def play(settings: EnvironmentSettings, seed: int, episodes: int, choose: Callable[[int], int]) -> list[float]:
    """Scores of consecutive episodes, of Atari under SABER's rules; `choose` gets the number of actions."""
    environment = make_environment(settings, seed)
    actions = _nb_actions(environment)
    scores = []
    for _ in range(episodes):
        row, score = environment.reset(), 0.0
        while row.step_type != StepType.LAST:
            row = environment.step(choose(actions))
            score += float(row.reward)
        scores.append(score)
    environment.close()
    return scores


def _nb_actions(environment: Environment) -> int:
    assert isinstance(environment.spec.action, Discrete)
    return environment.spec.action.count


def random_policy(settings: EnvironmentSettings, seed: int, episodes: int) -> list[float]:
    """Scores under uniformly random actions."""
    generator = np.random.default_rng(seed)
    return play(settings, seed, episodes, lambda actions: int(generator.integers(actions)))


def best_constant_action(settings: EnvironmentSettings, seed: int, episodes: int) -> tuple[int, list[float]]:
    """The action that scores most when it is always taken, and its scores in new episodes."""
    with closing(make_environment(settings, seed)) as environment:
        actions = range(_nb_actions(environment))
    trials = {action: statistics.mean(play(settings, seed, _TRIALS, _always(action))) for action in actions}
    best = max(trials, key=lambda action: trials[action])
    return best, play(settings, seed + 1, episodes, _always(best))


def _always(action: int) -> Callable[[int], int]:
    return lambda _: action
