"""Makes views of an agent that acts: what it sees, and what it thinks of that.

An agent that is watched acts as one that is not.
"""

import time
from dataclasses import replace

import numpy as np

from rainbow_iqn_apex.agents.policy import Inspection, Policy
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, unpack
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows
from rainbow_iqn_apex.monitoring.view import View


def inspect(policy: Policy, rows: Rows, state: Arrays) -> tuple[Array, Inspection | None]:
    """Return the observation of environment 0 and what the agent thinks of it; changes nothing.

    `rows` and `state` are what the agent is about to act on.
    """
    first = Rows(*(array[:1].copy() for array in rows))
    before = {name: array[:1].copy() for name, array in state.items()}
    drawn = policy.random_state()
    try:
        return first.obs[0], policy.inspect(first, before)
    finally:
        if drawn is not None:
            policy.restore_random_state(drawn)


def make_view(policy: Policy, spec: EnvironmentSpec, rows: Rows, state: Arrays, step: int, version: int) -> View:
    """Return a view of environment 0, after `step` of its agent steps, with weights of this version.

    Of observations of several kinds the first is shown: a picture if there is one.
    """
    observation, thought = inspect(policy, rows, state)
    kinds = unpack(spec.observation, observation)
    seen = View(time.time(), step, version, _shown(kinds[0]), parts=spec.parts if kinds[0].ndim == 1 else ())
    if thought is None:
        return seen
    curves = () if thought.curves is None else tuple(map(tuple, thought.curves.tolist()))
    places = () if thought.places is None else tuple(thought.places.tolist())
    actions = tuple(thought.actions.tolist())
    return replace(seen, kind=thought.kind, actions=actions, value=thought.value, places=places, curves=curves)


def _shown(kind: Array) -> Array:
    """Return planes of bits as pictures of black and white, and all else as it is."""
    return kind.astype(np.uint8) * 255 if kind.dtype == np.bool_ else kind
