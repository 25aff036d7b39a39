"""Agents that learn from sequences of rows with a `Core`: what such a network sees when acting and when learning.

A policy keeps, for each environment, the stack, and with an LSTM the last action and the recurrent state; a chunk holds
both as they were before its first row with a full stack: the frames of that stack are the chunk's own rows.
Letters: T rows from the first with a full stack on, B batch, E environments, S stack.
"""

import numpy as np
import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.devices import select_precision
from rainbow_iqn_apex.agents.interface import Agent, Setup
from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, RecurrentState
from rainbow_iqn_apex.agents.networks.encoder import EncoderSpec
from rainbow_iqn_apex.agents.ops import FIRST
from rainbow_iqn_apex.agents.ops.frames import push_frame, stacks
from rainbow_iqn_apex.agents.ops.n_step import clip_reward
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import LAST_ACTION
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Field
from rainbow_iqn_apex.memory.rows import Arrays, Rows, StepType

_RECURRENT = ("hidden", "cell")


def core_spec(setup: Setup, architecture: str, features: int, lstm: int, initial_time_scale: int) -> CoreSpec:
    """Return the sizes of the environment's core; its LSTM first remembers for `initial_time_scale` rows."""
    precision = select_precision(setup.learning.precision, setup.generator.device)
    stack = setup.learning.history_length
    torso = EncoderSpec(setup.environment.observation, stack, architecture, features, precision, setup.learns)
    return CoreSpec(torso, setup.environment.action, lstm, initial_time_scale)


def state_fields(lstm: int, action: ActionSpec) -> tuple[tuple[str, Field], ...]:
    """Return the fields of a chunk's state for an LSTM of so many units (0: none) and actions of a spec."""
    if not lstm:
        return ()
    return ((LAST_ACTION, action.field), *((name, Field((lstm,), "float32")) for name in _RECURRENT))


class SequenceAgent(Agent):
    """Base of the agents with a core."""

    core: Core
    has_pass_beside = False  # a target network's, which sees all rows of an update at the same time

    def __init__(self, setup: Setup) -> None:
        """Take what every such agent needs of the setup; the agent sets `core`, `spec` and `parts`."""
        self._learning = setup.learning
        self._ranks = setup.ranks
        self._slot = setup.slot
        self.generator = setup.generator
        self._device = setup.generator.device

    def update_bytes(self, batch_size: int) -> int:
        """Estimate the bytes of an update's temporaries; what was kept of the burn-in has no gradient."""
        learned = batch_size * (self.spec.sample_length + self.spec.bootstrap_rows)
        rows = learned + batch_size * self.spec.burn_in
        return self.core.update_bytes(rows, learned, rows if self.has_pass_beside else 0)

    def shown_reward(self, reward: Tensor) -> Tensor:
        """Return rewards as the network sees them and the loss counts them: scaled and clipped."""
        return clip_reward(reward, self._learning.reward_clip, self._learning.reward_scale)

    def acting_inputs(self, rows: Rows, state: Arrays) -> tuple[Inputs, RecurrentState, Tensor]:
        """Return the current rows' inputs [1, E, ...], the recurrent states before them, and the stacks [E, S, ...]."""
        obs = torch.from_numpy(rows.obs)  # [E, ...]
        first = torch.from_numpy(rows.step_type == StepType.FIRST)  # [E]
        if not state:
            state = self._blank_state(obs)
        stack = push_frame(torch.from_numpy(state["stack"]), obs, first)
        reward = self.shown_reward(torch.from_numpy(rows.reward))
        last = torch.from_numpy(state[LAST_ACTION]) if self.spec.state else first  # [E, ...]; no LSTM reads `first`
        parts = (stack, first, reward, last)
        recurrent = tuple(torch.from_numpy(state[name]).to(self._device) for name in _RECURRENT if name in state)
        return Inputs(*(part.to(self._device).unsqueeze(0) for part in parts)), recurrent, stack

    def next_state(self, stack: Tensor, actions: Tensor, recurrent: RecurrentState) -> Arrays:
        """Return what the policy keeps after it has chosen actions [E, ...]."""
        kept = dict(zip(_RECURRENT, (part.cpu().numpy() for part in recurrent), strict=False))
        if kept:
            kept[LAST_ACTION] = actions.cpu().numpy().astype(dict(self.spec.state)[LAST_ACTION].dtype)
        return {"stack": stack.numpy()} | kept

    def _blank_state(self, obs: Tensor) -> Arrays:
        fields = (("stack", Field((self.spec.stack, *obs.shape[1:]), str(obs.numpy().dtype))), *self.spec.state)
        return {name: np.zeros((len(obs), *field.shape), field.dtype) for name, field in fields}

    def learning_inputs(self, batch: Batch) -> tuple[Inputs, RecurrentState]:
        """Return the inputs [T, B, ...] of a batch, and the recurrent state before them."""
        skipped = self.spec.stack - 1
        before = batch.state.get(LAST_ACTION, batch.action[0])  # [B, ...] that nothing reads without an LSTM
        last = torch.cat((before.unsqueeze(0), batch.action[skipped:-1]))  # [T, B, ...]
        inputs = Inputs(
            obs=stacks(batch.obs, batch.step_type, self.spec.stack),
            first=batch.step_type[skipped:] == FIRST,
            reward=self.shown_reward(batch.reward[skipped:]),
            action=last,
        )
        return inputs, tuple(batch.state[name] for name in _RECURRENT if name in batch.state)


class UpdateCounter:
    """Counts updates, for the target network; snapshots hold the count."""

    def __init__(self) -> None:
        self.made = 0

    def state_dict(self) -> dict[str, Tensor]:
        """Return the count."""
        return {"made": torch.tensor(self.made)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on counting."""
        self.made = int(state["made"])

    def count(self, period: int, target: nn.Module, network: nn.Module) -> None:
        """Count an update; after every `period` of them, copy the weights of the network to the target."""
        self.made += 1
        if self.made % period == 0:
            with torch.no_grad():
                torch._foreach_copy_(list(target.parameters()), list(network.parameters()))
