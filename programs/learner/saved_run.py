"""Parses a checkpoint's content once: into a run to resume, or into one line with what is wrong with the checkpoint."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta, Struct
from torch import Tensor

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import short_path
from rainbow_iqn_apex.common.schema import Count
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.learner_client import Origin
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS, Crew, check_crews
from rainbow_iqn_apex.memory.messages import Record
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress

_EXTRA = 16  # arrays of a replay beside its chunks, and their numbers where it has no chunks


class _Replay(Struct, forbid_unknown_fields=True):
    """The fields of `memory.buffer.Checkpoint`; the replay itself checks whether their values fit."""

    first: Count
    ids: Tensor
    priorities: Tensor
    extra: Annotated[dict[str, Tensor], Meta(max_length=_EXTRA)]

    def __post_init__(self) -> None:
        if not self.ids.dim() == self.priorities.dim() == 2:
            raise ValueError("its replay has no chunks")
        most = max(_EXTRA, len(self.ids))  # of a table's numbers
        if not all(table.dim() == 1 and len(table) <= most for table in self.extra.values()):
            raise ValueError("its replay has tables that are none")


class _Part(Struct, forbid_unknown_fields=True):
    """Hold what one of several learners has added to a checkpoint."""

    counted: dict[Count, Count]
    replay: _Replay
    replay_generator: Tensor
    generator: Tensor
    episodes: list[Record]


class _Content(Struct):
    """Holds what a checkpoint has beside a run's `Progress` and the states of the agent's parts."""

    run_name: str
    settings: str
    crews: list[Any]
    counted: dict[Count, Count]
    published: dict[Count, Tensor]
    replay: _Replay
    replay_generator: Tensor
    best_mean: float
    logged: Count
    finished: bool
    server: str
    saves: Count
    ranks: Annotated[list[_Part], Meta(max_length=MAX_ACTORS)] = []  # of a run with several learners


_RESUMABLE = {*(set(_Content.__struct_fields__) - {"ranks"}), *(field.name for field in fields(Progress))}


@dataclass(frozen=True)
class Part:
    """Holds what a learner has of a run for itself: its actors' messages, its buffer and its random numbers."""

    counted: dict[int, int]  # by actor, the last message that the run has counted
    replay: Checkpoint
    replay_generator: Tensor  # [bytes] uint8
    generator: Tensor | None = None  # [bytes] uint8, of the agent; None: the checkpoint's parts of the agent hold it
    episodes: tuple[Record, ...] = ()  # that were not logged yet


@dataclass(frozen=True)
class SavedRun:
    """A run as its checkpoint holds it; `content` holds the states of the agent's parts, too."""

    path: Path
    content: dict[str, Any]
    progress: Progress
    settings: dict[str, Any]  # those that all processes of the run share
    name: str
    crews: tuple[Crew, ...]
    own_part: Part  # of the only learner, or of the one that leads
    ranks: tuple[Part, ...]  # of all learners, if there are several
    published: dict[int, bytes]  # packets of weights by version
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
        raise UserError(
            f"--path-to-results: {short_path(path)} cannot be resumed from, only started from: give it as --model"
        )
    with damage_named(path):
        return _parse(path, content)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn the errors that a checkpoint's wrong values cause into one line that names the file."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"--path-to-results: {short_path(path)} cannot be resumed from, it is damaged ({one_line(error)}): move "
            "what is here away to start afresh"
        ) from error


def _parse(path: Path, content: dict[str, Any]) -> SavedRun:
    saved = schema.parse(content, _Content)
    own_part = _part(saved.counted, saved.replay, saved.replay_generator)
    ranks = []
    for part in saved.ranks:
        known = _part(part.counted, part.replay, part.replay_generator)
        ranks.append(replace(known, generator=_bytes(part.generator), episodes=tuple(part.episodes)))
    return SavedRun(
        path,
        content,
        progress=schema.parse(content, Progress),
        settings=schema.parse(schema.parse_json(saved.settings), dict[str, Any]),
        name=saved.run_name,
        crews=check_crews(saved.crews),
        own_part=own_part,
        ranks=tuple(ranks),
        published={version: _bytes(packet).numpy().tobytes() for version, packet in saved.published.items()},
        best_mean=saved.best_mean,
        logged=saved.logged,
        finished=saved.finished,
        origin=Origin(printable(textwrap.shorten(saved.server, 200)), saved.saves),
    )


def _part(counted: dict[int, int], replay: _Replay, generator: Tensor) -> Part:
    checkpoint = Checkpoint(replay.first, replay.ids, replay.priorities, replay.extra)
    return Part(counted, checkpoint, _bytes(generator))


def _bytes(tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.uint8 or tensor.dim() != 1:
        raise ValueError("a tensor holds no bytes")
    return tensor
