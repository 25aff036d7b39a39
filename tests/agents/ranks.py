"""Several learners in the threads of one process, which make updates together."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.ranks import Alone

_TIMEOUT_S = 60.0


class _Meeting:
    """Where the threads leave something for each other."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=_TIMEOUT_S)
        self.left: list[Any] = [None] * size


class ThreadRank:
    """A learner in a thread."""

    def __init__(self, meeting: _Meeting, rank: int, size: int) -> None:
        self.rank, self.size, self._meeting = rank, size, meeting

    def _exchange(self, own: Any) -> list[Any]:
        self._meeting.left[self.rank] = own
        self._meeting.barrier.wait()
        found = list(self._meeting.left)
        self._meeting.barrier.wait()
        return found

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over all ranks."""
        parts: list[Tensor] = self._exchange(numbers.detach())
        return torch.stack(parts).sum(0) / self.size

    def least(self, numbers: Tensor) -> Tensor:
        """Return the least over all ranks."""
        return torch.stack(self._exchange(numbers.detach())).amin(0)

    def gather(self, numbers: Tensor) -> list[Tensor]:
        """Return the numbers of each rank."""
        return self._exchange(numbers.detach())

    def gather_states(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the state of each rank."""
        return self._exchange(state)

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean."""
        parts = self._exchange([gradient.clone() for gradient in gradients])
        for gradient, others in zip(gradients, zip(*parts, strict=True), strict=True):
            gradient.copy_(sum(others) / self.size)


class ForgetfulRank(Alone):
    """A wrong learner: averages gradients, and computes all else over its own batch alone."""

    def __init__(self, true: ThreadRank) -> None:
        self._true = true

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean."""
        self._true.average(gradients)


def together(size: int, work: Callable[[ThreadRank], Any]) -> list[Any]:
    """Run the work of each rank in a thread of its own; return what each returns."""
    meeting = _Meeting(size)

    def run(rank: int) -> Any:
        try:
            torch.set_num_threads(1)
            return work(ThreadRank(meeting, rank, size))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(run, rank) for rank in range(size)]]
