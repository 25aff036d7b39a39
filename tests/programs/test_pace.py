"""How many updates a round has: by the steps played, or by what waits in a queue."""

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Row, StepType
from rainbow_iqn_apex.programs.learner.gauges import PARTS
from rainbow_iqn_apex.programs.learner.ingest import Ingest
from rainbow_iqn_apex.programs.learner.learner import Learner
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress, QueuePace, StepPace
from rainbow_iqn_apex.programs.learner.world import RoundState
from tests.conftest import random_rows
from tests.small import FREE
from tests.specs import discrete

SPEC = ChunkSpec(1, 0, 5, 1, 5, 5, prioritised=False)
BATCH = 3
LEARN_START = 100
CPU = torch.device("cpu")


def limiter_of(*, synchronize: bool, steps: int = 40) -> RateLimiter:
    return RateLimiter.of(
        synchronize=synchronize, wanted_steps=steps, nb_env_per_actor=1, nb_actor=1, max_chunks=100, crews=()
    )


def arguments(*more: str) -> options.Args:
    given = ["--learn-start", str(LEARN_START), "--T-max", "1000", "--force", *more]
    return options.parse(given, "test", "")


def step_pace(
    progress: Progress,
    *more: str,
    waits: bool = False,
    steps: int | None = None,
    ready: bool = True,
    buffer: Any = None,
) -> StepPace:
    agent: Any = SimpleNamespace(steps_per_update=steps)
    more = ("--agent", "r2d2" if waits else "rainbow", *more)
    buffer = buffer or SimpleNamespace(ready=lambda: ready)
    args = arguments(*more)
    return StepPace(args, agent, buffer, limiter_of(synchronize=args.synchronize_actors_with_learner), progress)


def state_of(pace: StepPace | QueuePace, new_steps: int = 0) -> RoundState:
    return RoundState(refills=pace.refills, fresh_steps=pace.fresh_steps(), new_steps=new_steps)


def updates(pace: StepPace | QueuePace, progress: Progress) -> list[int]:
    """Make the updates of a round; returns the agent steps after each call for more."""
    progress.T_learner = pace.begin(state_of(pace))
    made = []
    while turns := pace.turns(state_of(pace)):
        progress.T_learner = turns[-1].step
        made.append(progress.T_learner)
        if isinstance(pace, QueuePace):
            assert isinstance(pace._queue, Queue)
            pace._queue.sample(BATCH)
    pace.end()
    return made


@pytest.mark.parametrize(
    ("more", "played", "steps", "rounds"),
    [
        # The first round's updates begin where the steps played are.
        (["--replay-frequency", "10"], 120, None, [[130, 140, 150, 160], [170, 180, 190, 200]]),
        # An agent's updates stand for 25 steps: what a round did too much the next one does less.
        (["--replay-frequency", "10"], 120, 25, [[145, 170], [195, 220], [245]]),
        ([], 130, 300, [[430], [], [], [], [], [], [], [730]]),
        # Without lockstep no weights are published again: 28 MB of R2D2's went to Redis eight times for each update.
        (FREE, 130, 300, [[430], [730], [1030]]),
    ],
)
def test_a_round_has_updates_for_the_steps_that_were_played(
    more: list[str], played: int, steps: int | None, rounds: list[list[int]]
) -> None:
    # Mutations: begin the first round's at 0; without lockstep one round after the other.
    progress = Progress("run", T_actors=played)
    pace = step_pace(progress, *more, steps=steps)
    assert [updates(pace, progress) for _ in rounds] == rounds


@pytest.mark.parametrize("capacity", [1000, LEARN_START + 20])
def test_learning_begins_after_agent_steps_and_not_after_rows(capacity: int) -> None:
    """In episodes of one step every second row is LAST, so a replay of `capacity` rows holds half as many steps."""
    # Mutations: count LAST rows in `ChunkSpec.steps`; wait for steps that a full replay never holds; begin when it is
    # full; begin at learn-start instead of the steps played.
    spec = ChunkSpec(1, 0, 6, 1, 6, 1, prioritised=False)
    replay = Replay(spec, discrete((1,), "uint8", 2), capacity, torch.Generator(), CPU, learn_start=LEARN_START)
    assembler, progress = Assembler(spec, 0, lambda _: None), Progress("run")
    pace = step_pace(progress, steps=10, buffer=replay)
    for t in range(1000):
        row = Row(np.zeros(1, np.uint8), StepType.LAST if t % 2 else StepType.FIRST, 0.0, 0.0)
        if chunk := assembler.add(row, 0, {}, {}):
            replay.add(ChunkId(0, t), chunk)
            progress.T_actors += spec.steps(chunk.rows["step_type"])
        if pace.may_update():
            break
    assert LEARN_START <= progress.T_actors < LEARN_START + 6 // 2
    assert pace.begin(RoundState()) == progress.T_actors


