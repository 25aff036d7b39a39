"""Computes what a run will need of memory and disk, prints it before the run starts, and refuses a run without room.

A run that ends after three days because something is full is worse than one that does not begin. What depends on the
settings is computed; the constants are upper bounds of what was measured. All figures are bytes.
"""

import re
import shutil
from typing import NamedTuple

import torch

from rainbow_iqn_apex.agents.interface import Learnable
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.access import LOCAL
from rainbow_iqn_apex.memory.broker.admin import MemoryUse, memory_use
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.log import READ_AHEAD
from rainbow_iqn_apex.memory.broker.scripts import READ_BYTES
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.mixture.tables import most_measured
from rainbow_iqn_apex.memory.queue import LOG_ROWS
from rainbow_iqn_apex.programs.learner.buffers import held
from rainbow_iqn_apex.programs.machine import (
    Need,
    actor_bytes,
    available_memory,
    gigabytes,
    own_server_bytes,
    refuse,
)

_LEARNER = 670_000_000  # Python, PyTorch, temporaries of a Rainbow agent's update
_READ_SHARE = 8  # of the bytes of one read of the log: Python's objects for many small messages take six times as much
_PIECES = 1.5  # two threads that allocate at a time leave gaps between what they hold
_REDIS = 10_000_000
_STATE = 100_000  # of an environment: emulator, frame stack and unfinished rows, stored with every commit
_ATARI_ROW = 250  # compressed; 40 to 130 in random play, more where more is going on
_ROW = 36  # a row's other fields, without its action and an agent's extras
_PLAIN = frozenset({"obs", "step_type", "reward", "discount"})
_PLACE = 200  # of a chunk in replay or queue: its name and its priority
_SAVED = 64  # of a chunk in a mixture's checkpoint: its name, its priority and its places
_LOG_SHARE = 2  # of the replay in Redis: kept for the older of two checkpoints; half a replay may follow each of them
_FILE_SHARE = 3  # of the log: Redis rewrites its file when the file has doubled, and keeps the old file meanwhile
_PLOT = 5_000_000  # of a game


class Sizes(NamedTuple):
    """Bytes of a learner's parts."""

    learner: int  # all that is neither of the others
    update: int  # of the agent's device
    replay: int  # of the replay's device


def chunk_bytes(spec: ChunkSpec, environment: EnvironmentSpec) -> int:
    """Count the bytes of a chunk's rows, with the agent's extras, and of its state."""
    rows = sum(field.nbytes for field in spec.row_fields(environment).values())
    return spec.window * rows + _state_bytes(spec)


def _state_bytes(spec: ChunkSpec) -> int:
    return sum(field.nbytes for _, field in spec.state)


def replay_bytes(args: Args, agent: Learnable, environment: EnvironmentSpec) -> int:
    """Count the bytes of a full buffer."""
    return held(args, agent).at_once * (chunk_bytes(agent.spec, environment) + _PLACE)


