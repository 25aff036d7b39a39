"""Options that several agents declare: the sizes of layers, drawn actions in evaluations, and those of sequences."""

from dataclasses import dataclass

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
