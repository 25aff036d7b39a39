"""Parses a checkpoint's content once: into a run to resume, or into one line with what is wrong with the checkpoint."""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.learner_client import Origin
from rainbow_iqn_apex.memory.broker.lease_owner import printable
from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.limiter import Crew, check_crews
from rainbow_iqn_apex.programs.learner.progress import Progress

_RESUMABLE = {"run_id", "settings", "counted", "replay", "replay_generator", "published", "best_mean"}
_RESUMABLE |= {"run_name", "crews", "logged", "finished", "server", "saves"}
_EXTRA = 16  # arrays of a replay beside its chunks, and their numbers where it has no chunks


@dataclass(frozen=True)
class SavedRun:
    """A run as its checkpoint holds it; `content` holds the states of the agent's parts, too."""

    path: Path
    content: dict[str, Any]
    progress: Progress
    settings: dict[str, Any]  # those that all processes of the run share
    name: str
    crews: tuple[Crew, ...]
    counted: dict[int, int]  # by actor, the last message that the run has counted
    published: dict[int, bytes]  # packets of weights by version
    replay: Checkpoint
    replay_generator: Tensor  # [bytes] uint8
    best_mean: float
    logged: int  # bytes of the training log
    finished: bool
    origin: Origin

    @property
    def nb_actor(self) -> int:
        """Actors of the run."""
        return self.crews[-1].nb_actor


def parse(path: Path, content: dict[str, Any]) -> SavedRun:
    """Read the content of the checkpoint at `path`; raises UserError for one that no learner has saved."""
    if not content.keys() >= _RESUMABLE:
        raise UserError(f"--path-to-results: {path} cannot be resumed from, only started from: give it as --model")
    with damage_named(path):
        return _parse(path, content)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn the errors that a checkpoint's wrong values cause into one line that names the file."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"--path-to-results: {path} cannot be resumed from, it is damaged ({one_line(error)}): move what is here "
            "away to start afresh"
        ) from error


def _parse(path: Path, content: dict[str, Any]) -> SavedRun:
    settings = _settings(content["settings"])
    return SavedRun(
        path,
        content,
        progress=_progress(content),
        settings=settings,
        name=_text(content["run_name"], "run"),
        crews=check_crews(content["crews"]),
        counted=_numbered(content["counted"], "messages"),
        published={version: bytes(packet) for version, packet in _packets(content["published"])},
        replay=_replay(content["replay"]),
        replay_generator=_tensor(content["replay_generator"], torch.uint8, "random numbers of its replay"),
        best_mean=_number(content["best_mean"], "best mean score"),
        logged=_count(content["logged"], "size of its log"),
        finished=_flag(content["finished"], "end"),
        origin=_origin(content),
    )


def _origin(content: dict[str, Any]) -> Origin:
    server = printable(textwrap.shorten(_text(content["server"], "server"), 200))
    return Origin(server, _count(content["saves"], "number of checkpoints"))


def _progress(content: dict[str, Any]) -> Progress:
    run_id = content["run_id"]
    if not isinstance(run_id, str) or not re.fullmatch("[A-Za-z0-9_-]{1,64}", run_id):
        raise ValueError("its run id is no name")
    counts = [field.name for field in fields(Progress) if field.name != "run_id"]
    return Progress(run_id, **{name: _count(content.get(name), name) for name in counts})


def _settings(text: Any) -> dict[str, Any]:
    settings = json.loads(text) if isinstance(text, str) else None
    if not isinstance(settings, dict):
        raise ValueError("its settings are none")
    return settings


def _packets(packets: Any) -> Iterable[tuple[int, Any]]:
    if not isinstance(packets, dict):
        raise ValueError("its published weights are missing")
    for version, packet in packets.items():
        yield _count(version, "version"), _tensor(packet, torch.uint8, "published weights").numpy()


def _replay(values: Any) -> Checkpoint:
    """Check types and sizes alone; the replay itself checks whether the values fit."""
    if not isinstance(values, dict) or values.keys() != set(Checkpoint._fields):
        raise ValueError("its replay is missing")
    checkpoint = Checkpoint(**values)
    if not all(isinstance(value, Tensor) and value.dim() == 2 for value in (checkpoint.ids, checkpoint.priorities)):
        raise ValueError("its replay has no chunks")
    extra: Any = checkpoint.extra
    if not isinstance(extra, dict) or len(extra) > _EXTRA or not all(isinstance(name, str) for name in extra):
        raise ValueError("its replay has tables without names")
    most = max(_EXTRA, len(checkpoint.ids))  # of a table's numbers
    if not all(isinstance(value, Tensor) and value.dim() == 1 and len(value) <= most for value in extra.values()):
        raise ValueError("its replay has tables that are none")
    return checkpoint


def _numbered(values: Any, what: str) -> dict[int, int]:
    if not isinstance(values, dict):
        raise ValueError(f"its numbers of {what} are missing")
    return {_count(key, "number of an actor"): _count(value, f"number of {what}") for key, value in values.items()}


def _tensor(value: Any, dtype: torch.dtype, what: str) -> Tensor:
    if not isinstance(value, Tensor) or value.dtype != dtype or value.dim() != 1:
        raise ValueError(f"the {what} are missing")
    return value


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"its {what} is unknown")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"its {what} has no name")
    return value


def _number(value: Any, what: str) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"its {what} is no number")
    return float(value)


def _count(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"its {what} is no whole number")
    return value
