"""How fast experience gets from actors through Redis into the replay, and how many bytes it takes.

Writers append what actors would, as fast as the rate limiter allows, in processes of their own; the learner's inbox and
replay take it in here. One core of each process, and Redis, share the machine.
"""

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Comparison, Work, beside_first, compare
from benchmarks.processes import RedisServer
from benchmarks.workloads import ATARI, GAMES, SPEC, random_chunks
from rainbow_iqn_apex.common.checkout import ROOT
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.log import ExperienceReader
from rainbow_iqn_apex.memory.broker.run_client import RunOver
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.messages import decode_message, encode_message
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.programs.learner.ingest import actor_messages
from rainbow_iqn_apex.programs.process import prepare_processor

_COMMIT = 4  # chunks of a commit
_CHUNKS = 12  # of each game
_REPORT_S = 0.02  # as often as a learner reports and trims
_READY_S = 120.0  # longest until all writers have written
_WANTED = 100_000  # transitions a second through Redis
_NAME = "benchmark"
_RUN = "run"
_STATE_BYTES = 40_000  # what an actor's state takes
_UNREAD = 1024  # messages that the learner has not read yet, at most: it reports each second how many it has read


@dataclass(frozen=True)
class System:
    """Holds the learner's end, which is here, of a run with writers."""

    writers: int
    client: LearnerClient
    inbox: ExperienceReader


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Measure the bytes of each game's chunks, the speed of each part, and of all of it through Redis."""
    games = GAMES[:2] if args.quick else GAMES
    chunks = [chunk for game in games for chunk in random_chunks(game, _CHUNKS)]
    sizes = {game: _bytes_each(random_chunks(game, _CHUNKS)) for game in games}
    print("bytes a transition: " + ", ".join(f"{game} {size:.0f}" for game, size in sizes.items()))
    print(f"on average {statistics.mean(sizes.values()):.0f}, wanted at most 250", end="\n\n")
    slots = 20 if args.quick else 200
    return [_parts(chunks, slots, args), _through_redis(args, slots)]


def _bytes_each(chunks: tuple[Chunk, ...]) -> float:
    return statistics.mean(len(encode_message(chunk)) for chunk in chunks) / SPEC.period


def _parts(chunks: list[Chunk], slots: int, args: argparse.Namespace) -> Comparison:
    replay = _empty_replay(slots)
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
    return compare("parts, one core", "transitions/s", works, args, per_call=len(chunks) * SPEC.period)


def _empty_replay(slots: int) -> Replay:
    """Return a replay with room for so many chunks."""
    return Replay(SPEC, ATARI, slots * SPEC.period, torch.Generator().manual_seed(0), torch.device("cpu"))


def _through_redis(args: argparse.Namespace, slots: int) -> Comparison:
    rates = {f"{writers} writers": _flow(writers, args, slots) for writers in ((1,) if args.quick else (1, 2))}
    found = beside_first("actors, Redis, replay", "transitions/s", rates)
    print(f"through Redis, best of the medians: {max(rate.median for rate in found.rates):,.0f}, wanted {_WANTED:,}\n")
    return found


def _flow(writers: int, args: argparse.Namespace, slots: int) -> list[float]:
    replay = _empty_replay(slots)
    window = 0.5 if args.quick else 2.0
    with _running(writers, games=2 if args.quick else len(GAMES)) as system:
        _await_writers(replay, system)
        _take_in(replay, system, window)
        return [_take_in(replay, system, window) for _ in range(args.repeats)]


def _take_in(replay: Replay, system: System, seconds: float) -> float:
    """Return the transitions a second that arrive in the replay; reports and trims as often as a learner does."""
    client = system.client
    inbox = system.inbox
    end = time.monotonic() + seconds
    start = time.monotonic()
    chunks = 0
    next_report = 0.0
    while (now := time.monotonic()) < end:
        inbox.wait(WaitReporter("the writers"))
        for chunk_id, message in inbox.take_all():
            if isinstance(message, Chunk):
                chunks += 1
                replay.add(chunk_id, message)
        if now >= next_report:
            client.write_progress("running", 0, 0, inbox.read)
            client.trim(replay.oldest())
            next_report = now + _REPORT_S
    return chunks * SPEC.period / (time.monotonic() - start)


def _await_writers(replay: Replay, system: System) -> None:
    """Take in what arrives until each writer has written; raises RunError if one has not in time."""
    end = time.monotonic() + _READY_S
    while not all(system.inbox.read[actor] for actor in range(system.writers)):
        if time.monotonic() > end:
            raise RunError(f"a writer has written nothing within {_READY_S:.0f} sec")
        _take_in(replay, system, 0.2)


@contextmanager
def _running(writers: int, games: int) -> Iterator[System]:
    """Start a Redis server, the learner's end and writers of chunks of so many games, and end them."""
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer())
        client = stack.enter_context(closing(connect("127.0.0.1", server.port)))
        learner = stack.enter_context(LearnerClient(client, _NAME, {}, writers))
        learner.lead(_RUN)
        schema = actor_messages(SPEC, ATARI, nb_env=1)
        inbox = stack.enter_context(closing(learner.inbox(schema, threading.Event())))
        learner.write_progress("running", 0, 0, inbox.read)
        _start_writers(stack, writers, games, server.port)
        yield System(writers, learner, inbox)


def _start_writers(stack: ExitStack, writers: int, games: int, port: int) -> None:
    """Start processes that append chunks of all games in turn, and end them with the stack."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_chunks_")))
    made = zip(*(random_chunks(game, _CHUNKS) for game in GAMES[:games]), strict=True)
    for number, chunk in enumerate(itertools.chain.from_iterable(made)):
        (folder / f"{number:03}").write_bytes(encode_message(chunk))
    for actor in range(writers):
        words = [str(word) for word in (folder, port, actor, _COMMIT)]
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.transport", *words], cwd=ROOT)
        stack.callback(process.wait)
        stack.callback(process.kill)


def write(folder: Path, port: int, actor: int, chunks: int) -> None:
    """Append chunks that were made before, so many at once, until the learner is gone."""
    made = [decode_message(path.read_bytes(), 10**7) for path in sorted(folder.iterdir())]
    server = connect("127.0.0.1", port)
    state = np.random.default_rng(0).bytes(_STATE_BYTES)
    with ActorClient(server, _NAME, _RUN, actor, threading.Event()) as client, suppress(RunOver):
        for at in itertools.count(step=chunks):
            client.commit([made[(at + i) % len(made)] for i in range(chunks)], state)
            client.record()
            while client.unread() > _UNREAD:
                client.record()
                time.sleep(0.001)


if __name__ == "__main__":
    prepare_processor()  # as actors do: pages of freed memory would be faulted in for each chunk again
    folder, *numbers = sys.argv[1:]
    write(Path(folder), *map(int, numbers))
