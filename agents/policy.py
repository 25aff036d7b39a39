"""What a policy is, without torch: all that an actor, an evaluation and an inference server need.

An agent is a policy that computes in its own process. `agents/interface.py` describes it, and the actor's loop.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows

if TYPE_CHECKING:
    from torch import Tensor


class ActorOutput(NamedTuple):
    """A policy's actions in E environments, and what it keeps beside them."""

    actions: Array  # [E, ...] as the environment's spec describes an action
    extras: Arrays  # [E, ...] outputs of the network, kept with each row for `initial_priorities` and `update`
    version: int  # of the weights that computed them


Acted: TypeAlias = tuple[ActorOutput, Arrays]  # and the state for the next call


class Inspection(NamedTuple):
    """Holds what an agent thinks of one environment's row, for people who watch it, of the given `kind`.

    - "quantiles" and "atoms": mean returns of A actions, and the distributions behind them;
    - "values" of A actions, or "probabilities" of the policy;
    - "choices": probabilities of a policy that makes K choices at once, those of one choice behind those before it;
    - "intervals": A numbers that a policy takes without exploration, and quantiles of what it draws with it.
    """

    kind: Literal["quantiles", "atoms", "probabilities", "values", "choices", "intervals"]
    actions: Array  # [A] float32
    value: float | None = None  # of the state, for an agent that estimates one
    places: Array | None = (
        None  # [N] fractions of quantiles, or returns of the atoms; [K] how many each choice is among
    )
    curves: Array | None = None  # [A, N] quantiles, or probabilities of the atoms


DRAWN = "drawn actions"  # of an agent with the option --stochastic


class ActingProtocol(NamedTuple):
    """How a policy chooses its actions in an evaluation, and how the actions differ that training scores come from."""

    training: str  # the actions behind training scores, in words
    drawn: bool = False  # from the policy's distribution; otherwise greedy, the likeliest or most valuable action
    noise: bool = False  # of the network's weights
    epsilon: float = 0.0  # share of random actions

    @property
    def sentence(self) -> str:
        """Both for people, in one line."""
        noise = " under the network's noise" * self.noise
        random = f", except for a share of {self.epsilon:g} at random" * (self.epsilon > 0)
        chosen = "drawn from the policy" if self.drawn else "greedy"
        way = " (--stochastic evaluates these)" * (self.training == DRAWN and not self.drawn)
        return f"actions: {chosen}{noise}{random}; training scores come from {self.training}{way}"


class Policy(ABC):
    """Acts for a batch of environments: all that an actor, an evaluation and an inference server need."""

    spec: ChunkSpec
    version = 0  # of the weights that act

    @abstractmethod
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:
        """Choose actions at the current rows.

        `state` is what the last call returned for the same environments, empty for a first call. `step` counts agent
        steps over all actors, for what exploration depends on; None evaluates. `places` [E] int64 number the
        environments among those of all actors, for exploration that differs from one to the next; None: the policy's
        own, from its slot's first on.
        """

    @abstractmethod
    def load(self, weights: "dict[str, Tensor]", version: int) -> None:
        """Act with published weights of this version from now on; one that computes elsewhere gets none."""

    def loaded(self) -> "dict[str, Tensor]":
        """Return the present tensors that `load` replaces, by name; none of a policy that computes elsewhere."""
        return {}

    def random_state(self) -> Array | None:
        """Return the state of the policy's random numbers, which is saved with an actor; None if it draws none here."""
        return None

    def restore_random_state(self, state: Array) -> None:  # noqa: B027 - there is none
        """Go on drawing where `random_state` returned this array."""

    def reseed(self, seed: int) -> None:  # noqa: B027 - there is nothing to decide
        """Let `seed` decide all that the policy draws from now on."""

    def inspect(self, rows: Rows, state: Arrays) -> Inspection | None:  # noqa: ARG002 - not all have it
        """Return what the agent thinks of the row of one environment, given as for `act`; None if it has no way to.

        This must change nothing: an agent that is watched acts as one that is not.
        """
        return None

    def acting_protocol(self) -> ActingProtocol | None:
        """Return how `act` chooses actions in an evaluation; None if the policy does not describe it."""
        return None

    def initial_priorities(self, rows: Arrays) -> Array | None:  # noqa: ARG002 - most need none
        """Return priorities [samples] float32 of a chunk's rows [window, ...], from the extras that `act` returned.

        An agent that wants prioritised chunks has to; None for all others. Observations and recurrent states may be
        missing: an actor that asks an inference server does not send them again.
        """
        return None


class AskingPolicy(Policy):
    """A policy that computes elsewhere: an actor asks for one group of environments, and steps another meanwhile."""

    groups = 2  # into which to divide an actor's environments; 1: nothing may be asked before it is needed

    @abstractmethod
    def ask(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> int:
        """Ask for what `act` returns without waiting for it; returns the number of this call, for `take`."""

    @abstractmethod
    def take(self, call: int) -> Acted:
        """Wait for what a call has asked for."""

    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:
        """Ask, and wait."""
        return self.take(self.ask(rows, state, step, places))
