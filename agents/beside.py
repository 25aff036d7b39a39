"""A second thread for what an update computes without gradient, such as the target network's pass.

Operations of PyTorch let other threads run, so on a CPU with a core to spare an update takes as long as the longer of
both parts. Draws of random numbers stay with the caller: their order must not depend on threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")


def beside(device: torch.device, compute: Callable[[], T]) -> Callable[[], T]:
    """Begin to compute without gradient; the returned function waits for the result, or raises its exception.

    On a GPU, or with a single core, the caller computes it at once.
    """

    def without_gradient() -> T:
        with torch.no_grad():
            return compute()

    if device.type == "cpu" and (thread := _thread()):
        return thread.submit(without_gradient).result
    result = without_gradient()
    return lambda: result


@cache
def _thread() -> ThreadPoolExecutor | None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(1, "beside") if cores > 1 else None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # threads do not come along
