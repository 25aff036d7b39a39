"""Plays an episode with a policy that begins anew; for evaluations, and for evaluation actors during a run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.environments.interface import Environment, act, gained
from rainbow_iqn_apex.environments.scores import EpisodeRecord, EpisodeScore
from rainbow_iqn_apex.memory.rows import Arrays, Rows, StepType
from rainbow_iqn_apex.monitoring.video import TimeLapse

if TYPE_CHECKING:
    from torch import Tensor


class Stop(Protocol):
    """A request to stop: an event of a thread or a process, or what looks further (`programs/actor/evaluation.py`)."""

    def is_set(self) -> bool:
        """Return whether playing shall stop; may raise what ends it."""


def begin_anew(policy: Policy, weights: "dict[str, Tensor]", version: int, seed: int) -> None:
    """Let a policy begin anew with weights of this version, and let `seed` decide everything that it draws."""
    policy.reseed(seed)
    policy.load(weights, version)


def play_episode(
    policy: Policy,
    environment: Environment,
    episode: int,
    stop: Stop,
    codes: Sequence[int] = (),
    camera: TimeLapse | None = None,
    watch: Callable[[Rows, Arrays], None] = lambda _rows, _state: None,
) -> EpisodeRecord:
    """Play an episode of this number from its beginning to its end; `codes` as of `action_codes`. Raises Stopped.

    A camera needs an environment that keeps its pictures; `watch` sees what the agent is about to act on.
    """
    score = EpisodeScore(environment.action_repeat)
    row = environment.reset()
    state = Arrays()
    while True:
        if camera is not None:
            camera.add(environment.pictures)
        if row.step_type == StepType.LAST:
            return score.record(0, episode, environment.end)
        if stop.is_set():
            raise Stopped
        rows = Rows.stack([row])
        watch(rows, state)
        output, state = policy.act(rows, state, None)
        row = act(environment, codes[output.actions[0]] if codes else output.actions[0])
        score.add(gained(environment, row))
