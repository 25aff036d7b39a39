"""Updates as one operation after the other."""

import torch

from rainbow_iqn_apex.agents.interface import Update
from rainbow_iqn_apex.common.errors import DivergedError, UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.programs.learner.trainer_base import LARGEST_LAG, Metrics, Trainer, Turn


class EagerTrainer(Trainer):
    """Draws all batches, then learns from each."""

    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn; raises DivergedError if a priority is not finite."""
        with self._clock.part("sample"):
            batches = [self._buffer.sample(self._batch_size, turn.progress) for turn in turns]
        with self._clock.part("update"):
            following = [*batches[1:], None]
            return [self._update_and_note(*each) for each in zip(turns, batches, following, strict=True)]

    def _update_and_note(self, turn: Turn, batch: Batch, following: Batch | None) -> Metrics:
        if following is not None and not self._copies:  # the agent knows a batch again
            self._agent.expect(following, turn.step)
        update = self._update(turn, batch)
        self._note(batch, update)
        return update.metrics | lag(turn, batch, self._device)

    def _update(self, turn: Turn, batch: Batch) -> Update:
        update = self._agent.update(batch.to(self._device) if self._copies else batch, turn.progress)
        if not isinstance(update, Update) or not all(_is_metric(each) for each in update.metrics.values()):
            raise UserError("--agent: expected `update` to return Update(priorities, {name: 0-d tensor})")
        self._agent.count_update(turn.step)
        return update

    @property
    def _copies(self) -> bool:
        """Whether batches are copied to the agent's device; else their rows may stay where they are."""
        return self._buffer.device != self._device

    def _note(self, batch: Batch, update: Update) -> None:
        priorities = None if update.priorities is None else update.priorities.to(self._buffer.device)
        if priorities is not None and not priorities.isfinite().all():
            raise DivergedError("a priority")
        self._buffer.learned(batch, priorities)


def _is_metric(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def lag(turn: Turn, batch: Batch, device: torch.device) -> Metrics:
    """Return by how many versions the weights that acted lag behind, on average and at most; for a queue's batch.

    The batch may be on another device than the agent's, where all metrics are checked together.
    """
    if batch.versions is None:
        return {}
    lags = (turn.version - batch.versions).float().to(device)
    return {"policy_lag": lags.mean(), LARGEST_LAG: lags.max()}
