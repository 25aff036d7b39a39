"""Evaluates a snapshot: one episode per seed, under the rules of training, noise on and no epsilon."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from agents import snapshot
from agents.interface import Agent
from agents.programs import observation_of, open_environment, select_device
from agents.published import sizes_of
from agents.randomness import derive_seed
from agents.registry import make_agent
from args import Args
from command_line import flag_of
from memory.errors import Stopped, UserError
from memory.rows import Arrays
from saber.environment import Environment
from saber.scores import EpisodeRecord
from saber.summary import format_summary, summarise
from saber.vector import VectorEnvironment

_FROM_SETTINGS = ("history_length", "V_min", "V_max")  # what the weights' shapes do not tell, or not always


def network_args(args: Args, saved: dict[str, Any]) -> Args:
    """The settings with the network's sizes read from a snapshot, so that nobody has to repeat them.

    Raises UserError if the weights have other names or shapes than those of Rainbow-IQN and Rainbow, or are of another
    game.
    """
    try:
        sizes = sizes_of(saved["model_state_dict"])
    except ValueError as error:
        raise UserError(f"--model: {args.model} is not of Rainbow-IQN or Rainbow: {error}") from error
    del sizes["nb_actions"]
    settings = _settings(saved)
    for name in ("env", "game"):
        learned, asked = settings.get(name, getattr(args, name)), getattr(args, name)
        if learned != asked and not args.force:
            raise UserError(
                f"{flag_of(name)}: {args.model} has learned {learned}, not {asked}; --force evaluates it so"
            )
    return replace(args, **{name: settings[name] for name in _FROM_SETTINGS if name in settings} | sizes)


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run that a snapshot of this program is of; others have none."""
    try:
        settings = json.loads(saved.get("settings", "{}"))
    except (TypeError, ValueError):
        return {}
    return settings if isinstance(settings, dict) else {}


def play_episode(
    agent: Agent, weights: dict[str, torch.Tensor], environment: Environment, seed: int, stop: threading.Event
) -> EpisodeRecord:
    """One episode, in which `seed` decides everything that the agent draws; raises Stopped."""
    generator = torch.Generator(next(iter(weights.values())).device).manual_seed(seed)
    agent.parts["generator"].load_state_dict({"state": generator.get_state()})
    agent.load(weights)
    vector = VectorEnvironment([environment])
    rows, state = vector.reset(), Arrays()
    while not stop.is_set():
        decision, state = agent.act(rows, state, None)
        after = vector.step(decision.actions)
        if after.episodes:
            return after.episodes[0]
        rows = after.rows
    raise Stopped


def run_evaluation(args: Args, stop: threading.Event) -> None:
    """Print the scores of a snapshot over `--evaluation-episodes` seeds; a stop keeps the episodes finished so far."""
    if args.model is None:
        raise UserError("--model: name the snapshot to evaluate, as in --model results/best_model_pong.pth")
    saved = snapshot.load(args.model, "--model")
    args = network_args(args, saved)
    device = select_device(args)
    print(f"{args.model} plays {args.task}: {args.evaluation_episodes} episodes on {device}", flush=True)
    records: list[EpisodeRecord] = []
    try:
        for record in _episodes(args, saved, device, stop):
            records.append(record)
            print(
                f"episode {record.episode}: score {record.score_saber:g}, at 30 minutes {record.score_30min:g}, "
                f"at 5 minutes {record.score_5min:g}, {record.length} steps, {record.end}",
                flush=True,
            )
    finally:
        if records:
            print(format_summary(summarise(records, args.action_repeat)), flush=True)


def _episodes(
    args: Args, saved: dict[str, Any], device: torch.device, stop: threading.Event
) -> Iterator[EpisodeRecord]:
    agent: Agent | None = None
    weights = {name: tensor.to(device) for name, tensor in saved["model_state_dict"].items()}
    for episode in range(args.evaluation_episodes):
        seed = derive_seed(args.seed, 4, episode)
        environment = open_environment(args, seed)
        if agent is None:
            sizes = (observation_of(environment), environment.nb_actions)
            agent = make_agent(args, *sizes, device, learns=False, seed=seed)
            snapshot.restore_weights(agent, saved)
        record = play_episode(agent, weights, environment, seed, stop)
        environment.close()
        yield replace(record, episode=episode)
