"""What an agent is, by the loops that use it:

    # actor: a Policy (agents/policy.py)                # learner: a Learnable
    policy.load(published weights, version)             for batch in batches from replay or queue:
    output, state = policy.act(rows, state, step)         update = agent.update(batch, progress)
    chunk = assembler.add(row, action, extras)              replay.learned(batch, update.priorities)
    # (the assembler asks policy.initial_priorities)    publish agent.model.published()

An author writes both in one class, an `Agent`. A policy that computes elsewhere is a `Policy` alone.
An agent is a folder with `agent.py` and `options.py`, and one line in `agents.registry`. It never sees Redis, files or
environments.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.network import Network, acting_tensors
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.optimisation import OptimisationStep, Optimiser
from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.agents.randomness import restore_generator
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, EnvironmentSpec
from rainbow_iqn_apex.memory.mixture.spec import Sampling, TableSpec
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.options.agent_options import AgentOptions, LearningOptions


class EnvironmentSlot(NamedTuple):
    """Where an agent's environments stand among those of all actors."""

    first: int
    total: int  # of all actors

    def places(self, count: int, given: Array | None) -> Tensor:
        """Return the places [E] int64 that are given, or those of the first environments, so many, of this slot."""
        return torch.arange(self.first, self.first + count) if given is None else torch.from_numpy(given)


@dataclass(frozen=True)
class Setup:
    """Holds all that an agent is built from."""

    learning: LearningOptions
    own: AgentOptions  # of the class that the registry names for the agent
    environment: EnvironmentSpec
    generator: torch.Generator  # of all that the agent draws, on its device
    learns: bool  # an agent that only acts needs no target network and no optimiser
    slot: EnvironmentSlot  # for exploration that differs from one environment to the next
    agent: str = "this one"  # as --agent names it
    ranks: Ranks = ALONE  # the learners that make each update together

    def optimisation(self, optimiser: Optimiser) -> OptimisationStep:
        """Return what makes the steps of an agent's optimiser, under the settings of all agents."""
        return OptimisationStep(optimiser, self.learning.max_gradient_norm, self.ranks)

    @property
    def nb_actions(self) -> int:
        """Return among how many actions to choose; raises UserError if an action is not one discrete choice."""
        action = self.environment.action
        if not isinstance(action, Discrete):
            others = "ppo and sac take" if isinstance(action, Box) else "ppo takes"
            raise UserError(
                f"--agent: {self.agent} chooses among discrete actions, and the environment takes {action}; "
                f"{others} these"
            )
        return action.count


class Stateful(Protocol):
    """Something of an agent that snapshots hold."""

    def state_dict(self) -> Any:
        """Return all that must be restored, as tensors and plain values."""

    def load_state_dict(self, state: Any) -> Any:
        """Restore it."""


BufferKind = Literal["replay", "queue", "mixture"]  # samples again and again, gives each chunk once, or both


class Update(NamedTuple):
    """Result of one update."""

    priorities: Tensor | None  # [B] the new priorities, exponent applied; None from an agent without any
    metrics: dict[str, Tensor]  # by any names: 0-d, on the agent's device; one that is not finite ends the run


class Mixing(Protocol):
    """Holds what a mixture needs of its agent: its tables, and present feature vectors, by which they choose."""

    mix: tuple[TableSpec, ...]
    sampling: Sampling

    def measure(self, rows: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
        """Return the feature vectors [T, B, K] of sequences, from the first row with a full stack on."""

    def measure_bytes(self, sequences: int) -> int:
        """Estimate the bytes that `measure` holds at once for so many sequences, beside their rows."""

    def held(self) -> AbstractContextManager[None]:
        """Let `measure` use a copy of the present weights meanwhile, in whatever thread."""


class Learnable(ABC):
    """Learns from batches of replayed rows: all that a trainer needs."""

    spec: ChunkSpec
    buffer: BufferKind = "replay"
    mixing: Mixing | None = None  # of an agent with a mixture
    new_at_largest = False  # of a prioritised replay: new samples get their priorities times the largest one so far
    steps_per_update: int | None = None  # agent steps that an update from a replay stands for; None: --replay-frequency
    generator: torch.Generator  # of all that it draws, on its device
    parts: dict[str, Stateful]  # "model" is a Network; snapshots hold all of them
    learned: ClassVar[frozenset[str]] = frozenset()  # those without which the model's weights cannot be trained further

    @property
    def model(self) -> Network:
        """Return the network that acts, which the learner publishes: parameters and buffers."""
        model = self.parts["model"]
        assert isinstance(model, Network)
        return model

    @abstractmethod
    def update(self, batch: Batch, progress: float | Tensor) -> Update:
        """Make one update, with a batch on the agent's device, by the step that `Setup.optimisation` returns.

        `progress` is the share of learning that is done: 0 at learn-start, 1 at T-max.
        On a GPU the update from a replay is recorded once and then replayed, so it may neither look at a tensor's
        values nor depend on anything in Python that changes.
        """

    def expect(self, batch: Batch, step: int) -> None:  # noqa: B027 - most compute nothing ahead
        """Hear, before an update, which batch the update after it has, to begin with it meanwhile.

        `step` is what `count_update` hears between the two.
        """

    def count_update(self, step: int) -> None:  # noqa: B027 - most do nothing
        """Do what depends on how far learning is, after each update.

        `step` counts the agent steps that all updates of the run stand for.
        """

    def update_bytes(self, batch_size: int) -> int:  # noqa: ARG002 - small networks and batches need little
        """Estimate the bytes that `update` holds at once, beside batch and weights: activations, and their gradients.

        0 means that the learner's budget has room for them already.
        """
        return 0


class Agent(Policy, Learnable):
    """A policy that learns, as authors write it: the constructor, `act` and `update`, and the attributes of both."""

    options_type: ClassVar[type[AgentOptions]]  # of an agent of another package; `agents.registry` has those of others

    @abstractmethod
    def __init__(self, setup: Setup) -> None:
        """Build the networks of the setup; where it does not learn, what acting needs is enough."""

    def load(self, weights: dict[str, Tensor], version: int) -> None:
        """Copy published weights of this version into the model."""
        with torch.no_grad():
            for name, tensor in self.loaded().items():
                tensor.copy_(weights[name])
        self.version = version

    def loaded(self) -> dict[str, Tensor]:
        """Return the tensors of the model that decide how it acts."""
        return acting_tensors(self.model)

    def random_state(self) -> Array:
        """Return the state of the generator."""
        state: Array = self.generator.get_state().numpy()
        return state

    def restore_random_state(self, state: Array) -> None:
        """Go on drawing where that state was taken, unless that was on another kind of device."""
        restore_generator(self.generator, torch.from_numpy(state))

    def reseed(self, seed: int) -> None:
        """Let `seed` decide all that the generator draws from now on."""
        self.generator.manual_seed(seed)

    @classmethod
    def sizes_of(cls, weights: dict[str, Tensor]) -> dict[str, Any]:  # noqa: ARG003 - most snapshots hold settings
        """Return the settings that published weights show by their shapes, and "nb_actions"; perhaps none of them.

        Raises ValueError for weights that are of no such agent.
        """
        return {}
