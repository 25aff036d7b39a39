"""The learners of a run that torchrun has started, and what they tell each other.

    team = join(os.environ, device)           # SINGLE, for a learner that torchrun has not started
    agent = make_agent(..., ranks=team)
    waiting, stopping = team.total(1, 0)      # all learners make the same calls in the same order

Averages stay on the way between the learners: no process leads them. The connections know no password and no
encryption, as is usual between processes of torch.distributed: they belong into a network that is one's own.
"""

import io
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from rainbow_iqn_apex.agents.ops.ranks import Alone
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import TTL_MS
from rainbow_iqn_apex.memory.broker.scripts import Scripts

_MEETING_S = 60.0  # until all learners have come
_LONGEST_S = 24 * 3600.0  # leases in Redis tell that a learner is gone, so a slow one is waited for

T = TypeVar("T")


class Single(Alone):
    """A learner without others."""

    def total(self, *numbers: int) -> list[int]:
        """Return the numbers."""
        return list(numbers)

    def exchange(self, value: T, kind: type[T]) -> list[T]:  # noqa: ARG002 - nothing is sent
        """Return the value alone."""
        return [value]

    def gather_states(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the state alone."""
        return [state]

    def leave(self) -> None:
        """Do nothing."""


SINGLE = Single()


class ProcessGroup:
    """A learner among others; raises RunError when one of them has ended."""

    def __init__(self, rank: int, size: int, device: torch.device, group: dist.ProcessGroup) -> None:
        self.rank, self.size = rank, size
        self._device, self._group = device, group

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over all ranks."""
        return self._reduced(numbers, dist.ReduceOp.SUM) / self.size

    def least(self, numbers: Tensor) -> Tensor:
        """Return the least over all ranks of each number."""
        return self._reduced(numbers, dist.ReduceOp.MIN)

    def total(self, *numbers: int) -> list[int]:
        """Return the sum over all learners of each number."""
        found: list[int] = self._reduced(torch.tensor(numbers), dist.ReduceOp.SUM).tolist()
        return found

    @torch.no_grad()
    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean over all ranks, in one exchange."""
        flat = self._reduced(torch.cat([gradient.flatten() for gradient in gradients]), dist.ReduceOp.SUM) / self.size
        means = flat.split_with_sizes([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(list(gradients), [mean.view_as(of) for mean, of in zip(means, gradients, strict=True)])

    def gather(self, numbers: Tensor) -> list[Tensor]:
        """Return the numbers [N] of each rank; N may differ from one to the next."""
        own = numbers.detach().to(self._device)
        sizes = self._gathered(torch.tensor([len(own)], device=self._device))
        lengths = [int(size) for size in sizes]
        padded = own.new_zeros(max(lengths))
        padded[: len(own)] = own
        parts = self._gathered(padded.byte() if own.dtype == torch.bool else padded)
        return [part[:length].to(numbers) for part, length in zip(parts, lengths, strict=True)]

    def exchange(self, value: T, kind: type[T]) -> list[T]:
        """Return the value of each learner: anything that JSON can hold, of a `kind` that msgspec knows."""
        encoded = torch.from_numpy(np.frombuffer(msgspec.json.encode(value), np.uint8).copy())
        return [msgspec.json.decode(part.numpy().tobytes(), type=kind) for part in self.gather(encoded)]

    def gather_states(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the state of each learner: tensors and plain values, on the CPU."""
        stream = io.BytesIO()
        torch.save(state, stream)
        packed = torch.from_numpy(np.frombuffer(stream.getvalue(), np.uint8).copy())
        return [
            torch.load(io.BytesIO(part.numpy().tobytes()), map_location="cpu", weights_only=True)
            for part in self.gather(packed)
        ]

    def leave(self) -> None:
        """Give the connections back."""
        dist.destroy_process_group()

    def _reduced(self, numbers: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        shared = numbers.detach().to(self._device, copy=True)
        with self._named():
            dist.all_reduce(shared, operation, group=self._group)
        return shared.to(numbers.device)

    def _gathered(self, numbers: Tensor) -> list[Tensor]:
        parts = [torch.empty_like(numbers) for _ in range(self.size)]
        with self._named():
            dist.all_gather(parts, numbers, group=self._group)
        return parts

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RunError(gone(self.rank)) from error


Team = Single | ProcessGroup


def gone(rank: int) -> str:
    """Return the line of a learner whose others are not there any more."""
    return (
        f"learner {rank}: another learner of this run has ended or does not answer: its own lines show why; start all "
        "again with the same command, and they go on from the checkpoint"
    )


def local_number(environment: Mapping[str, str]) -> int:
    """Return which of the learners on this machine this one is; 0 of a learner that torchrun has not started."""
    number = environment.get("LOCAL_RANK", "0") if environment.get("WORLD_SIZE", "1") != "1" else "0"
    return int(number) if number.isascii() and number.isdigit() else 0


def join(environment: Mapping[str, str], device: torch.device, *, timeout_s: float = _MEETING_S) -> Team:
    """Meet the other learners that torchrun has started; SINGLE where it has started no others.

    Raises UserError for an environment that torchrun has not made, RunError if not all learners come in time.
    """
    if environment.get("WORLD_SIZE", "1") == "1":
        return SINGLE
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    except (KeyError, ValueError) as error:
        raise UserError(
            f"WORLD_SIZE: is {environment['WORLD_SIZE']!r} in the environment, as of several learners, but RANK is "
            f"{environment.get('RANK')!r}: start them by torchrun, or unset WORLD_SIZE"
        ) from error
    try:
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)  # NCCL takes the present one
            backend = "nccl"
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s))
        group = dist.new_group(timeout=timedelta(seconds=_LONGEST_S))
    except ValueError as error:
        raise UserError(f"WORLD_SIZE: {one_line(error)}; start the learners by torchrun, or unset it") from error
    except RuntimeError as error:
        raise RunError(
            f"learner {rank}: not all {size} learners of WORLD_SIZE have come within {timeout_s:.0f} sec: start all of "
            "them by one torchrun, or one on each machine with the same address"
        ) from error
    assert isinstance(group, dist.ProcessGroup)
    return ProcessGroup(rank, size, device, group)


