"""The options that the Rainbow agents share."""

from dataclasses import dataclass

from agents.options import AgentOptions, option


@dataclass(frozen=True)
class QLearningOptions(AgentOptions):
    """n-step double Q-learning with a duelling, noisy network"""

    architecture: str = option(
        "canonical",
        "convolutions: canonical (DQN's) or data-efficient (two)",
        choices=("canonical", "data-efficient"),
        shared=True,
    )
    hidden_size: int = option(512, "units of each noisy hidden layer", above=0, most=10_000, shared=True)
    noisy_std: float = option(0.1, "initial standard deviation of the noisy layers", least=0, shared=True)
    multi_step: int = option(3, "n of the n-step return [agent steps]", above=0, most=10_000, shared=True)
    target_update: int = option(32_000, "agent steps between target network updates (papers give frames)", above=0)
