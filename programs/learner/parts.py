"""What every learner of a run is put together from, whether it leads or not."""

from dataclasses import fields, replace
from functools import partial
from typing import Any, NamedTuple

import torch

from rainbow_iqn_apex.agents.foreign_snapshot import check_weights, differences
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.registry import AGENTS, agent_names
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import ANYWHERE, short_path
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.rows import DTYPES
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.common import launch_command
from rainbow_iqn_apex.programs.failure import failure_of
from rainbow_iqn_apex.programs.learner import budget
from rainbow_iqn_apex.programs.learner.buffers import capacity, make_buffer
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun, damage_named
from rainbow_iqn_apex.programs.learner.team import Team

_GPU_SHARE = 0.6  # of the free GPU memory that --replay-device auto gives to the replay


class Place(NamedTuple):
    """Holds what a learner works with."""

    client: Client
    device: torch.device
    environment: EnvironmentSpec


def make_learner_client(args: Args, client: Client, team: Team) -> LearnerClient:
    """Return this learner's end of the transport."""
    return LearnerClient(
        client,
        args.name,
        args.shared,
        args.nb_actor,
        folder=args.path_to_results,
        abandon_other=args.abandon_other_run,
        command=partial(launch_command, args),
        failure=partial(failure_of, client),
        shards=args.redis_shards,
        replicas=args.redis_replicas,
        rank=team.rank,
        ranks=team.size,
    )


def check_of_others(args: Args, agent: Agent) -> None:
    """Raise UserError for another package's agent whose weights cannot travel, or whose parts could not be read again.

    Its author shall learn that at the beginning, and not when the run is to go on.
    """
    if args.agent in AGENTS:
        return
    fault = check_weights(agent.model.state_dict())
    for name, tensor in agent.model.published().items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in {*DTYPES, "bfloat16"}:
            fault = fault or f"{name} is of {dtype}, which cannot be sent to actors"
    if fault:
        raise UserError(f"--agent: the network's {fault}: keep it out of its state_dict, a buffer by persistent=False")
    snapshot.check_parts(agent)


def restore_agent(args: Args, agent: Agent, saved: SavedRun | None) -> None:
    """Let the agent go on from a checkpoint, or begin from --model where there is none."""
    if saved:
        try:
            with damage_named(saved.path):
                snapshot.restore(agent, saved.content)
        except UserError as error:
            raise UserError(
                f"--path-to-results: {short_path(saved.path)} cannot be resumed from, {error}; resume with the "
                "settings of its run, or start from its weights in another folder, with --model"
            ) from error
        note = "; --model is not used" if args.model else ""
        print(f"Resuming from {short_path(saved.path)} at T = {saved.progress.T_learner}{note}", flush=True)
    elif args.model:
        model = snapshot.choose(args.model, args.task)
        content = snapshot.load(model, "--model", args.model if args.model.is_dir() else ANYWHERE)
        try:
            snapshot.restore_weights(agent, content)
        except UserError as error:
            if (other := str(snapshot.settings_of(content).get("agent"))) in {*agent_names()} - {args.agent}:
                raise UserError(
                    f"--model: {short_path(model)} holds weights of --agent {other}, which do not fit --agent "
                    f"{args.agent}: train that agent, or name a snapshot of this one"
                ) from error
            if lines := _other_sizes(args, content):
                raise UserError("\n".join(lines)) from error
            raise
        print(f"Starting from the weights of {short_path(model)}", flush=True)


def _other_sizes(args: Args, content: dict[str, Any]) -> list[str]:
    """Return a line for each setting of the snapshot's run that explains why its weights do not fit.

    These are the settings on which the shapes of weights depend. If none of them differs, it is what was played, or any
    setting of another project's agent, whose author need not mark it.
    """
    saved = {
        name: value for name, value in snapshot.settings_of(content).items() if type(value) is type(args.get(name))
    }
    saved = {name: one_line(value, 100) if isinstance(value, str) else value for name, value in saved.items()}
    own = {f.name: f.metadata.get("shape", False) for f in fields(args.own)}
    shaping = ["history_length", *(name for name, decides in own.items() if decides)]
    others = ["env", "game", *(own if args.agent not in AGENTS else ())]
    found = (differences(saved, {name: args.get(name) for name in names}) for names in (shaping, others))
    return next(filter(None, found), [])


def make_checked_buffer(
    args: Args, share: Args, team: Team, place: Place, agent: Agent, limiter: RateLimiter, kept: int = 0
) -> Buffer:
    """Make the buffer of a learner's `share`; raises UserError where there is no room for what the learner needs.

    `kept` is the number of snapshots of weights alone that it leaves.
    """
    sized = replace(share, memory_capacity=capacity(share, agent, limiter))
    is_on_host = agent.buffer == "queue"  # only its batches go to the device
    needed = 0 if is_on_host else budget.replay_bytes(sized, agent, place.environment)
    where = _replay_device(args, needed, place.device)
    held_on = torch.device("cpu") if is_on_host else where
    budget.check_learner(sized, agent, place.environment, held_on, place.client, kept, team.size)
    path = (args.seed, 3, team.rank) if team.rank else (args.seed, 3)
    generator = torch.Generator(where).manual_seed(derive_seed(*path))
    return make_buffer(sized, agent, place.environment, generator, team)


def _replay_device(args: Args, needed: int, device: torch.device) -> torch.device:
    if args.replay_device == "cuda" and device.type == "cpu":
        raise UserError("--replay-device: there is no CUDA device in use, only the CPU")
    if args.replay_device == "cpu" or device.type == "cpu":
        return torch.device("cpu")
    fits = needed < _GPU_SHARE * torch.cuda.mem_get_info(device)[0]
    return device if fits or args.replay_device == "cuda" else torch.device("cpu")
