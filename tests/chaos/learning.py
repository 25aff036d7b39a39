"""What must hold of the chunks that a run has learned from, and of the agent's own numbers in them."""

from bisect import bisect_right
from collections import Counter
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.sequences import SequenceAgent
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.chunk import LAST_ACTION, Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.ring import tensor_of
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import open_environment
from tests.chaos.checks import Messages
from tests.chaos.notes import Draw, Learned, Taken, fingerprint_of

_TOLERANCE = 1e-5  # of a network's outputs: one row at a time when acting, many at once here


def chunks_of(messages: Messages) -> dict[ChunkId, Chunk]:
    """Return all chunks by name, those of each actor in its order."""
    return {
        ChunkId(actor, sequence): message
        for actor, stream in messages.items()
        for sequence, message in stream
        if isinstance(message, Chunk)
    }


def check_draws(draws: list[Draw], messages: Messages) -> None:
    """Everything that was learned from is some chunk of an actor, with that chunk's own state."""
    assert draws, "nothing was learned"
    told = {chunk_id: fingerprint_of(chunk.rows, chunk.state) for chunk_id, chunk in chunks_of(messages).items()}
    for draw in draws:
        assert draw.fingerprint == told.get(draw.id), f"update {draw.step} saw other rows or another state in {draw.id}"


def check_queue(saved: dict[str, Any], draws: list[Draw], messages: Messages, spec: ChunkSpec, most: int) -> None:
    """Each chunk was learned from once, or waits for it; `most` may wait."""
    chunks = chunks_of(messages)
    learnable = {name for name, chunk in chunks.items() if spec.learnable(chunk.rows["step_type"]).any()}
    held = [ChunkId(*numbers) for numbers in saved["replay"]["ids"].tolist()]
    extra = saved["replay"]["extra"]
    waiting = [held[at] for at in extra["waiting"].tolist()] if extra else held
    assert len(waiting) <= most, f"{len(waiting)} chunks wait"
    assert saved["replay"]["first"] + len(held) == len(chunks), "chunks were counted twice, or not at all"
    draws = [draw for draw in draws if not draw.replayed]
    counts = Counter([draw.id for draw in draws] + waiting)
    twice = sorted(name for name, count in counts.items() if count > 1)
    assert not twice, f"{len(twice)} chunks were learned from twice, {twice[0]} first"
    never = sorted(learnable - counts.keys())
    assert not never, f"{len(never)} chunks were never learned from, {never[0]} first"
    for actor in messages:
        order = [name.sequence for name in counts if name.actor == actor]
        assert order == sorted(order), f"chunks of actor {actor} were learned from in another order than they were made"
    first, last = spec.prefix, spec.prefix + spec.length
    rows = sum(int((chunks[draw.id].rows["step_type"][first:last] != StepType.LAST).sum()) for draw in draws)
    assert saved["T_learner"] == rows, "rows that were learned from are missing or counted twice"


def check_replayed(saved: dict[str, Any], learned: Learned, held_for: list[int], newest: int) -> None:
    """What a mixture replays was taken in, and its table can still hold it; the checkpoint has what tables hold.

    `held_for` says of each replayed place of a batch, which are the last ones, how many insertions it takes until a
    sequence leaves at the latest; `newest` is the capacity of the largest table that holds the newest.
    """
    batch_size = 1 + max(draw.place for draw in learned.draws)
    most = [0] * (batch_size - len(held_for)) + held_for  # by place
    for draw in learned.draws:
        assert draw.replayed == (most[draw.place] > 0), f"update {draw.step} has no fixed shares"
        assert draw.age >= 0, f"update {draw.step} saw {draw.id} before it was taken in"
        if draw.replayed:
            assert draw.age < most[draw.place], f"update {draw.step} replays {draw.id}, which is gone from its table"
    for place in (place for place in range(batch_size) if most[place] == newest):  # elsewhere the newest may be best
        oldest = max(draw.age for draw in learned.draws if draw.place == place)
        assert oldest > newest / 2, f"the oldest that place {place} of a batch replays came {oldest} chunks before"
    replay = Checkpoint(**saved["replay"])
    ids = [ChunkId(*numbers) for numbers in replay.ids.tolist()]
    chosen = {name for name, at in zip(ids, replay.extra["positions"].tolist(), strict=True) if at >= 0}
    waiting = {ids[at] for at in replay.extra["waiting"].tolist()}
    assert {*ids} == {*learned.added[-newest:]} | chosen | waiting, "the tables hold something else"
    assert chosen <= {*learned.added[-max(held_for) :]}, "an elite table keeps what the log may have lost"