def refilled_pace(progress: Progress, rows: list[int], *more: str) -> StepPace:
    """Return a pace that finds a replay without enough rows, until there is one in `rows`."""
    agent: Any = SimpleNamespace(steps_per_update=10)
    buffer: Any = SimpleNamespace(ready=lambda: bool(rows))
    args = arguments("--agent", "r2d2", *more)
    pace = StepPace(args, agent, buffer, limiter_of(synchronize=args.synchronize_actors_with_learner), progress)
    assert pace.may_update() == bool(rows)
    return pace


def test_steps_that_fill_a_lost_replay_again_are_not_learned_from() -> None:
    # Mutations: go on where the updates were before the loss; do so without a loss.
    for rows, first in (list[int](), 570), ([1], 450):
        progress = Progress("run", T_actors=400, T_learner=440, round_end=480)
        pace = refilled_pace(progress, rows)
        progress.T_actors = 560
        rows.append(1)
        made = updates(pace, progress)
        assert (made[0], made[-1]) == (first, first + 30)
        progress.T_actors = 600
        assert updates(pace, progress)[0] == made[-1] + 10
    progress = Progress("run", T_actors=400, T_learner=440, round_end=480)
    pace = refilled_pace(progress, rows := [])
    rows.append(1)
    progress.T_actors = 1200
    assert updates(pace, progress) == [] and progress.T_learner == 1200, "the run ends"


def test_without_lockstep_a_learner_goes_on_behind_the_steps_that_have_passed() -> None:
    # Mutations: let none pass; pass those, too, that nothing was lost before; pass beyond T-max.
    for rows, ends in (list[int](), [*range(540, 581, 10)]), ([1], [*range(440, 481, 10)]):
        progress = Progress("run", T_actors=500, T_learner=430, round_end=440)
        pace = refilled_pace(progress, rows, *FREE)
        for _ in range(2):  # the learner may be stopped between them, and resumed
            take(50, pace, progress)
        rows.append(1)
        assert pace.may_update()
        assert updates(pace, progress) + updates(pace, progress) == ends
        assert not pace.refills
    progress = Progress("run", T_actors=500, T_learner=930, round_end=940)
    take(200, refilled_pace(progress, [], *FREE), progress)
    assert progress.T_learner == 1000


def test_a_learner_that_waits_for_rows_goes_on_when_a_lost_replay_is_full() -> None:
    # Mutation: let all steps pass until an update is made, for which it would wait for ever.
    progress = Progress("run", T_actors=500, T_learner=495, round_end=540)
    pace = refilled_pace(progress, rows := [], *FREE)
    take(100, pace, progress)
    rows.append(1)
    take(5, pace, progress)
    assert progress.T_learner == 600 and not pace.may_update()
    take(10, pace, progress)
    assert pace.may_update() and updates(pace, progress) == [610]


def test_a_loss_is_noted_before_new_messages_fill_the_buffer() -> None:
    # Mutation: note it when they have come, or never.
    rows, progress = [1], Progress("run", T_actors=500, T_learner=430, round_end=440)
    pace = refilled_pace(progress, rows, *FREE)
    ingest: Any = SimpleNamespace(
        counted={}, _pace=pace,
        reader=SimpleNamespace(take_backlog=lambda *known: iter([] if known else [None])),
        _buffer=SimpleNamespace(forget=lambda _: rows.clear(), room=1),
    )  # fmt: skip
    next(Ingest._backlog(ingest))
    rows.append(1)
    assert pace.refills and pace.may_update()


def test_speeds_are_measured_behind_what_the_log_held() -> None:
    # Mutation: measure before: a resumed run seems ten times as fast for a minute.
    done: list[str] = []
    nothing = SimpleNamespace(close=lambda: None, take_backlog=lambda: "backlog", gather_last=lambda: "last")
    learner: Any = SimpleNamespace(
        _args=arguments(), _progress=Progress("run", T_learner=1000), _ingest=nothing, lead=None,
        _clock=LoopClock(*PARTS), _begin=lambda: None, _leave=done.append,
        _take_in=done.append, _measure_anew=lambda: done.append("measure"),
    )  # fmt: skip
    Learner.run(learner)
    assert done == ["backlog", "measure", "last", "finished"]


