"""What must hold of everything that the actors of a run have said: CartPole, played again row by row."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, decode_message
from rainbow_iqn_apex.memory.rows import Arrays, StepType, section
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.chaos.notes import Taken

Messages = dict[int, list[tuple[int, Message]]]  # by actor, each with its number


class Play(NamedTuple):
    """What one environment has lived through."""

    rows: Arrays  # of all its chunks, one after the other
    episodes: list[tuple[float, int]]  # score and length of those that ended in the rows


def check_streams(
    streams: dict[int, list[tuple[int, bytes]]], states: dict[int, bytes], spec: ChunkSpec, envs: int
) -> Messages:
    """Every actor's messages follow each other without gap or double, and tell one uninterrupted play.

    `states` are what the actors have left; returns the decoded messages.
    """
    decoded = {}
    for actor, stream in streams.items():
        sequences = [sequence for sequence, _ in stream]
        assert sequences == list(range(1, len(stream) + 1)), f"actor {actor}: {_first_jump(sequences)}"
        messages = [decode_message(data, 1 << 20) for _, data in stream]
        decoded[actor] = list(zip(sequences, messages, strict=True))
        assert isinstance(messages[0], Joined), f"actor {actor} never joined"
        assert not any(isinstance(message, Joined) for message in messages[1:]), f"actor {actor} began anew"
        left = wire.decode(states[actor], max_header=wire.MAX_STATE_HEADER_BYTES)
        for env in range(envs):
            where = f"actor {actor}, environment {env}"
            chunks = [message for message in messages if isinstance(message, Chunk) and message.env == env]
            play = replay(chunks, spec, section(left.arrays, f"rows{env}."), where)
            assert np.sum(play.rows["step_type"] != StepType.LAST) == left.meta["step"], (
                f"{where}: steps were lost or doubled"
            )
            told = [message.record for message in messages if isinstance(message, Episode)]
            told = [record for record in told if record["env"] == env]
            numbers = [record["episode"] - left.meta["first_episode"] for record in told]  # more than 0: it joined late
            assert numbers == list(range(len(told))), f"{where}: episodes' numbers"
            scores = [(record["score_saber"], record["length"]) for record in told]
            assert scores == play.episodes, f"{where}: the episodes told are not those played"
            assert scores, f"{where}: nothing was played to its end"
    return decoded


def _first_jump(sequences: list[int], before: int = 0) -> str:
    for sequence in sequences:
        if sequence != before + 1:
            return f"message {sequence} after {before}"
        before = sequence
    return ""


def replay(chunks: list[Chunk], spec: ChunkSpec, unfinished: Arrays, where: str) -> Play:
    """Join the windows of an environment, the unfinished one last, and see that the game leads from row to row."""
    assert chunks, f"{where} has sent nothing"
    windows = [chunk.rows for chunk in chunks] + [unfinished]
    ends = []
    for i, (before, window) in enumerate(pairwise(windows)):
        if cut := _cut(before, window, spec):
            ends.append(cut)
            continue
        repeated = spec.window - spec.period
        for name in before:
            np.testing.assert_array_equal(
                before[name][-repeated:], window[name][:repeated], f"{where}: {name} after chunk {i} does not join"
            )
        ends.append(spec.prefix + spec.period)
    rows: Arrays = {}
    for name in chunks[0].rows:
        parts = [window[name][spec.prefix : end] for window, end in zip(windows[:-1], ends, strict=True)]
        rows[name] = np.concatenate([*parts, unfinished[name][spec.prefix :]])
    return Play(rows, list(_episodes(rows, where)))


def _cut(before: Arrays, window: Arrays, spec: ChunkSpec) -> int:
    """Return at which row of a chunk a round ended and the next chunk begins; 0 if the chunk is whole.

    What the row saw and earned stands in both, but in the first as a LAST row, and nothing but blank rows follow it.
    """
    prefix, begins_with = spec.prefix, {name: array[spec.prefix :][:1] for name, array in window.items()}
    if (begins_with["step_type"] == StepType.LAST).any():
        return 0  # no round ends there, as no action would follow
    played = np.flatnonzero(before["step_type"] != StepType.LAST)
    after = int(played[-1]) + 1 if len(played) else prefix
    for end in range(max(after, prefix), min(after + 2, spec.window)):  # an episode's own LAST row may come before
        joins = all(np.array_equal(before[name][end - prefix : end], window[name][:prefix]) for name in before)
        same = all(
            np.array_equal(before[name][end : end + len(begins_with[name])], begins_with[name])
            for name in ("obs", "reward", "discount")
        )
        if joins and same and not any(before[name][end + 1 :].any() for name in ("obs", "reward", "discount")):
            return end
    return 0


def _episodes(rows: Arrays, where: str) -> Iterable[tuple[float, int]]:
    game: Any = gymnasium.make("CartPole-v1").unwrapped
    score, length = 0.0, 0
    assert rows["step_type"][0] == StepType.FIRST, f"{where} does not begin at the beginning"
    for i, step_type in enumerate(rows["step_type"]):
        if step_type == StepType.FIRST:
            assert i == 0 or rows["step_type"][i - 1] == StepType.LAST, (
                f"{where}, row {i}: an episode begins within another"
            )
            game.reset(seed=0)
            score, length = 0.0, 0
            continue
        assert rows["step_type"][i - 1] != StepType.LAST, f"{where}, row {i}: an episode goes on after its end"
        game.state = rows["obs"][i - 1].astype(np.float64)
        obs, reward, terminated, *_ = game.step(int(rows["action"][i - 1]))
        np.testing.assert_allclose(
            obs, rows["obs"][i], atol=1e-5, err_msg=f"{where}, row {i}: the game leads elsewhere"
        )
        assert reward == rows["reward"][i]
        score, length = score + float(reward), length + 1
        if step_type == StepType.LAST:
            assert terminated == (rows["discount"][i] == 0)
            yield score, length
        else:
            assert not terminated, f"{where}, row {i}: the pole has fallen, and the episode goes on"
    game.close()


def check_scores(messages: Messages, csv: Path) -> None:
    """The training log has every episode that was told, once."""
    told = {
        (actor, int(message.record["env"]), int(message.record["episode"])): message.record["score_saber"]
        for actor, stream in messages.items()
        for _, message in stream
        if isinstance(message, Episode)
    }
    records = read_records(csv)
    logged = {(record.actor, record.env, record.episode): record.score_saber for record in records}
    assert len(logged) == len(records), "an episode is counted twice"
    assert logged == told, f"{len(told.keys() - logged.keys())} episodes are missing from the training log"


def check_what_was_read(taken: list[Taken], messages: Messages) -> dict[int, int]:
    """Learners read each stream without a gap, each from where it was trimmed to; returns how far they have come.

    A learner that resumes may trim what its predecessors have taken in and it has not read again, if it needs none of
    it: what is learned from is checked elsewhere.
    """
    readers: dict[tuple[str, int], list[int]] = defaultdict(list)
    for it in taken:
        readers[it.process, it.actor].append(it.sequence)
    newest = dict.fromkeys(messages, 0)
    for (process, actor), sequences in readers.items():
        assert sequences == sorted(set(sequences)), f"learner {process} read messages of actor {actor} twice"
        new = [sequence for sequence in sequences if sequence > newest[actor]]
        begin = newest[actor] + 1
        assert new == list(range(begin, begin + len(new))), (
            f"learner {process} never read messages of actor {actor}: {_first_jump(new, newest[actor])}"
        )
        newest[actor] += len(new)
    return newest


def check_replay(saved: dict[str, Any], messages: Messages, slots: int) -> None:
    """The learner holds each actor's newest chunks, as many as fit."""
    chunks = {
        actor: [(sequence, message) for sequence, message in stream if isinstance(message, Chunk)]
        for actor, stream in messages.items()
    }
    ids = saved["replay"]["ids"].tolist()
    assert len(ids) == min(slots, sum(len(stream) for stream in chunks.values())), "the replay is not full"
    for actor, stream in chunks.items():
        held = sorted(sequence for owner, sequence in ids if owner == actor)
        newest = [sequence for sequence, _ in stream][len(stream) - len(held) :]
        assert held == newest, f"the replay has gaps in actor {actor}'s"


def check_steps(saved: dict[str, Any], messages: Messages, spec: ChunkSpec) -> None:
    """Without lockstep, the learner has counted each step once; in lockstep it counts rounds."""
    rows = slice(spec.prefix, spec.prefix + spec.period)
    chunks = (message for stream in messages.values() for _, message in stream if isinstance(message, Chunk))
    steps = sum(int((chunk.rows["step_type"][rows] != StepType.LAST).sum()) for chunk in chunks)
    assert saved["T_actors"] == steps, "transitions are missing or counted twice"
