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
        "layer_norm": (True, "learning is stable with larger steps"),
        "max_gradient_norm": (10.0, "makes the larger steps safe"),
        "nb_env_per_actor": (16, "one forward pass for all costs little more than one for one"),
        "memory_capacity": (256_000, "16 000 rows of each environment, 2.2 GB of frames"),
        "replay_frequency": (16, "each row is sampled twice on average"),
        "queue_size": (8, "target networks see batches that are drawn ahead while others are learned from"),
        "weight_synchro_frequency": (1024, "a chunk of each environment: with shorter rounds one side often waits"),
        "initial_priorities": ("largest", "with so few samples a third of the rows would leave unseen"),
        "noisy_std": (0.0, "no noise, which each forward pass would have to draw and multiply"),
        "epsilon_end": (0.01, "the first environment's share of random actions, in the place of noise"),
        "epsilon_ladder": (0.4, "the last environment's"),
        "multi_step": (10, "rewards reach the steps before them sooner; data-efficient Rainbow took 20"),
        "target_update": (8000, "agent steps, 500 updates of so many; a short run has few periods"),
    }

    REPLAYS: ClassVar[bool] = True
    NOISE_CALLS: ClassVar[int] = 0  # calls of `act` between two draws of noise; 0: --replay-frequency of them
    QUIET_BIASES: ClassVar[bool] = False  # biases begin with as little noise as weights

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
        False, "divide the weights of residual convolutions by their largest singular value", shared=True, policy=True
    )
    layer_norm: bool = option(
        False,
        "a layer norm behind the hidden layers of both streams, not behind convolutions",
        shared=True,
        policy=True,
    )
    hidden_size: int = option(512, "units of each noisy hidden layer", above=0, most=10_000, shared=True)
    noisy_std: float = option(
        0.1,
        "initial standard deviation of the noisy layers; 0: no noise, and none is learned",
        least=0,
        shared=True,
        policy=True,
    )
    epsilon_end: float = option(
        0.0,
        "share of random actions beside the noise; 0: none. Evaluations have none, or 0.001 where there is no noise",
        least=0,
        most=1,
        shared=True,
    )
    epsilon_ladder: float = option(
        0.0,
        "environment i of N has the share end^(1 - s) ladder^s with s = i / (N - 1), a single one s = 0.5; 0: all have "
        "--epsilon-end",
        least=0,
        most=1,
        shared=True,
    )
    epsilon_decay: float = option(
        0.0,
        "time constant, in agent steps over all actors, in which the share falls from 1 to its end; 0: it begins there",
        least=0,
        shared=True,
    )
    epsilon_until: int = option(
        0, "agent steps over all actors after which the share is 0; 0: never", least=0, shared=True
    )
    initial_priorities: str = option(
        "actor",
        "of new rows: computed by their actor, or the largest so far",
        choices=("actor", "largest"),
        shared=True,
    )
    multi_step: int = option(3, "n of the n-step return [agent steps]", above=0, most=10_000, shared=True)
    rate_decay: bool = option(False, "let the learning rate fall linearly to 0 at T-max")
    target_update: int = option(
        32_000, "agent steps that updates stand for, between target network updates (papers give frames)", above=0
    )

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        errors = []
        if self.spectral_norm and not self.architecture.startswith("deep"):
            errors.append(
                f"--spectral-norm: --architecture {self.architecture} has no residual convolutions; choose deep, "
                "deep-2 or deep-football, or give --spectral-norm False"
            )
        if self.epsilon_ladder and not self.epsilon_end:
            errors.append(
                "--epsilon-ladder: it begins at --epsilon-end, which must be above 0; or give --epsilon-ladder 0"
            )
        return errors

    def explores(self, step: int | None) -> bool:
        """Return whether a share of the actions is random at a step of the run, or, given None, in an evaluation."""
        if step is None:
            return self.noisy_std == 0
        return (self.epsilon_end > 0 or self.epsilon_decay > 0) and not 0 < self.epsilon_until <= step
