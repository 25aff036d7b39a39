"""Options that several agents declare: sizes of layers, drawn actions in evaluations, sequences and rounds."""

from dataclasses import dataclass
from typing import ClassVar

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import AgentOptions


def layer_size(default: int, text: str, *, may_be_0: bool = False) -> int:
    """Return an option with the units of a layer: one for a whole run, and its evaluations."""
    if may_be_0:
        return option(default, text, least=0, most=10_000, shared=True, policy=True, shape=True)
    return option(default, text, above=0, most=10_000, shared=True, policy=True, shape=True)


def stochastic_evaluation() -> bool:
    """Return the option `stochastic` of an agent with a policy."""
    text = "evaluate with actions drawn from the policy, not with the likeliest one"
    return option(False, text, flag=True, evaluation=True)


@dataclass(frozen=True)
class SequenceOptions(AgentOptions):
    """networks that read sequences"""

    architecture: str = option(
        "shallow",
        "convolutions of pictures: shallow (DQN's), deep (IMPALA's, residual), deep-football (a fourth stack), or "
        "data-efficient (two)",
        choices=("shallow", "deep", "deep-football", "data-efficient"),
        shared=True,
        policy=True,
        shape=True,
    )


@dataclass(frozen=True)
class RoundOptions(SequenceOptions):
    """agents that learn from rounds"""

    UNUSED: ClassVar[frozenset[str]] = frozenset(
        "learn_start replay_frequency batch_size memory_capacity weight_synchro_frequency priority_weight "
        "final_priority_weight queue_size replay_device".split()
    )
    MAX_POLICY_LAG: ClassVar[int] = 0  # what is played is learned from before more is played
    WAITS_FOR_ROWS: ClassVar[bool] = True  # in its queue

    unroll_length: int = option(
        128,
        "rows that each environment plays in a round, which is then learned from",
        above=0,
        most=100_000,
        shared=True,
    )
    epochs: int = option(4, "times that a round is learned from", above=0, most=1000)
    minibatches: int = option(4, "updates of an epoch", above=0, most=100_000)

    def size_errors(self, environments: int, batch_size: int) -> list[str]:  # noqa: ARG002 - all rows are one batch
        """Return whether a round has fewer rows than updates."""
        return self._too_few(environments * self.unroll_length, "rows")

    def _too_few(self, parts: int, what: str) -> list[str]:
        if self.minibatches <= parts:
            return []
        return [
            f"--minibatches: a round has {parts} {what}: give as many at most, or more --nb-env-per-actor, is "
            f"{self.minibatches}"
        ]

    @property
    def optimiser_steps(self) -> int:
        """Return how many steps the optimiser makes in a round."""
        return self.epochs * self.minibatches

    @property
    def round_rows(self) -> int:
        """Rows that each environment plays in a round."""
        return self.unroll_length
