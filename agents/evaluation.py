"""Evaluates a snapshot: one episode per seed, under the rules of training, noise on and no epsilon."""

import json
import threading
from contextlib import closing
from dataclasses import replace
from typing import Any

import torch

from agents import snapshot
from agents.interface import Agent
from agents.programs import observation_of, open_environment, select_device
from agents.published import sizes_of
from agents.randomness import derive_seed
from agents.registry import make_agent
from args import Args, verify
from command_line import flag_of
from memory.errors import Stopped, UserError
from memory.rows import Arrays
from saber.environment import Environment
from saber.scores import EpisodeRecord
from saber.summary import format_summary, summarise
from saber.vector import VectorEnvironment

# What belongs to a policy, and the weights' shapes do not tell, or not always: what it sees, how its values are read,
# how long an action and a noise draw last.
_OF_POLICY = ("history_length", "V_min", "V_max", "num_quantile_samples", "replay_frequency", "action_repeat")
_RULES = ("proba_sticky_actions", "disable_SABER_mode")


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
    settings = _settings(args, saved)
    for name in ("env", "game"):
        learned, asked = settings.get(name, getattr(args, name)), getattr(args, name)
        if learned != asked and not args.force:
            raise UserError(
                f"{flag_of(name)}: {args.model} has learned {learned}, not {asked}; --force evaluates it so"
            )
    args = replace(args, **{name: settings[name] for name in _OF_POLICY if name in settings} | sizes)
    if errors := verify(args):
        raise UserError("\n".join(f"--model: the settings in {args.model} make no sense: {text}" for text in errors))
    return args


def other_rules(args: Args, saved: dict[str, Any]) -> list[str]:
    """Lines about the rules under which a snapshot was trained, if it is evaluated under others."""
    settings = _settings(args, saved)
    return [
        f"{flag_of(name)} is {getattr(args, name)}, and was {settings[name]} in training"
        for name in _RULES
        if settings.get(name, getattr(args, name)) != getattr(args, name)
    ]


def _settings(args: Args, saved: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run that a snapshot of this program is of; others have none."""
    try:
        settings = json.loads(saved.get("settings", "{}"))
    except (TypeError, ValueError):
        return {}
    if not isinstance(settings, dict):
        return {}
    return {name: value for name, value in settings.items() if type(value) is type(getattr(args, name, None))}


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
    environment = open_environment(replace(args, render=False), args.seed)
    environment.close()
    agent = make_agent(args, observation_of(environment), environment.nb_actions, device, learns=False, seed=args.seed)
    snapshot.restore_weights(agent, saved)
    for line in other_rules(args, saved):
        print(line, flush=True)
    print(f"{args.model} plays {args.task}: {args.evaluation_episodes} episodes on {device}", flush=True)
    weights = {name: tensor.to(device) for name, tensor in saved["model_state_dict"].items()}
    records: list[EpisodeRecord] = []
    try:
        for episode in range(args.evaluation_episodes):
            seed = derive_seed(args.seed, 4, episode)
            with closing(open_environment(args, seed)) as environment:
                record = replace(play_episode(agent, weights, environment, seed, stop), episode=episode)
            records.append(record)
            print(
                f"episode {record.episode}: score {record.score_saber:g}, at 30 minutes {record.score_30min:g}, "
                f"at 5 minutes {record.score_5min:g}, {record.length} steps, {record.end}",
                flush=True,
            )
    finally:
        if records:
            print(format_summary(summarise(records, environment.action_repeat)), flush=True)
