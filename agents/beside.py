"""A second thread for what an update computes without gradient, such as the target network's pass.

Operations of PyTorch let other threads run, so where PyTorch's own threads leave a core of a CPU, an update takes as
long as the longer of both parts. Draws of random numbers stay with the caller: their order must not depend on threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Generic, TypeVar

import torch

from rainbow_iqn_apex.memory.batch import Batch

T = TypeVar("T")


def beside(device: torch.device, compute: Callable[[], T], *, at_once: bool = False) -> Callable[[], T]:
    """Begin to compute without gradient; the returned function waits for the result, or raises its exception.

    The caller computes it `at_once` if what it does next changes what this reads; so it does on a GPU, and where no
    core is left.
    """

    def without_gradient() -> T:
        with torch.no_grad():
            return compute()

    if device.type == "cpu" and not at_once and torch.get_num_threads() < _cores():
        return _thread().submit(without_gradient).result
    result = without_gradient()
    return lambda: result


class Ahead(Generic[T]):
    """What an update begins with its batch: that of the next batch, where it is known, while this update is made.

    ahead.expect(following)  # before the update
    begun = ahead.take(batch)
    ahead.go_on()  # when all is drawn for this update, so that draws keep their order
    """

    def __init__(self, begin: Callable[[Batch], T]) -> None:
        self._begin = begin
        self._expected: Batch | None = None
        self._begun: tuple[Batch, T] | None = None

    def expect(self, batch: Batch) -> None:
        """Let `go_on` begin with this batch."""
        self._expected = batch

    def take(self, batch: Batch) -> T:
        """Return what was begun with a batch, or begin now."""
        before, self._begun = self._begun, None
        return before[1] if before and before[0] is batch else self._begin(batch)

    def go_on(self) -> None:
        """Begin with the expected batch, if there is one."""
        expected, self._expected = self._expected, None
        if expected is not None:
            self._begun = expected, self._begin(expected)


@cache
def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "beside")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # threads do not come along