_LOOK_S = 0.5
_RENEWED_MS = 6000.0  # a living learner has renewed its lease since then: it does so four times in a lease's length
_MISSED_S = 2.5  # for so long; a Redis server that was started again gets all leases within this time


class TeamWatch:
    """Looks at the others' leases in a thread, from now until the end of its block.

    `tokens` are those of all learners' leases. When one is gone, the thread prints a line and ends the process with
    exit code 1. Files are never half written, so that may happen at any time.
    """

    def __init__(self, client: Client, name: str, team: Team, tokens: list[bytes]) -> None:
        self._scripts = Scripts(client)
        self._rank = team.rank
        self._others = {Keys(name, "").lease_of(rank): token for rank, token in enumerate(tokens) if rank != team.rank}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="others", daemon=True)
        if self._others:
            self._thread.start()

    def __enter__(self) -> "TeamWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if self._others:
            self._thread.join()

    def _watch(self) -> None:
        missed_since: dict[str, float] = {}
        while not self._left.wait(_LOOK_S):
            try:
                missed = [key for key, token in self._others.items() if not self._is_held(key, token)]
            except (BrokerError, RunError):
                missed = []  # then nobody can renew anything
            now = time.monotonic()
            missed_since = {key: missed_since.get(key, now) for key in missed}
            if any(now - since >= _MISSED_S for since in missed_since.values()) and not self._left.is_set():
                print(f"launch_learner.py: {gone(self._rank)}", file=sys.stderr, flush=True)
                os._exit(1)

    def _is_held(self, key: str, token: bytes) -> bool:
        held = self._scripts.read_lease(key)
        return held.value == token and held.left_ms > TTL_MS - _RENEWED_MS
