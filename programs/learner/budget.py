"""The buffer that a learner's agent needs, and what a run needs of memory and disk.

What a run needs is printed before the run starts, and a run without room is refused: a run that ends after three days
because something is full is worse than one that does not begin. What depends on the settings is computed; the constants
are upper bounds of what was measured. All figures are bytes.
"""

import re
import shutil
from dataclasses import replace
from typing import NamedTuple

import torch

from rainbow_iqn_apex.agents.interface import Learnable
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.access import LOCAL
from rainbow_iqn_apex.memory.broker.admin import MemoryUse, memory_use
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.log import READ_AHEAD
from rainbow_iqn_apex.memory.broker.scripts import READ_BYTES
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import longest_held, most_chunks
from rainbow_iqn_apex.memory.mixture.tables import most_measured
from rainbow_iqn_apex.memory.queue import LOG_ROWS, Queue
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.options.agent_options import least_rows, preset_of
from rainbow_iqn_apex.programs.learner.world import ALONE, World
from rainbow_iqn_apex.programs.machine import (
    Need,
    actor_bytes,
    available_memory,
    gigabytes,
    own_server_bytes,
    refuse,
)

_SIZES = frozenset({"memory_capacity", "nb_actor", "nb_env_per_actor"})
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


class Held(NamedTuple):
    """Chunks of a full buffer."""

    at_once: int
    in_log: int  # insertions for which the log must keep a chunk, as the buffer may hold it


def capacity(args: Args, agent: Learnable, limiter: RateLimiter) -> int:
    """Return the rows that the agent's buffer has room for: in lockstep, all of a round waits in a queue at once."""
    if agent.buffer == "replay":
        return args.memory_capacity
    most = max(crew.nb_actor for crew in limiter.crews)  # what an earlier crew has left waiting is there, too
    nb_env = args.nb_env * most // limiter.crews[-1].nb_actor
    round_ = 2 * limiter.most_steps + nb_env * agent.spec.period  # an episode of one step has two rows
    return max(args.memory_capacity, (round_ if limiter.synchronize else 0) + args.batch_size * agent.spec.period)


def few_rows(args: Args, agent: Learnable) -> str:
    """Return a line about a replay with few rows for each environment; empty for another buffer, or enough rows.

    A preset's own sizes are taken as they are, as they were chosen by what was learned with them.
    """
    each = args.memory_capacity // args.nb_env
    least = least_rows(preset_of(args.preset, type(args.own), pictures=args.sees_pictures))
    if agent.buffer != "replay" or each >= least or not args.given & _SIZES:
        return ""
    return (
        f"Replay has room for {each} rows of each environment ({args.nb_env} of them); below {least} it holds few "
        "episodes of each, and learning may suffer: raise --memory-capacity, or play in fewer environments"
    )


def share_of(args: Args, ranks: int) -> Args:
    """Return the settings of each of so many ranks; raises UserError for what they cannot divide."""
    if ranks == 1:
        return args
    divided = {"nb_actor": args.nb_actor, "memory_capacity": args.memory_capacity, "batch_size": args.batch_size}
    for name, value in divided.items():
        if value % ranks and name not in args.own.UNUSED:
            raise UserError(f"{flag_of(name)}: {value} cannot be divided among {ranks} learners; give a multiple")
    batch = args.batch_size // ranks
    start = -(-args.learn_start // ranks)
    own = replace(args, memory_capacity=args.memory_capacity // ranks, batch_size=batch, learn_start=start)
    if errors := args.own.size_errors(args.nb_env // ranks, batch):
        raise UserError(f"{errors[0]} (in each of {ranks} learners)")
    return own


def make_buffer(
    args: Args, agent: Learnable, environment: EnvironmentSpec, generator: torch.Generator, world: World = ALONE
) -> Buffer:
    """Make the buffer that the agent needs, on the generator's device; `memory_capacity` as `capacity` returns it."""
    rows = args.memory_capacity
    if agent.buffer == "replay":
        return Replay(
            agent.spec,
            environment,
            rows,
            generator,
            generator.device,
            learn_start=args.learn_start,
            priority_weight=(args.priority_weight, args.final_priority_weight),
            least_of_all=world.least if world.size > 1 else None,
            new_at_largest=agent.new_at_largest,
        )
    if (mixing := agent.mixing) is None:
        return Queue(agent.spec, rows, args.update_size, generator, generator.device)
    return Mixture(
        agent.spec,
        environment,
        mixing.mix,
        args.batch_size,
        generator,
        generator.device,
        queue_capacity=rows,
        settings=mixing.sampling,
        measure=mixing.measure,
    )


def held(args: Args, agent: Learnable) -> Held:
    """Count the chunks of a full buffer; `memory_capacity` as `capacity` returns it."""
    chunks = -(-args.memory_capacity // agent.spec.period)
    if (mixing := agent.mixing) is None:
        return Held(chunks, chunks)
    slots = max(args.batch_size, chunks)
    return Held(most_chunks(mixing.mix, slots, mixing.sampling), longest_held(mixing.mix, slots, mixing.sampling))


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