def check_backlog(seen: dict[int, list[float]], taken: list[Taken], most: int) -> None:
    """At no time did an actor have more than so many messages that no learner had taken in.

    A message is seen no earlier than it was appended, so more may have been taken in by then, and never less.
    """
    for actor, times in seen.items():
        ours = [it for it in taken if it.actor == actor]
        reached, moments = [0], [0.0]
        for it in ours:
            reached.append(max(reached[-1], it.sequence))
            moments.append(it.at)
        behind = [number - reached[bisect_right(moments, at) - 1] for number, at in enumerate(times, 1)]
        assert max(behind) <= most, f"actor {actor} was {max(behind)} messages ahead of the learner"


def check_policy(saved: dict[str, Any], messages: Messages, words: list[str]) -> None:
    """Each chunk's state leads to that of its actor's next one, and its policy the network's: constant weights."""
    settings = options.parse([*words, "--force"], "test", "")
    with closing(open_environment(settings, 0)) as environment:
        agent = make_agent(settings, environment.spec, torch.device("cpu"), learns=False, seed=0)
    assert isinstance(agent, SequenceAgent)
    agent.model.load_state_dict(saved["model_state_dict"])
    for actor in messages:
        for env in range(settings.nb_env_per_actor):
            found = chunks_of(messages)
            chunks = [chunk for name, chunk in found.items() if (name.actor, chunk.env) == (actor, env)]
            where = f"actor {actor}, environment {env}"
            batch = _batch(chunks)
            if agent.spec.state:
                _check_states(agent, batch, where)
            if agent.spec.extras:
                _check_extras(agent, batch, where)


def _batch(chunks: list[Chunk]) -> Batch:
    rows = {name: torch.stack([tensor_of(c.rows[name]) for c in chunks], 1) for name in chunks[0].rows}  # [T, B, ...]
    state = {name: torch.stack([tensor_of(c.state[name]) for c in chunks]) for name in chunks[0].state}  # [B, ...]
    return Batch(rows, state)


@torch.no_grad()
def _check_states(agent: SequenceAgent, batch: Batch, where: str) -> None:
    """Compare each state with the one that the rows of the chunk before lead to; a FIRST row needs none."""
    first, period = agent.spec.stack - 1, agent.spec.period
    inputs, memory = agent.learning_inputs(batch)
    _, after = agent.core(inputs.rows(0, period), memory)
    led_to = dict(zip(("hidden", "cell"), after, strict=True)) | {LAST_ACTION: batch.action[first + period - 1]}
    counts = batch.step_type[first, 1:] != StepType.FIRST  # [B - 1]
    for name, expected in led_to.items():
        _compare(batch.state[name][1:][counts], expected[:-1][counts], f"{where}: {name} is not that before its chunk")


@torch.no_grad()
def _check_extras(agent: SequenceAgent, batch: Batch, where: str) -> None:
    first = agent.spec.stack - 1
    inputs, memory = agent.learning_inputs(batch)
    assert isinstance(agent, Impala)
    now = agent.network(inputs, memory)  # [T, B, ...] each
    acted = batch.step_type[first:] != StepType.LAST  # [T, B]
    expected = {
        "log_policy": (now.log_policy, "actions of another policy"),
        "value": (now.value, "values of another network"),
        "features": (agent.features.of(now.features), "features of another network"),
    }
    for name, _ in agent.spec.extras:
        computed, wrong = expected[name]
        _compare(batch.rows[f"extras.{name}"][first:][acted], computed[acted], f"{where}: {wrong}")


def _compare(found: Tensor, expected: Tensor, message: str) -> None:
    torch.testing.assert_close(
        found, expected.to(found.dtype), rtol=0, atol=_TOLERANCE, msg=lambda details: f"{message}\n{details}"
    )
