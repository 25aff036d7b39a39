"""Random actions beside the noise of Rainbow's networks: their share by step and place; none are drawn unasked."""

import math

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.q_learning.agent import exploration_rates
from rainbow_iqn_apex.agents.q_learning.options import QLearningOptions
from rainbow_iqn_apex.args import parse
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.rows import Rows, StepType
from tests.agents import sequences
from tests.agents.sequences import random_row
from tests.agents.test_agents import ACTIONS, agent_of, every_agent, rows_of


def share(place: int, nb_env: int, step: int, options: QLearningOptions) -> float:
    """The formula, a number at a time."""
    s = place / (nb_env - 1) if nb_env > 1 else 0.5
    low, high = options.epsilon_end, options.epsilon_ladder or options.epsilon_end
    end = math.exp((1 - s) * math.log(low) + s * math.log(high)) if low else 0.0
    return end + (1 - end) * (math.exp(-step / options.epsilon_decay) if options.epsilon_decay else 0)


@pytest.mark.parametrize("nb_env", [1, 2, 5])
@pytest.mark.parametrize("ladder", [0.0, 0.4])
@pytest.mark.parametrize(("end", "decay"), [(0.01, 0.0), (0.01, 700.0), (0.0, 700.0)])
def test_shares_follow_the_formula(nb_env: int, ladder: float, end: float, decay: float) -> None:
    # Mutations: s = i / N; a ladder from its upper end down; (1 - end) left out; a linear ladder.
    options = QLearningOptions(epsilon_end=end, epsilon_ladder=ladder if end else 0.0, epsilon_decay=decay)
    for step in (0, 300, 5000):
        found = exploration_rates(torch.arange(nb_env), nb_env, step, options)
        expected = [share(place, nb_env, step, options) for place in range(nb_env)]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@every_agent
def test_environments_explore_by_their_places(name: str) -> None:
    # Mutations: the first places of all for each actor; random actions in evaluations; `until` that is not looked at.
    words = "--epsilon-end 0.1 --epsilon-ladder 0.9 --epsilon-until 5000 --learn-start 10 --nb-actor 2 --force".split()
    agent = agent_of(name, *words, "--nb-env-per-actor", "2000", "--id-actor", "1", learns=False)
    rows = rows_of(np.random.default_rng(0), [StepType.FIRST]).obs
    same = rows_of(np.random.default_rng(0), [StepType.FIRST] * 2000)
    same = same._replace(obs=np.repeat(rows, 2000, 0))
    for step, places, expected in (
        (100, None, 0.6),  # the upper half: the mean of 0.1 * 9^s over s from 0.5 to 1
        (100, np.arange(2000), 0.2),
        (5000, None, 0.0),
        (None, None, 0.0),
    ):
        actions = agent.act(same, {}, step, places)[0].actions
        counts = np.bincount(actions, minlength=ACTIONS) / 2000
        others = (1 - counts.max()) * ACTIONS / (ACTIONS - 1)
        if expected:
            s = np.linspace(0.5, 1, 2000) if places is None else np.linspace(0, 0.5, 2000)
            assert abs(others - (0.1 * 9**s).mean()) < 0.05
        elif name == "rainbow":  # quantile fractions are drawn for each environment
            assert others == 0


@pytest.mark.parametrize(
    ("name", "more", "share"),
    [
        ("rainbow", "--noisy-std 0", 0.001),
        ("rainbow", "--noisy-std 0 --epsilon-end 0.5", 0.001),
        ("rainbow", "--epsilon-end 0.5", 0.0),
        ("pqn", "--exploration-end 0.5", 0.001),
        ("r2d2", "", 0.001),
    ],
)
def test_an_evaluation_without_noise_has_a_few_random_actions(name: str, more: str, share: float) -> None:
    # Mutations: none; those of training; noise and random actions. A policy without them may wait for ever.
    make = agent_of if name == "rainbow" else sequences.agent_of
    agent, rng = make(name, *more.split(), learns=False), np.random.default_rng(0)
    row = rows_of(rng, [StepType.FIRST]) if name == "rainbow" else Rows.stack([random_row(rng, StepType.FIRST, 5)])
    rows = Rows(*(np.repeat(part, 4000, 0) for part in row))
    others = 0
    for _ in range(20):
        actions = agent.act(rows, {}, None)[0].actions
        others += int((actions != np.bincount(actions).argmax()).sum())
    assert abs(others - share * 80_000 * (1 - 1 / 3)) <= (40 if share else 0)  # of three actions, or more


@every_agent
def test_nothing_is_drawn_for_exploration_that_is_off(name: str) -> None:
    # Mutation: draw random actions, and take none of them.
    rows = rows_of(np.random.default_rng(0), [StepType.FIRST] * 3)
    states = []
    for step in (None, 10**6):
        agent = agent_of(name, learns=False)
        agent.act(rows, {}, step)
        states.append(agent.generator.get_state())
    assert torch.equal(*states)


def test_a_ladder_needs_its_lower_end() -> None:
    with pytest.raises(
        UserError,
        match=r"^--epsilon-ladder: it begins at --epsilon-end, which must be above 0; or give --epsilon-ladder 0$",
    ):
        parse(["--epsilon-ladder", "0.4"], "test", "")
