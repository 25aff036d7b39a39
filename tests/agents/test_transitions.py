"""Transitions that are cut straight out of the ring equal, bit for bit, those that torch cuts out of windows.

Both are also compared with the whole episodes, which know nothing of windows.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.batch import Batch, Transitions
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.fast import ring
from rainbow_iqn_apex.memory.fast.ring import MemoryRing, RingRows
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Row, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.ground_truth import frames as slow_frames
from tests.ground_truth.episodes import Episode, random_episode
from tests.ground_truth.n_step import n_step as slow_n_step

CPU = torch.device("cpu")
GAMMA, ACTIONS = 0.87, 5


class Case(NamedTuple):
    """Sizes and settings, which are pairwise different where a mix-up could hide."""

    stack: int
    n: int
    batch: int
    observation: Field
    clip: float
    scale: float = 1.0


CASES = [
    Case(4, 3, 37, Field((10,), "uint8"), 0.6),
    Case(1, 1, 29, Field((4,), "float32"), 0.0),
    Case(2, 7, 31, Field((), "int64"), 1.0),
    Case(2, 3, 31, Field((3,), "uint8"), 0.3, 0.2),
    Case(5, 10, 1, Field((3,), "int32"), 0.25),
    Case(3, 20, 23, Field((3, 2, 3), "float32"), 0.5),
    Case(2, 4, 1, Field((2,), "uint8"), 0.0),
    Case(3, 5, 2, Field((7,), "uint8"), 0.0),
]


class Played(NamedTuple):
    """A replay that has overwritten chunks, and the place in its episode of each row, by the row's number."""

    agent: QLearningAgent
    replay: Replay
    places: list[tuple[Episode, int]]


def agent_for(case: Case) -> QLearningAgent:
    settings = f"--history-length {case.stack} --multi-step {case.n} --reward-clip {case.clip} --discount {GAMMA} "
    settings += f"--reward-scale {case.scale}"
    args = options.parse([*settings.split(), "--hidden-size", "8", "--architecture", "deep"], "test", "")
    agent = make_agent(args, EnvironmentSpec(case.observation, Discrete(ACTIONS)), CPU, learns=True, seed=1)
    assert isinstance(agent, QLearningAgent)
    return agent


def play(case: Case, seed: int) -> Played:
    """Send the rows of three streams of short episodes through assemblers; an action is its row's number."""
    rng, agent = np.random.default_rng(seed), agent_for(case)
    spec = agent.spec
    replay = Replay(
        spec,
        EnvironmentSpec(case.observation, Discrete(ACTIONS)),
        5 * spec.period,
        torch.Generator().manual_seed(seed),
        CPU,
    )
    places: list[tuple[Episode, int]] = []
    for stream in range(3):
        assembler = Assembler(spec, stream, lambda _: rng.uniform(0.5, 2, spec.samples))
        begin, sequence = len(places), 0
        while len(places) < begin + 3 * spec.period:
            episode = random_episode(rng, case.observation.shape)
            for step, frame in enumerate(episode.frames):
                last = step == len(episode.rewards)
                step_type = StepType.LAST if last else StepType.MID if step else StepType.FIRST
                arrived = (episode.rewards[step - 1], episode.discounts[step - 1]) if step else (0.0, 1.0)
                row = Row(frame.astype(case.observation.dtype), step_type, *arrived)
                places.append((episode, step))
                if chunk := assembler.add(row, len(places) - 1, {}, {}):
                    replay.add(ChunkId(stream, sequence), chunk)
                    sequence += 1
    return Played(agent, replay, places)


def copied(batch: Batch) -> Batch:
    """The batch as it is on a GPU, with all its rows."""
    return batch._replace(rows=dict(batch.rows))


