"""What an update is to the learner's loop, and to those who make it."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Learnable
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.buffer import Buffer

Metrics = dict[str, Tensor]  # 0-d, on the agent's device

LARGEST_LAG = "largest_policy_lag"  # the only metric that is no mean
PARTS = ("sample", "update")  # of a clock


class Turn(NamedTuple):
    """An update to make."""

    progress: float  # share of learning that is done before it
    step: int  # agent steps that all updates stand for, this one among them
    version: int = 0  # of the newest published weights


class Trainer(ABC):
    """Samples, learns, and writes priorities back."""

    def __init__(
        self, agent: Learnable, buffer: Buffer, batch_size: int | None, device: torch.device, clock: LoopClock
    ) -> None:
        self._agent = agent
        self._buffer = buffer
        self._batch_size = batch_size
        self._device = device
        self._clock = clock

    @abstractmethod
    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn, or fewer where memory is short: the first ones."""
