"""How fast experience gets from actors through Redis into the replay, and how many bytes it takes.

    python -m benchmarks.transport

Writers append what actors would, as fast as the rate limiter allows, in processes of their own; the learner's inbox and
replay take it in here. One core of each process, and Redis, share the machine.
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch

from agents.decoder import MessageDecoder
from benchmarks.chunks import GAMES, SPEC, random_chunks
from benchmarks.environment_info import ROOT
from benchmarks.harness import Comparison, Rate, Work, compare, run
from benchmarks.redis_server import RedisServer
from memory.actor_link import ActorLink, RunOver
from memory.chunk import Chunk, ChunkId, Field
from memory.inbox import Inbox
from memory.learner_link import LearnerLink
from memory.messages import decode_message, encode_message
from memory.replay import Replay
from memory.transport import Patience, connect

_NAME, _RUN = "benchmark", "run"
_OBSERVATION = Field((84, 84), "uint8")
_COMMIT = 4  # chunks of a commit
_STATE = 40_000  # bytes that an actor's state takes
_UNREAD = 64  # messages of a writer that nobody has read yet
_CHUNKS = 12  # of each game
_WANTED = 100_000  # transitions a second through Redis


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Bytes of each game's chunks, the speed of each part, and of all of it through Redis."""
    games = GAMES[:2] if args.quick else GAMES
    chunks = [chunk for game in games for chunk in random_chunks(game, _CHUNKS)]
    sizes = {game: _bytes_each(random_chunks(game, _CHUNKS)) for game in games}
    print("bytes a transition: " + ", ".join(f"{game} {size:.0f}" for game, size in sizes.items()))
    print(f"on average {statistics.mean(sizes.values()):.0f}, wanted at most 250", end="\n\n")
    slots = 20 if args.quick else 200
    return [_parts(chunks, slots, args.repeats), _through_redis(args, slots)]


def _bytes_each(chunks: tuple[Chunk, ...]) -> float:
    return statistics.mean(len(encode_message(chunk)) for chunk in chunks) / SPEC.stride


def _parts(chunks: list[Chunk], slots: int, repeats: int) -> Comparison:
    replay = _replay(slots)
    frames = np.empty((SPEC.window, 84, 84), np.uint8)
    messages = [encode_message(chunk) for chunk in chunks]

    def add() -> None:
        for chunk in chunks:
            replay.add(ChunkId(0, replay.inserted), chunk)

    def copy() -> None:
        for chunk in chunks:
            np.copyto(frames, chunk.rows["obs"])

    works: dict[str, Work] = {
        "copy of the frames alone": copy,
        "encode": lambda: [encode_message(chunk) for chunk in chunks],
        "decode": lambda: [decode_message(message, 10**7) for message in messages],
        "add to the replay": add,
    }
    return compare("parts, one core", "transitions/s", works, per_call=len(chunks) * SPEC.stride, repeats=repeats)


def _replay(slots: int) -> Replay:
    return Replay(SPEC, _OBSERVATION, slots * SPEC.stride, torch.Generator().manual_seed(0), torch.device("cpu"))


def _through_redis(args: argparse.Namespace, slots: int) -> Comparison:
    rates = {f"{writers} writers": _flow(writers, args, slots) for writers in ((1,) if args.quick else (1, 2))}
    first = next(iter(rates.values()))
    measured = tuple(
        Rate(name, "transitions/s", tuple(rate), tuple(a / b for a, b in zip(rate, first, strict=True)))
        for name, rate in rates.items()
    )
    print(f"through Redis, best of the medians: {max(rate.median for rate in measured):,.0f}, wanted {_WANTED:,}\n")
    return Comparison("actors, Redis, replay", measured, {})


def _flow(writers: int, args: argparse.Namespace, slots: int) -> list[float]:
    replay = _replay(slots)
    window = 0.5 if args.quick else 2.0
    with _system(writers, args.quick) as (link, inbox):
        _take(replay, link, inbox, time.monotonic() + window)
        return [_take(replay, link, inbox, time.monotonic() + window) for _ in range(args.repeats)]


def _take(replay: Replay, link: LearnerLink, inbox: Inbox, end: float) -> float:
    """Transitions a second that get into the replay, with the log trimmed as a learner does."""
    start, before, next_report = time.monotonic(), replay.inserted, 0.0
    while (now := time.monotonic()) < end:
        inbox.wait(Patience("the writers"))
        for chunk_id, message in inbox.take_all():
            if isinstance(message, Chunk):
                replay.add(chunk_id, message)
        if now >= next_report:
            link.progress("running", 0, 0, inbox.read)
            link.trim(replay.oldest())
            next_report = now + 0.02
    return (replay.inserted - before) * SPEC.stride / (time.monotonic() - start)


@contextmanager
def _system(writers: int, quick: bool) -> Iterator[tuple[LearnerLink, Inbox]]:
    with ExitStack() as stack:
        port = stack.enter_context(RedisServer()).port
        link = stack.enter_context(LearnerLink(connect("127.0.0.1", port), _NAME, {}, writers))
        link.lead(_RUN)
        decode = MessageDecoder(SPEC, _OBSERVATION, nb_actions=18)
        inbox = link.inbox(decode, threading.Event(), lambda: None)
        stack.callback(inbox.close)
        link.progress("running", 0, 0, inbox.read)
        for actor in range(writers):
            command = [sys.executable, "-m", "benchmarks.transport_writer", str(port), str(actor), str(int(quick))]
            process = subprocess.Popen(command, cwd=ROOT)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield link, inbox


def write(port: int, actor: int, quick: bool) -> None:
    """Be a writer: append chunks of all games in turn until the reader is gone."""
    games = GAMES[:2] if quick else GAMES
    chunks = [random_chunks(game, _CHUNKS)[i] for i in range(_CHUNKS) for game in games]
    state = np.random.default_rng(0).bytes(_STATE)
    client = connect("127.0.0.1", port)
    with ActorLink(client, _NAME, _RUN, actor, threading.Event()) as link:
        at = 0
        while True:
            link.commit([chunks[(at + i) % len(chunks)] for i in range(_COMMIT)], state)
            at += _COMMIT
            try:
                while link.unread() > _UNREAD:
                    link.record()
                    time.sleep(0.001)
            except RunOver:
                return


if __name__ == "__main__":
    run(measure, "Experience through Redis into the replay.")
