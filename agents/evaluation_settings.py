"""The settings of an evaluation: what belongs to the policy comes from the snapshot, the rules from the command."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agents.precision import precision_in_use
from agents.published import sizes_of
from args import Args, verify
from command_line import flag_of
from memory.errors import UserError
from saber.games import check_game

# What belongs to a policy, and the weights' shapes do not tell, or not always: what it sees, how its values are read,
# how long an action and a noise draw last.
_OF_POLICY = ("history_length", "V_min", "V_max", "num_quantile_samples", "replay_frequency", "action_repeat")
_RULES = ("proba_sticky_actions", "disable_SABER_mode")


def network_args(args: Args, saved: dict[str, Any]) -> Args:
    """The settings with those of the policy read from a snapshot, so that nobody has to repeat them.

    Raises UserError if the weights have other names or shapes than those of Rainbow-IQN and Rainbow, or if the command
    names another game or other settings of the network than the snapshot.
    """
    try:
        sizes = sizes_of(saved["model_state_dict"])
    except ValueError as error:
        raise UserError(f"--model: {args.model} is not of Rainbow-IQN or Rainbow: {error}") from error
    del sizes["nb_actions"]
    settings = _settings(args, saved)
    of_policy = {name: settings[name] for name in _OF_POLICY if name in settings} | sizes
    if errors := _other_games(args, settings) + _other_networks(args, of_policy, sizes):
        raise UserError("\n".join(errors))
    kept = args.given & of_policy.keys() if args.force else frozenset()
    args = replace(args, **{name: value for name, value in of_policy.items() if name not in kept})
    if errors := verify(args):
        raise UserError("\n".join(f"--model: the settings in {args.model} make no sense: {text}" for text in errors))
    return args


def _other_games(args: Args, settings: dict[str, Any]) -> list[str]:
    """`--force` plays another game, as far as the numbers of actions agree."""
    if args.force:
        return []
    errors = [
        f"{flag_of(name)}: {args.model} has learned {learned}, not {asked}; --force evaluates it so"
        for name in (("env", "game") if args.env == "atari" else ("env",))
        if (learned := settings.get(name)) is not None and learned != (asked := getattr(args, name))
    ]
    if "game" not in settings and args.env == "atari" and (named := _game_in_name(args.model)) not in (None, args.game):
        errors.append(f"--game: {args.model} is of {named} by its name, not of {args.game}; --force evaluates it so")
    return errors


def _game_in_name(model: Path | None) -> str | None:
    """The game that the name of a snapshot without settings tells."""
    match = re.fullmatch(r"(?:(?:best|last)_)?model_(\w+?)(?:_\d+)?\.pth", model.name) if model else None
    return match[1] if match and check_game(match[1]) is None else None


def _other_networks(args: Args, of_policy: dict[str, Any], sizes: dict[str, Any]) -> list[str]:
    """What the command gives although the snapshot says otherwise; `--force` cannot change the shapes of weights."""
    errors = []
    for name in sorted(args.given & of_policy.keys()):
        learned, asked = of_policy[name], getattr(args, name)
        if learned != asked and (name in sizes or not args.force):
            advice = "leave it out" if name in sizes else "leave it out, or --force evaluates it so"
            errors.append(f"{flag_of(name)}: {args.model} has learned with {learned}, not {asked}; {advice}")
    return errors


def decisive_settings(args: Args, device: torch.device) -> dict[str, Any]:
    """The settings on which evaluated episodes depend, besides the weights; plain values."""
    played = ("env", "game") if args.env == "atari" else ("env",)
    settings = {name: getattr(args, name) for name in (*played, *_OF_POLICY, *_RULES)}
    return settings | {"precision": precision_in_use(args.precision, device)}


def other_rules(args: Args, saved: dict[str, Any]) -> list[str]:
    """Lines about the rules under which a snapshot was trained, if it is evaluated under others."""
    settings = _settings(args, saved)
    return [
        f"{flag_of(name)} is {getattr(args, name)}, and was {settings[name]} in training"
        for name in _RULES
        if settings.get(name, getattr(args, name)) != getattr(args, name)
    ]


def trained_steps(args: Args, saved: dict[str, Any]) -> int | None:
    """Agent steps that a snapshot was trained for; None if it does not tell.

    In lockstep the updates stand for the steps: the last round is played but not counted in T_actors.
    """
    lockstep = _settings(args, saved).get("synchronize_actors_with_learner", False)
    steps = saved.get("T_learner" if lockstep else "T_actors")
    return steps if type(steps) is int and 0 <= steps < 2**63 else None


def _settings(args: Args, saved: dict[str, Any]) -> dict[str, Any]:
    """The settings of the run that a snapshot of this program is of; others have none."""
    try:
        settings = json.loads(saved.get("settings", "{}"))
    except (TypeError, ValueError):
        return {}
    if not isinstance(settings, dict):
        return {}
    return {name: value for name, value in settings.items() if type(value) is type(getattr(args, name, None))}
