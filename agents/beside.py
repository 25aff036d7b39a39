"""A second thread for what an update computes without gradient, such as the target network's pass.

Operations of PyTorch let other threads run, so where PyTorch's own threads leave a core of a CPU, an update takes as
long as the longer of both parts. Draws of random numbers stay with the caller: their order must not depend on threads.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

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


@cache
def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "beside")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # threads do not come along
