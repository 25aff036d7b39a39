"""A sampled batch, as every buffer gives it."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Transitions(NamedTuple):
    """An n-step transition for each sample: m is n, or the number of steps to the episode's end if that is less."""

    obs: Tensor  # [B, S, ...] stack at row t
    action: Tensor  # [B] int64
    return_: Tensor  # [B] float32
    discount: Tensor  # [B] float32, of the bootstrap value
    next_obs: Tensor  # [B, S, ...] stack at row t + m


class Batch(NamedTuple):
    """A sampled batch, time-major: T = prefix + sample length + bootstrap rows, B samples.

    From a replay in the machine's memory, `rows` are copied when they are first read, and are lost once their chunk is
    overwritten (see `memory.fast.ring.RingRows`). The fields of prioritised sampling are None with others; `indices`
    and `generations` name the place of each sample, for `Buffer.learned`.
    """

    rows: Mapping[str, Tensor]  # [T, B, ...] by the names of `ChunkSpec.row_fields`
    state: Mapping[str, Tensor]  # [B, ...]
    weights: Tensor | None = None  # [B] float32, importance-sampling weights, the largest is 1
    indices: Tensor | None = None  # [B] int64
    generations: Tensor | None = None  # [B] int64
    versions: Tensor | None = None  # [B] int64, from a queue: the weights that acted last; a mixture's fresh ones alone
    replayed: Tensor | None = None  # [B] bool, from a mixture: drawn again from a table, not fresh from the queue

    @property
    def cut(self) -> Callable[[int, float, float], Transitions] | None:
        """Return what cuts n-step transitions out of a replay: n, discount, clip -> rows; None for plain tensors."""
        return getattr(self.rows, "transitions", None)

    @property
    def obs(self) -> Tensor:
        """[T, B, ...]."""
        return self.rows["obs"]

    @property
    def step_type(self) -> Tensor:
        """[T, B] uint8."""
        return self.rows["step_type"]

    @property
    def reward(self) -> Tensor:
        """[T, B] float32, raw."""
        return self.rows["reward"]

    @property
    def discount(self) -> Tensor:
        """[T, B] float32."""
        return self.rows["discount"]

    @property
    def action(self) -> Tensor:
        """[T, B, ...] as the environment's spec describes it: int32, or float32 of a Box."""
        return self.rows["action"]

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device, with all its rows; itself if it is there."""
        if next(iter(self.rows.values())).device == device:
            return self
        rows, state = ({name: part.to(device) for name, part in parts.items()} for parts in (self.rows, self.state))
        return Batch(rows, state, *(None if part is None else part.to(device) for part in self[2:]))
