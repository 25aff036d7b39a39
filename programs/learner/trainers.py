"""How the learner makes its updates: one operation after the other, or on a GPU as one recorded graph.

trainer = make_trainer(agent, buffer, batch_size, device)
metrics = trainer([Turn(progress, step), ...])      # an update for each turn
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.interface import Learnable, Update
from rainbow_iqn_apex.common.errors import DivergedError, UserError
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Buffer

Metrics = dict[str, Tensor]  # 0-d, on the agent's device

LARGEST_LAG = "largest_policy_lag"  # the only metric that is no mean
PARTS = ("sample", "update")  # of a clock
_WARM_UP = 3  # updates before a recording: libraries choose their algorithms, and the optimiser makes its state
_SHORTAGES = ("DefaultCPUAllocator", "std::bad_alloc", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")
# Both ways draw the same numbers, and run the same kernels. Two sources of difference are left: a gradient summed in
# another order, and equal draws, of which any one writes its priority. Losses hardly see either. Adam divides by the
# size of a gradient, so an entry that is all rounding may go the other way. Gradients rounded to bfloat16 made 0.001 of
# the results and 0.0005 of the steps. Another batch makes 0.02 to 1 of a result, and an update that is missing or made
# twice differs by as much as it changes.
_OF_RESULTS = (1e-2, 1e-5)  # allowed difference, as a share of the result and beside it
_OF_CHANGES = 0.5  # the same for weights, optimiser and priorities, as a share of their change

Changed = dict[str, list[Tensor]]  # by part
Work = Callable[[], Update]


class Turn(NamedTuple):
    """An update to make."""

    progress: float  # share of learning that is done before it
    step: int  # agent steps that all updates stand for, this one among them
    version: int = 0  # of the newest published weights


class EagerTrainer:
    """Draws the batches of all turns, then learns from each, and writes priorities back."""

    def __init__(
        self, agent: Learnable, buffer: Buffer, batch_size: int | None, device: torch.device, clock: LoopClock
    ) -> None:
        self._agent = agent
        self._buffer = buffer
        self._batch_size = batch_size
        self._device = device
        self._copies = buffer.device != device  # batches to the agent's device; else their rows stay where they are
        self._clock = clock

    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn, or fewer where memory is short: the first ones.

        Raises DivergedError if a priority is not finite.
        """
        with self._clock.part("sample"):
            batches = [self._buffer.sample(self._batch_size, turn.progress) for turn in turns]
        with self._clock.part("update"):
            metrics = []
            for turn, batch, following in zip(turns, batches, [*batches[1:], None], strict=True):
                if following is not None and not self._copies:  # the agent recognises a batch by its identity
                    self._agent.expect(following, turn.step)
                update = self._update(turn, batch)
                self._note(batch, update)
                metrics.append(update.metrics | lag(turn, batch, self._device))
            return metrics

    def _update(self, turn: Turn, batch: Batch) -> Update:
        update = self._agent.update(batch.to(self._device) if self._copies else batch, turn.progress)
        metrics = update.metrics.values() if isinstance(update, Update) else [None]
        if not all(isinstance(value, Tensor) and value.dim() == 0 for value in metrics):
            raise UserError("--agent: expected `update` to return Update(priorities, {name: 0-d tensor})")
        self._agent.count_update(turn.step)
        return update

    def _note(self, batch: Batch, update: Update) -> None:
        priorities = None if update.priorities is None else update.priorities.to(self._buffer.device)
        if priorities is not None and not priorities.isfinite().all():
            raise DivergedError("a priority")
        self._buffer.learned(batch, priorities)


def lag(turn: Turn, batch: Batch, device: torch.device) -> Metrics:
    """Return by how many versions the weights that acted lag behind, on average and at most; for a queue's batch.

    The batch may be on another device than the agent's, where all metrics are checked together.
    """
    if batch.versions is None:
        return {}
    lags = (turn.version - batch.versions).float().to(device)
    return {"policy_lag": lags.mean(), LARGEST_LAG: lags.max()}


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
        self._mixing = agent.mixing
        self._batches = buffer.smaller
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
        before = self._batches.batch_size
        now = self._batches.shrink()
        if now:
            print(f"Out of memory: batches have {now} sequences from now on, in the place of {before}", flush=True)
        return now is not None