def update_bytes(args: Args, agent: Learnable, environment: EnvironmentSpec) -> int:
    """Estimate the bytes of an update's batch, and of what the agent computes from it.

    A mixture measures sequences before its batch is chosen; where batches are prepared ahead, a thread does so while
    the agent computes, and all these batches are held.
    """
    spec = agent.spec
    mixing = agent.mixing
    size = args.update_size or -(-args.memory_capacity // spec.period)
    batch = size * chunk_bytes(spec, environment) * spec.sample_window // spec.window
    update = batch + agent.update_bytes(size)
    if mixing is None:
        return update
    sequences = most_measured(mixing.mix, size, mixing.sampling)
    measured = sequences * chunk_bytes(spec, environment) + mixing.measure_bytes(sequences)
    if args.queue_size == 1:
        return max(update, measured)
    return int(_PIECES * (update + measured + (args.queue_size - 1) * batch))


def check_learner(
    args: Args,
    agent: Learnable,
    environment: EnvironmentSpec,
    place: torch.device,
    client: Client,
    kept: int,
    learners: int = 1,
) -> None:
    """Print what the run needs; raises UserError if there is less and --force is not given.

    `place` is where the buffer's chunks will be, `kept` how many snapshots of weights alone the run leaves. Each of
    several `learners` counts Redis's log of all, as there is one server.
    """
    weights = 4 * sum(parameter.numel() for parameter in agent.model.parameters())
    check_chunk(agent.spec, environment)
    learner = _LEARNER + _READ_SHARE * READ_BYTES + 5 * weights  # with gradients, two moments, and the target network
    learner += own_server_bytes(args, weights)
    learner += READ_AHEAD * chunk_bytes(agent.spec, environment)
    sizes = Sizes(learner, update_bytes(args, agent, environment), replay_bytes(args, agent, environment))
    use = memory_use(client, args.name, args.redis_shards)
    if use.evicting and not args.force:
        raise UserError(
            f"{client.where}: this server drops keys when its memory is full (maxmemory-policy {use.evicting}), and a "
            "run that loses keys waits for ever: set noeviction, or --force starts it all the same"
        )
    missing = max(0, _redis_bytes(args, agent, environment, weights, learners) - use.ours)
    needs = _redis_and_learner(missing, sizes, place, agent.generator.device, use)
    file = _FILE_SHARE * missing if use.file and use.host in LOCAL else 0
    free = shutil.disk_usage(args.path_to_results).free
    what = "results and Redis's file" if file else "results"
    disk = (
        file + max(0, _files_bytes(args, agent, weights, kept) - _present_bytes(args)) + _PLOT * (3 + len(args.entries))
    )
    needs.append(Need(what, disk, free, "free on the disk", "--path-to-results: make room there"))
    actor = actor_bytes(args) + (weights if args.inference == "local" else 0)
    print(f"Budget: {'; '.join(map(str, needs))}; each actor {gigabytes(actor)}", flush=True)
    refuse(needs, args)


def check_chunk(spec: ChunkSpec, environment: EnvironmentSpec) -> None:
    """Raise UserError for settings whose chunks are larger than the learner reads."""
    size = chunk_bytes(spec, environment) + wire.MAX_HEADER_BYTES
    if size > READ_BYTES:
        raise UserError(
            f"--history-length: a chunk of {spec.window} rows has up to {size} bytes, and the learner reads messages "
            f"of {READ_BYTES} at most: choose a shorter one, or shorter sequences"
        )


def _redis_bytes(args: Args, agent: Learnable, environment: EnvironmentSpec, weights: int, learners: int = 1) -> int:
    spec = agent.spec
    seen = environment.observation.nbytes
    if environment.observation.dtype == "uint8":  # floats can hardly be compressed
        seen = min(seen, _ATARI_ROW)
    others = [field for name, field in spec.row_fields(environment).items() if name not in _PLAIN]
    row = seen + _ROW + sum(field.nbytes for field in others)
    chunks = held(args, agent).in_log
    if agent.buffer != "replay":
        chunks = max(chunks, LOG_ROWS // spec.period)
    log = learners * _LOG_SHARE * chunks * (row * spec.window + _state_bytes(spec))  # what overlaps is sent each time
    return _REDIS + log + 2 * args.redis_shards * weights + args.nb_env * _STATE


def _files_bytes(args: Args, agent: Learnable, weights: int, kept: int) -> int:
    """Count the bytes of two checkpoints, the best snapshot, a file that is being written, and `kept` weights alone."""
    model = 3 * weights // 2  # with its noise
    moments = published = 2 * weights  # of Adam; of the two newest versions
    checkpoint = 2 * model + moments + published + 5 * args.memory_capacity  # a target network; priorities
    if agent.buffer == "mixture":
        checkpoint += _SAVED * held(args, agent).at_once
    return 4 * checkpoint + kept * model


def _present_bytes(args: Args) -> int:
    """Count the bytes of the task's files that a resumed run has written already."""
    names = re.compile(rf"(best_|last_)?model_{re.escape(args.task)}(_\d+)?\.pth")
    paths = (path for path in args.path_to_results.glob("*.pth") if names.fullmatch(path.name))
    return sum(path.stat().st_size for path in paths)


def _redis_and_learner(
    missing: int, sizes: Sizes, place: torch.device, device: torch.device, use: MemoryUse
) -> list[Need]:
    smaller = "--memory-capacity: choose a smaller one"
    remedy = "--batch-size: choose a smaller one" if sizes.update > sizes.replay else smaller
    parts = ((sizes.update, device), (sizes.replay, place))
    host, gpu = (sum(size for size, where in parts if where.type == type_) for type_ in ("cpu", "cuda"))
    host += sizes.learner
    needs = [Need("learner", host, available_memory(), "free here", remedy)]
    if gpu:
        what = "update and replay" if place.type == "cuda" else "update"
        needs.append(Need(what, gpu, torch.cuda.mem_get_info(device)[0], "free on the GPU", remedy))
    if use.limit:
        room = use.limit - use.used
        needs.append(Need("Redis", missing, room, "left of its maxmemory", "raise maxmemory, or " + smaller))
    elif use.host in LOCAL:
        needs[0] = Need("learner and Redis", host + missing, available_memory(), "free here", remedy)
    else:
        needs.append(Need("Redis", missing, use.machine - use.used, "of its machine", smaller))
    return needs
