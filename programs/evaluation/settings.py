"""The settings of an evaluation: game and policy come from the snapshot, the rules from the command."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from rainbow_iqn_apex.agents.devices import precision_in_use
from rainbow_iqn_apex.agents.registry import agent_names, find_agent
from rainbow_iqn_apex.args import Args, verify
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import ANYWHERE, short_path
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.environments.registry import entries, named_module
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.saber.games import check_game

RULES = ("proba_sticky_actions", "disable_SABER_mode")  # which the command decides, not the snapshot
_PLAYED = frozenset({"env", "game"})
_NAME = re.compile(r"[\w:./, -]{1,2000}")  # of an agent, an environment, or games
_MOST_LETTERS = 2000


def load_model(args: Args) -> tuple[Args, dict[str, Any]]:
    """Load the snapshot that `--model` names, and take from it the settings that the command does not give.

    Returns:
        The settings as `network_args` makes them, and the snapshot.

    Raises:
        UserError: there is no such snapshot, or it cannot be evaluated with these settings.
    """
    assert args.model is not None
    is_named = "game" in args.given or ("env" in args.given and args.env != "atari")
    path = snapshot.choose(args.model, args.task if is_named else None, or_the_only=True)
    saved = snapshot.load(path, "--model", args.model if args.model.is_dir() else ANYWHERE)
    return network_args(replace(args, model=path), saved), saved


def network_args(args: Args, saved: dict[str, Any]) -> Args:
    """Return the settings with game, environment and policy of a snapshot, so that no command has to repeat them.

    Raises UserError if the weights have other names or shapes than those of Rainbow-IQN and Rainbow, if the command
    names another game or other settings of the network than the snapshot, or if neither names a game.
    """
    sizes = _sizes(args, saved)
    learner = args.replace(agent=sizes["agent"])
    own = learner.own.UNUSED | ({"precision"} - args.given)  # as the agent has them where no command gives them
    learner = learner.replace(**{name: learner.own.DEFAULTS.get(name, getattr(Args, name)) for name in own})
    _check_module(args, _learned(_settings(learner, saved)))
    asked = _with_game(learner, _settings(learner, saved))
    settings = {name: value for name, value in _settings(asked, saved).items() if name not in asked.own.UNUSED}
    stack = settings.get("history_length")
    if stack and sizes.get("history_length", 0) % stack == 0:  # the shapes show a stack's channels, each of its colours
        sizes["history_length"] = stack
    of_policy = {name: settings[name] for name in asked.marked("policy") if name in settings} | sizes
    shapes = {*sizes, *(field.name for field in fields(asked.own) if field.metadata.get("shape"))}
    if errors := _other_games(args, asked, settings) + _other_networks(args, of_policy, shapes):
        raise UserError("\n".join(errors))
    kept = args.given & of_policy.keys() if args.force else frozenset()
    args = asked.replace(**{name: value for name, value in of_policy.items() if name not in kept})
    of_training = {flag_of(field.name) for field in fields(args.own) if not field.metadata.get("policy")}
    if errors := [text for text in verify(args) if text.partition(":")[0] not in of_training]:
        whose = f"--model: the settings in {_shown(args)} make no sense: "
        raise UserError("\n".join(text if text.startswith("--env: ") else f"{whose}{text}" for text in errors))
    return args


def _shown(args: Args) -> str:
    return short_path(args.model) if args.model else "the snapshot"


def _sizes(args: Args, saved: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot's agent and the network's settings that the shapes of its weights show."""
    name = str(snapshot.settings_of(saved).get("agent"))
    weights = saved["model_state_dict"]
    if ":" in name and name != args.agent:
        raise UserError(
            f"--agent: {_shown(args)} is of {name}, which would be imported; if you trust it, give --agent {name}"
        )
    known = name in (*agent_names(), args.agent)  # other projects' snapshots name none
    try:
        read = find_agent(name if known else "rainbow_iqn").load().sizes_of(weights)
    except ValueError as error:
        whose = f"--agent {name}" if known else "Rainbow-IQN or Rainbow"
        raise UserError(f"--model: {_shown(args)} is not of {whose}: {error}") from error
    agent = name if known else read["agent"]
    sizes = {key: value for key, value in read.items() if key != "nb_actions"}
    return sizes | {"agent": agent, "rainbow_only": agent == "rainbow"}


def _with_game(args: Args, settings: dict[str, Any]) -> Args:
    """Return the settings with environment and game of the snapshot where the command names none."""
    given = args.given | ({"env"} if "game" in args.given else set())  # a game alone is one of Atari
    return args.replace(**{name: value for name, value in _learned(settings).items() if name not in given})


