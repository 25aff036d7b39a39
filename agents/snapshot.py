"""Snapshots: `last_model_<game>_<steps>.pth` to resume from, `best_model_<game>.pth`, and anybody's for evaluation.

A snapshot is a dictionary of tensors and plain values that `torch.load(weights_only=True)` opens. Every one has
`T_actors, T_learner, model_state_dict, optimiser_state_dict`; those of this program hold all that a resume needs.
"""

import re
from pathlib import Path
from typing import Any

import torch

from agents.interface import Agent
from memory.errors import UserError
from saber.files import replace_file

_SUFFIX = "_state_dict"


def save(path: Path, agent: Agent, values: dict[str, Any]) -> None:
    """Write the agent's parts and `values` to a snapshot, all or nothing."""
    parts = {f"{name}{_SUFFIX}": part.state_dict() for name, part in agent.parts.items()}
    with replace_file(path) as file:
        torch.save(values | parts, file)


def load(path: Path, option: str) -> dict[str, Any]:
    """Open a snapshot, which `option` has named, on the CPU; raises UserError for a file that is none."""
    try:
        snapshot = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{option}: {path} cannot be read as a snapshot ({_first_line(error)})") from error
    except Exception as error:
        # Two modules of torch know the error of a file whose content is not plain data; both derive from Exception.
        if type(error).__name__ != "UnpicklingError":
            raise
        raise UserError(f"{option}: {path} is not a snapshot, or holds more than plain data: refused") from error
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get(f"model{_SUFFIX}"), dict):
        raise UserError(f"{option}: {path} is not a snapshot: it holds no model_state_dict")
    return snapshot


def restore(agent: Agent, snapshot: dict[str, Any]) -> None:
    """Give every part of the agent its state back; raises UserError if the snapshot is of another agent or size."""
    for name, part in agent.parts.items():
        if f"{name}{_SUFFIX}" in snapshot:
            try:
                part.load_state_dict(snapshot[f"{name}{_SUFFIX}"])
            except (RuntimeError, ValueError, KeyError) as error:
                raise UserError(f"the snapshot's {name} does not fit these settings: {_first_line(error)}") from error


def restore_weights(agent: Agent, snapshot: dict[str, Any]) -> None:
    """Give all networks of the agent the snapshot's weights, and nothing else of it; noise buffers may be missing."""
    weights = snapshot[f"model{_SUFFIX}"]
    for part in agent.parts.values():
        if isinstance(part, torch.nn.Module):
            buffers = {name: value for name, value in part.state_dict().items() if name.endswith("_epsilon")}
            try:
                part.load_state_dict(buffers | weights)
            except RuntimeError as error:
                raise UserError(f"--model: the snapshot does not fit these settings: {_first_line(error)}") from error


def last_model(folder: Path, game: str, steps: int) -> Path:
    """Path of the snapshot to resume from."""
    return folder / f"last_model_{game}_{steps}.pth"


def find_last_model(folder: Path, game: str) -> Path | None:
    """The newest snapshot to resume from, None if there is none."""
    return max(_last_models(folder, game), default=(0, None))[1]


def remove_older_models(folder: Path, game: str, newest: Path) -> None:
    """Delete the snapshots that `newest` replaces."""
    for _, path in _last_models(folder, game):
        if path != newest:
            path.unlink()


def _last_models(folder: Path, game: str) -> list[tuple[int, Path]]:
    pattern = re.compile(rf"last_model_{re.escape(game)}_(\d+)\.pth")
    matches = ((pattern.fullmatch(path.name), path) for path in folder.glob("last_model_*.pth"))
    return [(int(match[1]), path) for match, path in matches if match]


def _first_line(error: Exception) -> str:
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= 300 else text[:300] + " ..."