@pytest.mark.parametrize("begins", [0, 1000])
def test_speeds_are_measured_behind_the_first_updates_of_a_process(begins: int) -> None:
    # Mutation: measure behind the run's first updates alone: a resumed run seems as slow as its actors start.
    done: list[str] = []
    learner: Any = SimpleNamespace(
        _progress=Progress("run", T_learner=begins), _has_trained=False, _measure_anew=lambda: done.append("measure"),
        _pace=SimpleNamespace(begin=lambda _: 1010, turns=lambda _: [], end=lambda: done.append("round")),
        _buffer=SimpleNamespace(forget=lambda _: None), _ingest=SimpleNamespace(reader=SimpleNamespace(read={})),
    )  # fmt: skip
    for _ in range(2):
        Learner._train(learner, RoundState())
    assert done == ["round", "measure", "round"]


def take(steps: int, pace: StepPace, progress: Progress) -> None:
    """Take in so many agent steps."""
    progress.T_actors += steps
    pace.pass_steps(state_of(pace, steps))


def test_a_run_that_could_learn_nothing_up_to_its_end_is_refused() -> None:
    # Mutation: begin all the same, and the run has finished without an update.
    for played in (1000, 1300):
        with pytest.raises(UserError, match=rf"^--T-max: the first {played} agent steps were played before"):
            step_pace(Progress("run", T_actors=played)).begin(RoundState())
    assert step_pace(Progress("run", T_actors=999)).begin(RoundState()) == 999


def test_without_lockstep_only_agents_that_wait_are_held_back_by_the_actors() -> None:
    for waits, wanted in ((False, [130, 140, 150, 160]), (True, [130])):
        progress = Progress("run", T_actors=120)
        pace = step_pace(progress, *FREE, waits=waits, steps=10)
        progress.T_learner = pace.begin(RoundState())
        progress.T_actors = 139
        assert updates(pace, progress) == wanted
        assert pace.may_update() != waits
        progress.T_actors = 165
        assert pace.may_update()


@cache
def chunks() -> list[Chunk]:
    assembler, rows = Assembler(SPEC, 0, lambda _: None), random_rows(np.random.default_rng(4), 400, 1)
    made = (assembler.add(row, action, {}, state) for row, action, _, state in rows)
    return [chunk for chunk in made if chunk]


def queue_of(count: int) -> tuple[Queue, list[int]]:
    """A queue of so many chunks, and the agent steps of each."""
    queue = Queue(SPEC, 10**6, BATCH, torch.Generator(), CPU)
    for number, chunk in enumerate(chunks()[:count], start=1):
        queue.add(ChunkId(0, number), chunk)
    return queue, [int((chunk.rows["step_type"][:5] != StepType.LAST).sum()) for chunk in chunks()[:count]]


def test_a_queue_is_learned_from_as_long_as_batches_wait_and_counts_their_steps() -> None:
    queue, steps = queue_of(11)
    assert min(steps) < 5, "there are LAST rows, which are no agent steps"
    progress = Progress("run")
    pace = QueuePace(arguments(), queue, limiter_of(synchronize=True), progress)
    assert updates(pace, progress) == [sum(steps[: 3 * n]) for n in (1, 2, 3)]
    assert not pace.may_update() and queue.chunks == 2, "two chunks wait for a third one"
    assert updates(pace, progress) == []


def test_without_lockstep_a_round_of_a_queue_ends_for_weights_to_be_published() -> None:
    queue, steps = queue_of(30)
    progress = Progress("run")
    pace = QueuePace(arguments(*FREE), queue, limiter_of(synchronize=False, steps=20), progress)
    first = updates(pace, progress)
    assert len(first) == 2 and first[0] < 20 <= first[1], "not before the steps of a round are learned from"
    assert updates(pace, progress)[0] == sum(steps[:9])


def test_a_queue_is_not_learned_from_beyond_the_end_of_the_run() -> None:
    queue, _ = queue_of(30)
    progress = Progress("run", T_learner=1000)
    assert updates(QueuePace(arguments(), queue, limiter_of(synchronize=True), progress), progress) == []


def test_what_is_waited_for_is_what_an_update_needs() -> None:
    # Mutation: speak of transitions in the replay wherever rows are missing.
    progress = Progress("run", T_actors=120)
    assert step_pace(progress, *FREE, ready=False).awaited == f"{LEARN_START} transitions in the replay"
    behind = step_pace(progress, *FREE, waits=True, steps=25)
    progress.T_learner = behind.begin(RoundState())
    assert not behind.may_update() and behind.awaited == "the actors to play the next update's 25 agent steps"
    queue, _ = queue_of(2)
    waiting = QueuePace(arguments("--batch-size", "3", *FREE), queue, limiter_of(synchronize=False), progress)
    assert not waiting.may_update() and waiting.awaited == "3 sequences in the queue"