def _is_shortage(error: MemoryError | RuntimeError) -> bool:
    """Return whether memory was short; PyTorch has no type of error for the machine's own, nor for CUDA's libraries."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(part in str(error) for part in _SHORTAGES)


class GraphRecorder:
    """Records CUDA graphs, on a stream of its own; `generators` are those that the work draws from."""

    def __init__(self, device: torch.device, generators: list[torch.Generator]) -> None:
        self._device = device
        self._generators = generators
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def warm_up(self, work: Work) -> Update:
        """Do the work on the recording's stream."""
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            results = work()
        here.wait_stream(self._stream)
        return results

    def record(self, work: Work) -> Work:
        """Return the graph's launch, whose results stand in the same memory each time."""
        here = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        drawn_from = [*self._generators, *_default_generators(self._device)]
        spare = [(generator, generator.clone_state()) for generator in drawn_from]
        for generator in self._generators:
            graph.register_generator_state(generator)
        try:
            # Weights may be on their way to the actors, in another thread. PyTorch waits for the current device.
            with (
                torch.cuda.device(self._device),
                torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
            ):
                results = work()
        except RuntimeError:  # PyTorch leaves the stream, and generators that refuse to draw outside of a recording
            torch.cuda.set_stream(here)
            for generator, state in spare:
                generator.graphsafe_set_state(state)
            raise

        def launch() -> Update:
            graph.replay()
            return results

        return launch


class LearnedState:
    """All that an update changes: the agent's parts, priorities, and where the generators are."""

    def __init__(self, agent: Learnable, buffer: Buffer) -> None:
        self._compared = {"priorities of replay": buffer.recorded() or []}
        self._others: list[Tensor] = []  # the noise of a layer, say, which would hide how little a step changes
        for name, part in agent.parts.items():
            if isinstance(part, nn.Module):
                self._compared[name] = list(part.parameters())
                others = list(part.buffers())
            else:
                found = list(_tensors(part.state_dict()))
                self._compared[name] = [tensor for tensor in found if tensor.is_floating_point()]
                others = [tensor for tensor in found if not tensor.is_floating_point()]
            self._others += others
        self._before = self.copies()
        self._others_before = [tensor.clone() for tensor in self._others]
        self._generators = [agent.generator, buffer.generator, *_default_generators(agent.generator.device)]
        self._drawn = [generator.get_state() for generator in self._generators]

    @torch.no_grad()
    def restore(self) -> None:
        """Go back, within the same tensors, to what was there at first."""
        for name, tensors in self._compared.items():
            for tensor, before in zip(tensors, self._before[name], strict=True):
                tensor.copy_(before)
        for tensor, before in zip(self._others, self._others_before, strict=True):
            tensor.copy_(before)
        for generator, drawn in zip(self._generators, self._drawn, strict=True):
            generator.set_state(drawn)

    def copies(self) -> Changed:
        """Return copies of the present numbers of each part."""
        return {name: [tensor.detach().clone() for tensor in tensors] for name, tensors in self._compared.items()}

    def differing(self, wanted: Changed) -> list[str]:
        """Name the parts that have now come to something else than wanted, from what was there at first."""
        return [
            name
            for name, tensors in self._compared.items()
            if not _distance(tensors, wanted[name]) <= _OF_CHANGES * _distance(wanted[name], self._before[name])
        ]


def checked_recording(recorder: GraphRecorder, state: LearnedState, work: Work) -> tuple[Work, Update]:
    """Make one update in both ways from the same state; returns how to make the next ones, and its results.

    Where the recording fails or comes to something else, a line is printed, and the way is that of the operations.
    """
    try:
        wanted = {name: result.clone() for name, result in _named(recorder.warm_up(work)).items()}
        changed = state.copies()
        state.restore()
        launch = recorder.record(work)
        update = launch()
        found = _named(update)
        differing = [name for name in wanted if not _is_close(found[name], wanted[name])] + state.differing(changed)
        what = f"differs from its operations in {', '.join(differing)}" if differing else ""
    except RuntimeError as error:
        what = f"fails: {_cause(error)}"
    if not what:
        return launch, update
    state.restore()
    print(f"The update as one CUDA graph {what}; from now on its operations are launched one by one", flush=True)
    return work, work()