def check_bits(fast: Transitions, slow: Transitions) -> None:
    for name, found, wanted in zip(Transitions._fields, fast, slow, strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
        assert found.contiguous().numpy().tobytes() == wanted.contiguous().numpy().tobytes(), name


def check_truth(played: Played, found: Transitions, case: Case) -> None:
    """Compare with the episodes; a stack may begin with the first row of a stream, before which is padding."""
    for b, number in enumerate(found.action.tolist()):
        episode, step = played.places[number]
        assert step < len(episode.rewards), "a LAST row was learned from"
        clip = case.clip or np.inf
        counted = [min(max(case.scale * reward, -clip), clip) for reward in episode.rewards]
        clipped = episode._replace(rewards=counted)
        return_, discount, steps = slow_n_step(clipped, step, case.n, GAMMA)
        assert float(found.return_[b]) == pytest.approx(return_, rel=1e-5, abs=1e-6)
        assert float(found.discount[b]) == pytest.approx(discount, rel=1e-5)
        np.testing.assert_array_equal(found.obs[b], slow_frames.stack(episode, step, case.stack))
        np.testing.assert_array_equal(found.next_obs[b], slow_frames.stack(episode, step + steps, case.stack))


def check(case: Case, seed: int = 0, broken: Callable[[Any], Any] | None = None) -> None:
    played = play(case, seed)
    assert isinstance(played.replay.ring, MemoryRing)
    with pytest.MonkeyPatch.context() as patch:
        if broken:
            patch.setattr(ring, "_cut", broken(ring._cut))
        for _ in range(12):
            batch = played.replay.sample(case.batch, 0.5)
            assert isinstance(batch.rows, RingRows)
            fast = played.agent.transitions(batch)
            check_bits(fast, played.agent.transitions(copied(batch)))
            check_truth(played, fast, case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_they_equal_those_of_windows_and_of_whole_episodes(case: Case) -> None:
    for seed in range(4):
        check(case, seed)


# --- what the check must notice ---


def changed(place: int, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a mutant of `cut`, one of whose arguments is changed."""

    def mutant(cut: Any) -> Any:
        return lambda *given: cut(*given[:place], change(given[place]), *given[place + 1 :])

    return mutant


def instead(old: StepType, new: StepType) -> Callable[[Any], Any]:
    return changed(6, lambda step_type: np.where(step_type == old, np.uint8(new), step_type))


def last_bit(cut: Any) -> Any:
    def mutant(*given: Any) -> Any:
        terms, sums, bootstrap, action = cut(*given)
        return terms, sums, np.nextafter(bootstrap, np.float32(2)), action

    return mutant


def frames_left_from_before(cut: Any) -> Any:
    """Hidden frames are not made zero: what was in their memory stays."""

    def mutant(addresses: Any, indices: Any, sizes: Any, *given: Any) -> Any:
        result = cut(addresses, indices, sizes, *given)
        count = len(indices) * sizes[4] * sizes[5]
        obs = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(addresses[0]))
        obs[obs == 0] = 77  # no frame holds a 0
        return result

    return mutant


def a_term_too_many(cut: Any) -> Any:
    def mutant(*given: Any) -> Any:
        terms, sums, bootstrap, action = cut(*given)
        return terms + 1, sums + 1, bootstrap, action

    return mutant


BROKEN = {
    "a stack goes on before FIRST": instead(StepType.FIRST, StepType.MID),
    "a sum goes on after LAST": instead(StepType.LAST, StepType.MID),
    "one step fewer": changed(3, lambda n: n - 1),
    "another gamma": changed(4, lambda gamma: gamma * (1 + 1e-6)),
    "no clipping": changed(5, lambda _: 0.0),
    "samples one off": changed(1, lambda indices: indices - 1),
    "a prefix too short": changed(2, lambda sizes: (*sizes[:3], sizes[3] - 1, *sizes[4:])),
    "discounts whose last bit differs": last_bit,
    "hidden frames are not zero": frames_left_from_before,
    "a term too many": a_term_too_many,
    "stacks swapped": changed(0, lambda given: (given[1], given[0], given[2])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_check_notices(name: str) -> None:
    with pytest.raises(AssertionError):
        check(CASES[0], broken=BROKEN[name])


def test_steps_beyond_the_window_are_refused() -> None:
    played = play(CASES[0], 0)
    rows = played.replay.sample(3, 0.5).rows
    assert isinstance(rows, RingRows)
    for n in (0, 4):
        with pytest.raises(ValueError, match="no row"):
            rows.transitions(n, 0.9, 0.0)
