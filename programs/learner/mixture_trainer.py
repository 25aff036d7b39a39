"""Updates from a mixture: batches prepared ahead in a thread, and smaller ones where memory is short."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

import torch

from rainbow_iqn_apex.agents.interface import Learnable, Update
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.programs.learner.eager_trainer import EagerTrainer, lag
from rainbow_iqn_apex.programs.learner.trainer_base import Metrics, Turn

_SHORTAGES = ("DefaultCPUAllocator", "std::bad_alloc", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")


class MixtureTrainer(EagerTrainer):
    """Learns from a batch while a thread prepares the next ones of the same call.

    All batches of a call are chosen by the weights and the priorities before it, so that no thread's speed decides
    anything. A batch that does not fit into memory goes back; from then on batches are smaller, if it learns `alone`.
    """

    def __init__(
        self, agent: Learnable, buffer: Buffer, device: torch.device, clock: LoopClock, *, alone: bool = True
    ) -> None:
        super().__init__(agent, buffer, None, device, clock)
        assert agent.mixing is not None and buffer.smaller is not None, "an agent without a mixture"
        self._mixing, self._batches = agent.mixing, buffer.smaller
        self._alone = alone
        self._prepared: deque[Batch] = deque()  # not learned from yet
        self._thread = ThreadPoolExecutor(1, "batches")  # one for all calls: where memory is short, none could start

    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn, or fewer where memory is short: the first ones.

        Raises DivergedError if a priority is not finite, and what a shortage raises where no batch is small enough.
        """
        if len(turns) == 1:
            return self._learn(turns, [partial(self._prepare, turns[0])])
        with self._mixing.held():
            futures = [self._thread.submit(self._prepare, turn) for turn in turns]
            return self._learn(turns, [future.result for future in futures], futures)

    def _prepare(self, turn: Turn) -> None:
        self._prepared.append(self._buffer.sample(None, turn.progress))

    def _learn(
        self, turns: list[Turn], prepare: list[Callable[[], None]], futures: Sequence[Future[None]] = ()
    ) -> list[Metrics]:
        made: list[tuple[Batch, Update]] = []
        metrics: list[Metrics] = []
        is_short = False
        try:
            for turn, prepared in zip(turns, prepare, strict=True):
                with self._clock.part("sample"):
                    prepared()
                with self._clock.part("update"):
                    made.append((self._prepared[0], self._update(turn, self._prepared[0])))
                metrics.append(made[-1][1].metrics | lag(turn, self._prepared.popleft(), self._device))
        except (MemoryError, RuntimeError) as error:
            if not _is_shortage(error) or not self._alone or not self._shrink():
                raise
            is_short = True
        finally:
            for future in futures:
                future.cancel()
            wait(futures)  # priorities change what is drawn
        for batch, update in made:
            self._note(batch, update)
        if is_short:  # now that no traceback holds the failed update's tensors
            self._batches.put_back(list(self._prepared))
            self._prepared.clear()
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
        return metrics

    def _shrink(self) -> bool:
        before, now = self._batches.batch_size, self._batches.shrink()
        if now:
            print(f"Out of memory: batches have {now} sequences from now on, in the place of {before}", flush=True)
        return now is not None


def _is_shortage(error: MemoryError | RuntimeError) -> bool:
    """Return whether memory was short; PyTorch has no type of error for the machine's own, nor for CUDA's libraries."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(part in str(error) for part in _SHORTAGES)
