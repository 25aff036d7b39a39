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
from agents.randomness import derive_seed
from agents.registry import make_agent
from args import Args
from memory.errors import Stopped, UserError
from memory.rows import Arrays
from saber.environment import Environment
from saber.scores import EpisodeRecord
from saber.summary import format_summary, summarise
from saber.vector import VectorEnvironment

_FROM_SETTINGS = ("V_min", "V_max")  # what the weights' shapes do not tell


def network_args(args: Args, saved: dict[str, Any]) -> Args:
    """The settings with the network's sizes read from a snapshot, so that nobody has to repeat them.

    Raises UserError if the weights have other names or shapes than those of Rainbow-IQN and Rainbow, or are of another
    game.
    """
    weights = saved["model_state_dict"]
    try:
        quantiles = "iqn_fc.weight" in weights
        outputs, hidden_size = weights["fcnoisy_z_v.weight_mu"].shape
        sizes = {"rainbow_only": not quantiles, "hidden_size": hidden_size}
        sizes |= {"quantile_embedding_dim": weights["iqn_fc.weight"].shape[1]} if quantiles else {"atoms": outputs}
        sizes |= {"history_length": weights["conv1.weight"].shape[1]} if "conv1.weight" in weights else {}
    except (KeyError, ValueError, AttributeError) as error:
        raise UserError(f"--model: {args.model} has not the layers of Rainbow-IQN or Rainbow: {error}") from error
    settings = json.loads(saved.get("settings", "{}"))
    if settings.get("game", args.game) != args.game and not args.force:
        raise UserError(
            f"--game: {args.model} has learned {settings['game']}, not {args.game}; --force evaluates it so"
        )
    return replace(args, **sizes, **{name: settings[name] for name in _FROM_SETTINGS if name in settings})


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
    print(f"{args.model} plays {args.game}: {args.evaluation_episodes} episodes on {device}", flush=True)
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