def _check_module(args: Args, learned: dict[str, Any]) -> None:
    """Raise UserError for a snapshot whose environment would import a module that the command does not name."""
    env = learned.get("env", "")
    if not args.given & {"env", "game"} and (package := named_module(env)):
        raise UserError(
            f"--env: {_shown(args)} has learned {env}, which would import {package}; if you trust that package, give "
            f"--env {env}"
        )


def _learned(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what a snapshot was trained on: its environment, and the game if the environment has several."""
    played = {name: settings[name] for name in settings.keys() & _PLAYED}
    return {"env": played["env"]} if ":" in played.get("env", "") else played


def _other_games(args: Args, asked: Args, settings: dict[str, Any]) -> list[str]:
    """Return why the requested game cannot be played; `--force` plays another game than the snapshot's."""
    learned = _learned(settings)
    known = entries(learned.get("env", asked.env), learned.get("game", asked.game))
    if not args.force and not set(asked.entries) <= set(known):
        is_game = "game" in args.given and ("env" not in args.given or asked.env == learned.get("env", asked.env))
        title = asked.env if ":" in asked.env or "game" not in args.given else asked.game
        return [
            f"--{'game' if is_game else 'env'}: {_shown(args)} has learned {learned.get('game') or learned['env']}, "
            f"not {title}; --force evaluates it so"
        ]
    return [] if ":" in asked.env or "game" in learned else _other_game_than_named(args)


def _other_game_than_named(args: Args) -> list[str]:
    """Do the same for another project's snapshot without settings: only the name of its file may name a game."""
    named = _game_in_name(args.model)
    if "game" not in args.given:
        return [f"--game: {_shown(args)} holds no settings that name its game: name it, as in --game {named or 'pong'}"]
    if named in (None, args.game) or args.force:
        return []
    return [f"--game: {_shown(args)} is of {named} by its name, not of {args.game}; --force evaluates it so"]


def _game_in_name(model: Path | None) -> str | None:
    """Return the game in the file name of a snapshot without settings, None if there is none."""
    match = re.fullmatch(r"(?:best_|last_)?model_(\w+?)(?:_\d+)?\.pth", model.name) if model else None
    return match[1] if match and check_game(match[1]) is None else None


def _other_networks(args: Args, of_policy: dict[str, Any], shapes: set[str]) -> list[str]:
    """Return a line for each setting in which command and snapshot differ; `--force` changes no shapes."""
    errors = []
    for name in sorted(args.given & of_policy.keys()):
        learned = of_policy[name]
        asked = args.unused.get(name, args.get(name))
        if learned != asked and (name in shapes or not args.force):
            advice = "leave it out" if name in shapes else "leave it out, or --force evaluates it so"
            errors.append(f"{flag_of(name)}: {_shown(args)} has learned with {learned}, not {asked}; {advice}")
    return errors


def decisive_settings(args: Args, device: torch.device) -> dict[str, Any]:
    """Return the settings on which evaluated episodes depend, besides the weights; plain values."""
    played = ("env", "game") if args.env == "atari" else ("env",)
    settings = {name: getattr(args, name) for name in (*played, *RULES)}
    return (
        settings
        | args.marked("policy")
        | args.marked("evaluation")
        | {"precision": precision_in_use(args.precision, device)}
    )


def other_rules(args: Args, saved: dict[str, Any]) -> list[str]:
    """Return a line for each rule under which a snapshot was trained, but is not evaluated."""
    settings = _settings(args, saved)
    return [
        f"{flag_of(name)} is {getattr(args, name)}, and was {settings[name]} in training"
        for name in RULES
        if settings.get(name, getattr(args, name)) != getattr(args, name)
    ]


def trained_steps(args: Args, saved: dict[str, Any]) -> int | None:
    """Return the agent steps that a snapshot was trained for; None if the snapshot does not hold them."""
    lockstep = _settings(args, saved).get("synchronize_actors_with_learner", False)
    counts = {name: saved.get(name) for name in ("T_actors", *(["T_learner"] if lockstep else []))}
    steps = [count for count in counts.values() if type(count) is int and 0 <= count < 2**63]
    return max(steps) if len(steps) == len(counts) else None


def _settings(args: Args, saved: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the run that wrote a snapshot; snapshots of other programs have none."""
    found = snapshot.settings_of(saved)
    return {name: value for name, value in found.items() if _is_setting(name, value, args.get(name))}


def _is_setting(name: str, value: Any, known: Any) -> bool:
    """Return whether a value of a snapshot may be one of this setting; messages show texts."""
    if type(value) is not type(known) or not isinstance(value, str):
        return type(value) is type(known)
    is_name = bool(_NAME.fullmatch(value)) or name not in ("agent", *_PLAYED)
    return is_name and len(value) <= _MOST_LETTERS and value.isprintable()