def _named(update: Update) -> dict[str, Tensor]:
    """Return metrics, and priorities if there are any."""
    return update.metrics | ({} if update.priorities is None else {"priorities of the batch": update.priorities})


def _is_close(found: Tensor, wanted: Tensor) -> bool:
    share, beside = _OF_RESULTS
    return _distance([found], [wanted]) <= share * _distance([wanted], [torch.zeros_like(wanted)]) + beside


def _distance(tensors: list[Tensor], others: list[Tensor]) -> float:
    """Return the norm of all differences; NaN, which is no close one, if one of them is."""
    parts = zip(tensors, others, strict=True)
    return math.hypot(*(float(torch.linalg.vector_norm(a.detach().double() - b.detach().double())) for a, b in parts))


def _cause(error: BaseException) -> str:
    """Return the first line of what went wrong first: the end of a recording that failed fails, too."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0] or type(error).__name__


def _default_generators(device: torch.device) -> list[torch.Generator]:
    """Return PyTorch's own generator of a GPU, which every recording registers by itself."""
    return [torch.cuda.default_generators[device.index or 0]] if device.type == "cuda" else []


def _tensors(state: Any) -> Iterator[Tensor]:
    """Find the tensors in what a `state_dict` returns."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)
    elif isinstance(state, list | tuple):
        for value in state:
            yield from _tensors(value)


class GraphTrainer(EagerTrainer):
    """Draws each batch when it is learned from, all on the GPU: an update is one launch of a CUDA graph.

    The first updates warm up, on the recording's stream; they are true updates, too. New chunks reach the graph because
    they are written into the same memory, on the same stream. But for the first recording nothing here waits for the
    GPU, so nothing here shows whether the losses are finite: the learner's loop checks them.
    """

    def __init__(
        self,
        agent: Learnable,
        buffer: Buffer,
        batch_size: int | None,
        device: torch.device,
        clock: LoopClock,
        recorder: GraphRecorder,
    ) -> None:
        super().__init__(agent, buffer, batch_size, device, clock)
        self._recorder = recorder
        self._progress = torch.zeros((), device=device)
        self._made = 0
        self._launch: Work | None = None

    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn."""
        with self._clock.part("update"):
            return [self._make(turn) for turn in turns]

    def _make(self, turn: Turn) -> Metrics:
        self._progress.fill_(turn.progress)
        if self._launch is not None:
            update = self._launch()
        elif self._made < _WARM_UP:
            update = self._recorder.warm_up(self._work)
        else:
            state = LearnedState(self._agent, self._buffer)
            self._launch, update = checked_recording(self._recorder, state, self._work)
        self._made += 1
        self._agent.count_update(turn.step)
        return {name: value.clone() for name, value in update.metrics.items()}

    def _work(self) -> Update:
        batch = self._buffer.sample(self._batch_size, self._progress)
        update = self._agent.update(batch, self._progress)
        self._buffer.learned(batch, update.priorities)
        return update


def make_trainer(
    agent: Learnable,
    buffer: Buffer,
    batch_size: int | None,
    device: torch.device,
    clock: LoopClock | None = None,
    *,
    alone: bool = True,
) -> EagerTrainer:
    """Return the fastest updates for an agent on `device` with this buffer; None learns from all that waits in it.

    `clock` has the PARTS of the updates. A learner that is not `alone` makes them with others, who wait for it: it
    records no graph, as there may be other processes in it, and its batches never become smaller.
    """
    clock = clock or LoopClock(*PARTS)
    if agent.mixing is not None:
        return MixtureTrainer(agent, buffer, device, clock, alone=alone)
    if alone and device.type == "cuda" and buffer.device == device and buffer.recorded() is not None:
        recorder = GraphRecorder(device, [agent.generator, buffer.generator])
        return GraphTrainer(agent, buffer, batch_size, device, clock, recorder)
    return EagerTrainer(agent, buffer, batch_size, device, clock)
