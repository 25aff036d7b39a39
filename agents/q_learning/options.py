"""The options that the Rainbow agents share."""

from dataclasses import dataclass
from typing import ClassVar

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import AgentOptions, Preset


@dataclass(frozen=True)
class QLearningOptions(AgentOptions):
    """n-step double Q-learning with a duelling, noisy network"""

    CPU: ClassVar[Preset] = {
        "architecture": ("data-efficient", "576 features in the place of 3136"),
        "hidden_size": (256, "half the width, in layers that cost most"),
        "max_gradient_norm": (10.0, "makes the larger steps safe"),
        "multi_step": (10, "rewards reach the steps before them sooner; data-efficient Rainbow took 20"),
        "target_update": (2000, "agent steps; a short run has few periods"),
    }

    architecture: str = option(
        "canonical",
        "convolutions of pictures: DQN's (canonical), two (data-efficient), residual (deep), those twice as wide "
        "(deep-2), or with one more stack (deep-football)",
        choices=("canonical", "data-efficient", "deep", "deep-2", "deep-football"),
        shared=True,
        policy=True,
    )
    pool: int = option(
        0,
        "max-pool a picture's last feature maps to so many rows and columns; 0: off",
        least=0,
        most=100,
        shared=True,
        policy=True,
    )
    spectral_norm: bool = option(
        False, "divide the weights of residual convolutions by their largest singular value", flag=True, shared=True
    )
    hidden_size: int = option(512, "units of each noisy hidden layer", above=0, most=10_000, shared=True)
    noisy_std: float = option(0.1, "initial standard deviation of the noisy layers", least=0, shared=True)
    multi_step: int = option(3, "n of the n-step return [agent steps]", above=0, most=10_000, shared=True)
    target_update: int = option(
        32_000, "agent steps that updates stand for, between target network updates (papers give frames)", above=0
    )

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        if not self.spectral_norm or self.architecture.startswith("deep"):
            return []
        return [
            f"--spectral-norm: --architecture {self.architecture} has no residual convolutions; choose deep, deep-2 or "
            "deep-football"
        ]
