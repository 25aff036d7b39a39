"""The ranks of a run, each of which is a learner, and everything that they exchange.

    world = join(os.environ, device)                      # a world of one, if torchrun has not started this learner
    agent = make_agent(..., ranks=world)                  # its updates average over the ranks
    state = world.sync(RoundState(is_ready=True))         # the same merged state on every rank

All ranks make the same calls in the same order; a world of one exchanges nothing. Exchanges know no leader, no password
and no encryption, as is usual between processes of torch.distributed: they need a network of their own.
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

from rainbow_iqn_apex.agents.ops.ranks import Ranks
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import TTL_MS
from rainbow_iqn_apex.memory.broker.scripts import Scripts
from rainbow_iqn_apex.memory.messages import Record
from rainbow_iqn_apex.programs.learner.trainers import LARGEST_LAG, Metrics

_MEETING_S = 60.0  # until all ranks have come
_LONGEST_S = 24 * 3600.0  # leases in Redis show that a rank is gone, so a slow one is waited for
_LOOK_S = 0.5
_RENEWED_MS = 6000.0  # a living learner has renewed its lease since then: it does so four times in a lease's length
_MISSED_S = 2.5  # for so long; a Redis server that was started again gets all leases within this time

T = TypeVar("T")


class RoundState(msgspec.Struct, frozen=True):
    """What a rank has and wants at one moment of a round, or all ranks together."""

    is_ready: bool = True  # it has what it waited for
    is_stopping: bool = False
    new_steps: int = 0  # agent steps taken in since the ranks last counted them; 0 in lockstep, which counts rounds
    refills: bool = False  # its replay has too little to learn from, at the beginning or after a loss
    is_save_due: bool = False
    received: dict[int, int] = {}  # by actor, the last message read
    episodes: list[Record] = []  # to log now
    fresh_steps: list[int] = []  # of its queue: agent steps of the fresh sequences of each of the next batches


def merge(states: Sequence[RoundState]) -> RoundState:
    """Return the state of all ranks together: the same on each, as they come in the order of the ranks."""
    return RoundState(
        is_ready=all(state.is_ready for state in states),
        is_stopping=any(state.is_stopping for state in states),
        new_steps=sum(state.new_steps for state in states),
        refills=any(state.refills for state in states),
        is_save_due=any(state.is_save_due for state in states),
        received={actor: last for state in states for actor, last in state.received.items()},
        episodes=[record for state in states for record in state.episodes],
        # As many batches as all ranks have.
        fresh_steps=list(map(sum, zip(*(state.fresh_steps for state in states), strict=False))),
    )


class World:
    """All ranks of a run, as rank number `rank` sees them; raises RunError when another one has ended."""

    def __init__(self, rank: int = 0, size: int = 1, group: dist.ProcessGroup | None = None) -> None:
        self.rank = rank
        self.size = size
        self._group = group
        is_on_gpu = group is not None and dist.get_backend(group) == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if is_on_gpu else torch.device("cpu")

    # --- what the learner's loop exchanges ---

    def sync(self, state: RoundState) -> RoundState:
        """Return the merged state of all ranks."""
        return state if self._group is None else merge(self.exchange(state, RoundState))

    def exchange(self, value: T, kind: type[T]) -> list[T]:
        """Return the value of each rank: anything that JSON can hold, of a `kind` that msgspec knows."""
        if self._group is None:
            return [value]
        encoded = torch.from_numpy(np.frombuffer(msgspec.json.encode(value), np.uint8).copy())
        return [msgspec.json.decode(part.numpy().tobytes(), type=kind) for part in self.gather(encoded)]

    def gather_states(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the state of each rank: tensors and plain values, on the CPU."""
        if self._group is None:
            return [state]
        stream = io.BytesIO()
        torch.save(state, stream)
        packed = torch.from_numpy(np.frombuffer(stream.getvalue(), np.uint8).copy())
        return [
            torch.load(io.BytesIO(part.numpy().tobytes()), map_location="cpu", weights_only=True)
            for part in self.gather(packed)
        ]

    def leave(self) -> None:
        """Give the connections back."""
        if self._group is not None:
            dist.destroy_process_group()

    # --- what updates exchange: `agents.ops.ranks.Ranks` ---

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over all ranks."""
        return numbers if self._group is None else self._reduced(numbers, dist.ReduceOp.SUM) / self.size

    def least(self, numbers: Tensor) -> Tensor:
        """Return the least over all ranks of each number."""
        return numbers if self._group is None else self._reduced(numbers, dist.ReduceOp.MIN)

    @torch.no_grad()
    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean over all ranks, in one exchange."""
        if self._group is None:
            return
        flat = self._reduced(torch.cat([gradient.flatten() for gradient in gradients]), dist.ReduceOp.SUM) / self.size
        means = flat.split_with_sizes([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(list(gradients), [mean.view_as(of) for mean, of in zip(means, gradients, strict=True)])

    def gather(self, numbers: Tensor) -> list[Tensor]:
        """Return the numbers [N] of each rank; N may differ from one to the next."""
        if self._group is None:
            return [numbers]
        own = numbers.detach().to(self._device)
        lengths = [int(size) for size in self._gathered(torch.tensor([len(own)], device=self._device))]
        padded = own.new_zeros(max(lengths))
        padded[: len(own)] = own
        parts = self._gathered(padded.byte() if own.dtype == torch.bool else padded)
        return [part[:length].to(numbers) for part, length in zip(parts, lengths, strict=True)]

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
            raise RunError(_gone(self.rank)) from error


ALONE = World()


def mean_metrics(ranks: Ranks, updates: list[Metrics]) -> list[Metrics]:
    """Return the means over all ranks of updates' metrics, of a largest lag the largest."""
    if ranks.size == 1 or not updates:
        return updates
    names = [name for metrics in updates for name in metrics]
    values = torch.stack([value.double() for metrics in updates for value in metrics.values()])
    found = ranks.mean(values)
    if largest := [place for place, name in enumerate(names) if name == LARGEST_LAG]:
        found[largest] = -ranks.least(-values[largest])
    each = iter(found.float().unbind())
    return [{name: next(each) for name in metrics} for metrics in updates]


def _gone(rank: int) -> str:
    return (
        f"learner {rank}: another learner of this run has ended or does not answer: its own lines show why; start all "
        "again with the same command, and they go on from the checkpoint"
    )


def local_rank(environment: Mapping[str, str]) -> int:
    """Return the number of this rank on its machine; 0 of a learner that torchrun has not started."""
    number = environment.get("LOCAL_RANK", "0") if environment.get("WORLD_SIZE", "1") != "1" else "0"
    return int(number) if number.isascii() and number.isdigit() else 0


def join(environment: Mapping[str, str], device: torch.device, *, timeout_s: float = _MEETING_S) -> World:
    """Meet the other ranks that torchrun has started; `ALONE` where it has started no others.

    Raises UserError for an environment that torchrun has not made, RunError if not all ranks come in time.
    """
    if environment.get("WORLD_SIZE", "1") == "1":
        return ALONE
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
    return World(rank, size, group)


class RankWatch:
    """Watches the other ranks' leases in a thread until the end of its block: nothing else wakes who waits for one.

    `tokens` are those of all ranks' leases, which a living learner renews in Redis; one that was killed or is suspended
    does not. When a lease is gone, the thread prints a line and ends the process with exit code 1. Files are never half
    written, so that may happen at any time.
    """

    def __init__(self, client: Client, name: str, rank: int, tokens: list[bytes]) -> None:
        self._scripts = Scripts(client)
        self._rank = rank
        self._others = {Keys(name, "").lease_of(other): token for other, token in enumerate(tokens) if other != rank}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="others", daemon=True)
        if self._others:
            self._thread.start()

    def __enter__(self) -> "RankWatch":
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
                print(f"launch_learner.py: {_gone(self._rank)}", file=sys.stderr, flush=True)
                os._exit(1)

    def _is_held(self, key: str, token: bytes) -> bool:
        held = self._scripts.read_lease(key)
        return held.value == token and held.left_ms > TTL_MS - _RENEWED_MS
