"""The learner's program: finds out what to resume, builds the parts and runs them."""

import json
import math
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agents import snapshot
from agents.interface import Agent
from agents.learner import Learner, Progress
from agents.programs import make_limiter, observation_of, open_environment, select_device
from agents.registry import derive_seed, make_agent
from agents.reports import Reports
from args import Args, flag_of
from memory import wire
from memory.chunk import Field
from memory.errors import UserError
from memory.learner_link import LearnerLink
from memory.replay import Replay
from memory.transport import connect

_GPU_SHARE = 0.6  # of the free GPU memory that --replay-device auto gives to the replay


def run_learner(args: Args, stop: threading.Event) -> None:
    """Train the run of these settings until T-max or until this process shall stop."""
    path = snapshot.find_last_model(args.path_to_results, args.game)
    saved = snapshot.load(path, "--path-to-results") if path else None
    progress = _progress(saved)
    if saved:
        _refuse_other_settings(args, saved, path)
    if progress.T_learner >= args.T_max:
        print(
            f"The run is finished already at T = {progress.T_learner}: move {args.path_to_results} away to start afresh"
        )
        return
    best_mean = saved["best_mean"] if saved else -math.inf
    reports = Reports(args.path_to_results, args.game, args.action_repeat, best_mean)
    client = connect(args.host_redis, args.port_redis)
    device = select_device(args)
    agent, observation = _agent(args, device)
    if saved:
        snapshot.restore(agent, saved)
        print(f"Resuming from {path} at T = {progress.T_learner}", flush=True)
    elif args.model:
        snapshot.restore_weights(agent, snapshot.load(args.model, "--model"))
        print(f"Starting from the weights of {args.model}", flush=True)
    with LearnerLink(client, args.name, progress.run_id, args.shared, args.nb_actor) as link:
        replay = _replay(args, agent, observation, device)
        learner = Learner(args, agent, replay, link, reports, progress, make_limiter(args, agent), stop)
        if saved:
            learner.resume(saved)
        print(f"Learner of run {args.name!r} on {device}, replay on {replay.device}", flush=True)
        learner.run(first_start=saved is None)


def _refuse_other_settings(args: Args, saved: dict[str, Any], path: Path | None) -> None:
    """A run goes on as it began, but for its length: its experience and its actors' states fit nothing else."""
    before, now = json.loads(saved["settings"]), args.shared
    errors = [
        f"{flag_of(name)}: was {before[name]!r} when {path} was saved, is {now[name]!r}; resume with the same "
        "settings, or start afresh in another --path-to-results"
        for name in now.keys() & before.keys() - {"T_max"}
        if before[name] != now[name]
    ]
    if errors:
        raise UserError("\n".join(sorted(errors)))


def _progress(saved: dict[str, Any] | None) -> Progress:
    if saved is None:
        return Progress(uuid.uuid4().hex[:12])
    return Progress(**{name: saved[name] for name in Progress.__dataclass_fields__})


def _agent(args: Args, device: torch.device) -> tuple[Agent, Field]:
    environment = open_environment(replace(args, render=False), args.seed)
    observation = observation_of(environment)
    nb_actions = environment.nb_actions
    environment.close()
    agent = make_agent(args, observation, nb_actions, device, learns=True, seed=derive_seed(args.seed, 0))
    return agent, observation


def _replay(args: Args, agent: Agent, observation: Field, device: torch.device) -> Replay:
    if args.replay_device == "cpu" or device.type == "cpu":
        place = torch.device("cpu")
    elif args.replay_device == "cuda":
        place = device
    else:
        row = math.prod(observation.shape) * wire.DTYPES[observation.dtype].itemsize
        needed = args.memory_capacity * row * agent.spec.window / agent.spec.stride
        place = device if needed < _GPU_SHARE * torch.cuda.mem_get_info(device)[0] else torch.device("cpu")
    generator = torch.Generator(place).manual_seed(derive_seed(args.seed, 3))
    return Replay(agent.spec, observation, args.memory_capacity, generator, place)
