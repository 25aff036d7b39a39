"""Makes the buffer that an agent learns from, and counts what it will hold."""

from dataclasses import replace
from typing import NamedTuple

import torch

from rainbow_iqn_apex.agents.interface import Learnable
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import longest_held, most_chunks
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.options.agent_options import least_rows, preset_of
from rainbow_iqn_apex.programs.learner.world import ALONE, World

_SIZES = frozenset({"memory_capacity", "nb_actor", "nb_env_per_actor"})


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
    batch, start = args.batch_size // ranks, -(-args.learn_start // ranks)
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
