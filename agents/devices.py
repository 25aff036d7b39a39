"""How an agent uses its device: the precision of large products, and a second thread or stream.

The target network's pass needs no gradient and can run at the same time as the rest of an update. Operations of PyTorch
let other threads run, so where PyTorch's own threads leave a core of a CPU, an update takes as long as the longer of
both parts. A GPU runs kernels of several streams at once, and those of a small batch do not fill it. Draws of random
numbers stay with the caller: their order must not depend on threads.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


def select_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the precision that a device computes in under the setting `precision`."""
    if name == "auto":
        name = "bfloat16" if computes_in_bfloat16(device) else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def precision_in_use(name: str, device: torch.device) -> str:
    """Return the same as a setting: "auto" would not say how scores were computed."""
    return str(select_precision(name, device)).removeprefix("torch.")


def computes_in_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for it: elsewhere it is emulated, and slower than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return bool(torch.cpu.get_capabilities().get("avx512_bf16", False))


def beside(device: torch.device, compute: Callable[[], T], *, at_once: bool = False) -> Callable[[], T]:
    """Begin to compute without gradient; the returned function waits for the result, or raises a thread's exception.

    The caller computes it `at_once` if what it does next changes what this reads; so it does where no core is left.
    """

    def without_gradient() -> T:
        with torch.no_grad():
            return compute()

    if device.type == "cpu" and not at_once and torch.get_num_threads() < _cores():
        return _thread().submit(without_gradient).result
    if device.type == "cuda" and not at_once:
        return _Pass(device, without_gradient)
    result = without_gradient()
    return lambda: result


class _Pass(Generic[T]):
    """A pass in a GPU's second stream, begun after all that the caller has launched so far; call it for the result.

    What the caller launches after that call runs after the pass. Memory is safe for two reasons. The inputs are the
    caller's, whose stream may write into them again once they are dropped: `_compute` holds them until the call. The
    result is of the second stream's memory, which that stream writes into only after its next beginning.
    """

    def __init__(self, device: torch.device, compute: Callable[[], T]) -> None:
        self._device = device
        self._compute = compute
        self._stream = next(_streams(device))
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            self._result = compute()

    def __call__(self) -> T:
        torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return self._result


@cache
def _streams(device: torch.device) -> Iterator[torch.cuda.Stream]:
    """Return the device's streams, which take turns: an update begins with two passes at the same time."""
    return itertools.cycle([torch.cuda.Stream(device) for _ in range(2)])  # type: ignore[no-untyped-call]


@cache
def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "beside")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread.cache_clear)  # threads do not come along
