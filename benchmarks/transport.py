"""How fast experience gets from actors through Redis into the replay, and how many bytes it takes.

Writers append what actors would, as fast as the rate limiter allows, in processes of their own; the learner's inbox and
replay take it in here. One core of each process, and Redis, share the machine.
"""

import argparse
import itertools
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.chunks import ATARI, GAMES, SPEC, random_chunks
from benchmarks.harness import Comparison, Work, beside_first, compare
from benchmarks.processes import RedisServer
from benchmarks.transport_writer import NAME, RUN
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.experience_reader import ExperienceReader
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.opening import open_servers
from rainbow_iqn_apex.memory.broker.stream_validator import UNBOUNDED
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.messages import decode_message, encode_message
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.programs.learner.decoder import MessageDecoder
from rainbow_iqn_apex.saber.results.run_record import ROOT

_COMMIT = 4  # chunks of a commit
_CHUNKS = 12  # of each game
_READY_S = 120.0  # longest until all writers have written
_WANTED = 100_000  # transitions a second through Redis


@dataclass(frozen=True)
class Writers:
    """Describes processes that append what actors would."""

    number: int
    chunks: int = _COMMIT  # of a commit
    rate: float = math.inf  # chunks a second, of each
    games: int = len(GAMES)


@dataclass(frozen=True)
class System:
    """Holds a Redis server, writers, and the learner's end, which is here."""

    redis: int  # process id
    writers: list[int]  # process ids
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
    replay = empty_replay(slots)
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


def empty_replay(slots: int) -> Replay:
    """Return a replay with room for so many chunks."""
    return Replay(SPEC, ATARI, slots * SPEC.period, torch.Generator().manual_seed(0), torch.device("cpu"))


def _through_redis(args: argparse.Namespace, slots: int) -> Comparison:
    rates = {f"{writers} writers": _flow(writers, args, slots) for writers in ((1,) if args.quick else (1, 2))}
    found = beside_first("actors, Redis, replay", "transitions/s", rates)
    print(f"through Redis, best of the medians: {max(rate.median for rate in found.rates):,.0f}, wanted {_WANTED:,}\n")
    return found


def _flow(writers: int, args: argparse.Namespace, slots: int) -> list[float]:
    replay = empty_replay(slots)
    window = 0.5 if args.quick else 2.0
    with running(Writers(writers, games=2 if args.quick else len(GAMES))) as system:
        await_writers(replay, system)
        take_in(replay, system, window)
        return [take_in(replay, system, window) for _ in range(args.repeats)]


def take_in(replay: Replay | None, system: System, seconds: float, report_s: float = 0.02) -> float:
    """Return the transitions a second that arrive, for the replay if there is one.

    Reports and trims so often, as a learner does.
    """
    client, inbox, end = system.client, system.inbox, time.monotonic() + seconds
    start, chunks, next_report = time.monotonic(), 0, 0.0
    while (now := time.monotonic()) < end:
        inbox.wait(WaitReporter("the writers"))
        for chunk_id, message, _ in inbox.take_all():
            if isinstance(message, Chunk):
                chunks += 1
                if replay:
                    replay.add(chunk_id, message)
        if now >= next_report:
            client.write_progress("running", 0, 0, inbox.read)
            client.trim(replay.oldest() if replay else inbox.read)
            next_report = now + report_s
    return chunks * SPEC.period / (time.monotonic() - start)


def await_writers(replay: Replay | None, system: System) -> None:
    """Take in what arrives, for the replay if there is one, until each writer has written.

    Raises RunError if one has not in time.
    """
    end = time.monotonic() + _READY_S
    while not all(system.inbox.read[actor] for actor in range(len(system.writers))):
        if time.monotonic() > end:
            raise RunError(f"a writer has written nothing within {_READY_S:.0f} sec")
        take_in(replay, system, 0.2)


@dataclass(frozen=True)
class LedRun:
    """Holds Redis servers, and the learner's end of a run on them."""

    redis: int  # process id, of the first
    url: str
    shards: int
    learner: LearnerClient

    def connect(self) -> Client:
        """Return another connection to the servers."""
        return open_servers(find_server("", 0, self.url, {}))


@contextmanager
def led_run(actors: int, shards: int = 1, servers: Sequence[RedisServer] = ()) -> Iterator[LedRun]:
    """Lead a run of so many actors on these servers, which run, or on one that is started for it."""
    with ExitStack() as stack:
        servers = servers or [stack.enter_context(RedisServer())]
        url = f"redis://{','.join(f'127.0.0.1:{server.port}' for server in servers)}"
        client = stack.enter_context(closing(open_servers(find_server("", 0, url, {}))))
        learner = stack.enter_context(LearnerClient(client, NAME, {}, actors, shards=shards))
        learner.lead(RUN)
        yield LedRun(servers[0].process.pid, url, shards, learner)


@contextmanager
def running(writers: Writers, streams: int = 0) -> Iterator[System]:
    """Start everything, and end it; the learner reads so many streams, at least those of the writers."""
    with led_run(max(streams, writers.number)) as run, written_to(run, writers) as system:
        yield system


@contextmanager
def written_to(run: LedRun, writers: Writers) -> Iterator[System]:
    """Start the learner's inbox and the writers, and end them."""
    with ExitStack() as stack:
        decode = MessageDecoder(SPEC, ATARI, nb_env=1)
        inbox = stack.enter_context(closing(run.learner.inbox(decode, threading.Event(), lambda: UNBOUNDED)))
        run.learner.write_progress("running", 0, 0, inbox.read)
        pids = _start_writers(stack, writers, run)
        yield System(run.redis, pids, run.learner, inbox)


def _start_writers(stack: ExitStack, writers: Writers, run: LedRun) -> list[int]:
    """Start processes that append chunks of all games in turn, and end them with the stack; return their ids."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_chunks_")))
    made = zip(*(random_chunks(game, _CHUNKS) for game in GAMES[: writers.games]), strict=True)
    for number, chunk in enumerate(itertools.chain.from_iterable(made)):
        (folder / f"{number:03}").write_bytes(encode_message(chunk))
    pids = []
    for actor in range(writers.number):
        words = [str(word) for word in (folder, run.url, run.shards, actor, writers.chunks, writers.rate)]
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.transport_writer", *words], cwd=ROOT)
        stack.callback(process.wait)
        stack.callback(process.kill)
        pids.append(process.pid)
    return pids
