"""How the learner makes its updates: one operation after the other, or on a GPU as one recorded graph.

trainer = make_trainer(agent, buffer, batch_size, device)
metrics = trainer([Turn(progress, step), ...])      # an update for each turn
"""

import torch

from rainbow_iqn_apex.agents.eager_trainer import EagerTrainer
from rainbow_iqn_apex.agents.interface import Agent, MixtureAgent
from rainbow_iqn_apex.agents.mixture_trainer import MixtureTrainer
from rainbow_iqn_apex.agents.updates import PARTS, Metrics, Trainer, Turn
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.loop_clock import LoopClock
from rainbow_iqn_apex.memory.mixture.buffer import Mixture

_WARM_UP = 3  # updates before a recording: libraries choose their algorithms, and the optimiser makes its state


class GraphTrainer(Trainer):
    """Draws each batch when it is learned from, all on the GPU: an update is one launch of a CUDA graph.

    Recording needs warm-up on another stream; these are true updates, too. New chunks reach the graph because they are
    written into the same memory, on the same stream.
    """

    def __init__(
        self, agent: Agent, buffer: Buffer, batch_size: int | None, device: torch.device, clock: LoopClock
    ) -> None:
        super().__init__(agent, buffer, batch_size, device, clock)
        self._progress = torch.zeros((), device=device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._made = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._metrics: Metrics = {}

    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn.

        Nothing here waits for the GPU, so nobody looks whether the losses are finite: see the learner's loop.
        """
        with self._clock.part("update"):
            return [self._replay(turn) for turn in turns]

    def _replay(self, turn: Turn) -> Metrics:
        self._progress.fill_(turn.progress)
        if self._made < _WARM_UP:
            self._warm_up()
        else:
            if self._graph is None:
                self._graph = self._record()
            self._graph.replay()
        self._made += 1
        self._agent.count_update(turn.step)
        return {name: value.clone() for name, value in self._metrics.items()}

    def _work(self) -> None:
        batch = self._buffer.sample(self._batch_size, self._progress)
        update = self._agent.update(batch, self._progress)
        self._buffer.learned(batch, update.priorities)
        self._metrics = update.metrics

    def _warm_up(self) -> None:
        here = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            self._work()
        here.wait_stream(self._stream)

    def _record(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        for generator in (self._agent.generator, self._buffer.generator):
            graph.register_generator_state(generator)
        with torch.cuda.graph(
            graph, stream=self._stream, capture_error_mode="thread_local"
        ):  # weights may be on the way
            self._work()
        return graph


def make_trainer(
    agent: Agent, buffer: Buffer, batch_size: int | None, device: torch.device, clock: LoopClock | None = None
) -> Trainer:
    """Return the fastest updates for an agent on `device` with this buffer; None learns from all that waits in it.

    `clock` has the PARTS of the updates.
    """
    clock = clock or LoopClock(*PARTS)
    if isinstance(buffer, Mixture):
        assert isinstance(agent, MixtureAgent)
        return MixtureTrainer(agent, buffer, device, clock)
    on_gpu = device.type == "cuda" and buffer.device == device and agent.buffer == "replay"  # a queue is host code
    return (GraphTrainer if on_gpu else EagerTrainer)(agent, buffer, batch_size, device, clock)
