"""What each of several learners adds to their one checkpoint, which the learner that leads writes."""

import io
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.randomness import restore_generator
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.programs.learner.checkpoints import FirstMessages
from rainbow_iqn_apex.programs.learner.ingest import Ingest
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun
from rainbow_iqn_apex.programs.snapshot import weights_hash


class Gathered(NamedTuple):
    """Holds what the learners have added."""

    values: dict[str, Any]  # of the checkpoint
    needs: FirstMessages  # of all learners' actors


class SharedCheckpoint:
    """Gathers the parts of all learners; of a single one there are none beside what every checkpoint holds."""

    def __init__(self, run: Run, agent: Agent, buffer: Buffer, ingest: Ingest) -> None:
        self._team, self._is_lockstep = run.team, run.limiter.synchronize
        self._agent, self._buffer, self._ingest = agent, buffer, ingest

    def gather(self) -> Gathered:
        """Return the parts, in the order of the learners; raises RunError if their weights are not the same."""
        if self._team.size == 1:
            return Gathered({}, self._ingest.needs())
        if not self._is_lockstep:  # there no order of the log's lines has to be kept
            self._ingest.episodes.share()
        own = {
            "weights": weights_hash(self._agent.model),
            "needs": self._ingest.needs(),
            "counted": self._ingest.counted,
            "replay": self._buffer.checkpoint()._asdict(),
            "replay_generator": self._buffer.generator.get_state(),
            "generator": self._agent.generator.get_state(),
            "episodes": self._ingest.episodes.waiting,
        }
        found = [_unpack(part) for part in self._team.gather(_pack(own))]
        if len({part.pop("weights") for part in found}) != 1:
            raise RunError(
                "the learners' weights are not the same any more, so nothing is saved: start all again with the same "
                "command, and they go on from the checkpoint; if it happens again, their machines compute differently"
            )
        needs = {actor: first for part in found for actor, first in part.pop("needs").items()}
        return Gathered({"ranks": found}, needs)

    def resume(self, saved: SavedRun) -> bool:
        """Take up this learner's part of a checkpoint; returns whether Redis has lost nothing of all learners'."""
        part = saved.ranks[self._team.rank] if saved.ranks else saved.own_part
        restore_generator(self._buffer.generator, part.replay_generator)
        if part.generator is not None:
            restore_generator(self._agent.generator, part.generator)
        self._ingest.episodes.waiting = [*part.episodes]
        lost = not self._ingest.resume(part.counted)
        self._buffer.restore(part.replay, self._ingest.counted)
        return not self._team.total(int(lost))[0]

    def oldest(self) -> FirstMessages:
        """Return the first message that each buffer holds of each actor."""
        found = self._team.exchange(self._buffer.oldest(), dict[int, int])
        return {actor: first for own in found for actor, first in own.items()}


def _pack(values: dict[str, Any]) -> Tensor:
    stream = io.BytesIO()
    torch.save(values, stream)
    return torch.from_numpy(np.frombuffer(stream.getvalue(), np.uint8).copy())


def _unpack(packed: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(io.BytesIO(packed.numpy().tobytes()), map_location="cpu", weights_only=True)
    return found
