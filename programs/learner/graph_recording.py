"""Updates recorded on a GPU as one graph, and the check that a recording changes what the operations change.

make = checked_recording(recorder, state, work)     # has made one update
make()                                              # makes the next one
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.interface import Learnable, Update
from rainbow_iqn_apex.memory.buffer import Buffer

# Both ways draw the same numbers, and run the same kernels. Two sources of difference are left: a gradient summed in
# another order, and equal draws, of which any one writes its priority. Losses hardly see either. Adam divides by the
# size of a gradient, so an entry that is all rounding may go the other way. Gradients rounded to bfloat16 made 0.001 of
# the results and 0.0005 of the steps. Another batch makes 0.02 to 1 of a result, and an update that is missing or made
# twice differs by as much as it changes.
_OF_RESULTS = (1e-2, 1e-5)  # allowed difference, as a share of the result and beside it
_OF_CHANGES = 0.5  # the same for weights, optimiser and priorities, as a share of their change

Changed = dict[str, list[Tensor]]  # by part
Work = Callable[[], Update]


class Recorder(Protocol):
    """Records what a device does."""

    def warm_up(self, work: Work) -> Update:
        """Do the work as it will be recorded, one operation after the other."""

    def record(self, work: Work) -> Work:
        """Return what does the work again, as one launch; the work is not done yet. RuntimeError: it cannot be."""


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
        here, graph = torch.cuda.current_stream(self._device), torch.cuda.CUDAGraph()
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
                self._compared[name], others = list(part.parameters()), list(part.buffers())
            else:
                found = list(_tensors(part.state_dict()))
                self._compared[name] = [tensor for tensor in found if tensor.is_floating_point()]
                others = [tensor for tensor in found if not tensor.is_floating_point()]
            self._others += others
        self._before, self._others_before = self.copies(), [tensor.clone() for tensor in self._others]
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


def checked_recording(recorder: Recorder, state: LearnedState, work: Work) -> tuple[Work, Update]:
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
