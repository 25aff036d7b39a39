"""How the learner makes its updates: one operation after the other, or on a GPU as one recorded graph.

trainer = make_trainer(agent, buffer, batch_size, device)
metrics = trainer([Turn(progress, step), ...])      # an update for each turn
"""

import torch

from rainbow_iqn_apex.agents.interface import Learnable, Update
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.programs.learner.eager_trainer import EagerTrainer
from rainbow_iqn_apex.programs.learner.graph_recording import (
    GraphRecorder,
    LearnedState,
    Recorder,
    Work,
    checked_recording,
)
from rainbow_iqn_apex.programs.learner.mixture_trainer import MixtureTrainer
from rainbow_iqn_apex.programs.learner.trainer_base import PARTS, Metrics, Trainer, Turn

_WARM_UP = 3  # updates before a recording: libraries choose their algorithms, and the optimiser makes its state


class GraphTrainer(Trainer):
    """Draws each batch when it is learned from, all on the GPU: an update is one launch of a CUDA graph.

    The first updates warm up, on the recording's stream; they are true updates, too. New chunks reach the graph because
    they are written into the same memory, on the same stream.
    """

    def __init__(
        self, agent: Learnable, buffer: Buffer, batch_size: int | None, device: torch.device, clock: LoopClock,
        recorder: Recorder,
    ) -> None:  # fmt: skip
        super().__init__(agent, buffer, batch_size, device, clock)
        self._recorder = recorder
        self._progress = torch.zeros((), device=device)
        self._made = 0
        self._launch: Work | None = None

    def __call__(self, turns: list[Turn]) -> list[Metrics]:
        """Make one update for each turn.

        But for the first recording nothing here waits for the GPU, so it is not seen whether the losses are finite: see
        the learner's loop.
        """
        with self._clock.part("update"):
            return [self._update(turn) for turn in turns]

    def _update(self, turn: Turn) -> Metrics:
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
    agent: Learnable, buffer: Buffer, batch_size: int | None, device: torch.device, clock: LoopClock | None = None,
    *, alone: bool = True,
) -> Trainer:  # fmt: skip
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
