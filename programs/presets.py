"""Settings of `--preset` in the place of the defaults, each with its reason; the command line overrides them."""

from collections.abc import Callable
from typing import Any

from agents.options import flag_of

PRESETS: dict[str, dict[str, tuple[Any, str]]] = {
    "paper": {},
    "cpu": {
        "architecture": ("data-efficient", "576 features in the place of 3136"),
        "hidden_size": (256, "half the width, in layers that cost most"),
        "num_tau_samples": (8, "8 quantiles cost an eighth, and learned as well in IQN's figure 5"),
        "num_tau_prime_samples": (8, "as above"),
        "num_quantile_samples": (8, "as above, at every action"),
        "learner_threads": (1, "two need longer for small products than one, and the actor has the other core"),
        "lr_IQN": (2.5e-4, "a short run needs larger steps: with 1e-4 it took two to four times as long"),
        "lr_Rainbow": (2.5e-4, "as for Rainbow-IQN"),
        "adam_eps_IQN": (1.5e-4, "Rainbow's"),
        "max_gradient_norm": (10.0, "makes the larger steps safe"),
        "multi_step": (10, "rewards reach the steps before them sooner; data-efficient Rainbow took 20"),
        "target_update": (2000, "agent steps; a short run has few periods"),
        "learn_start": (2000, "agent steps; learning begins within a minute"),
        "memory_capacity": (100_000, "0.8 GB of frames"),
        "priority_exponent_IQN": (0.5, "Rainbow's: rare rewards are seen again sooner"),
        "weight_synchro_frequency": (200, "agent steps; weights are small, and change fast"),
        "log_interval": (2500, "agent steps; something to see twice a minute"),
        "evaluation_interval": (25_000, "agent steps; a snapshot every few minutes"),
    },
}


def describe_preset(preset: str, settings: Callable[[str], Any]) -> str:
    """Return the settings of a preset with their reasons, one line each; a line marks what the command line overrides.

    `settings` returns the value of an option in use, and None for an option of another agent.
    """
    lines = [f"Preset {preset}:"]
    for name, (value, reason) in PRESETS[preset].items():
        if (given := settings(name)) is None:
            continue  # an option of another agent
        told = f"{flag_of(name)} {given}"
        lines.append(f"  {told:<36} {reason}" if given == value else f"  {told:<36} given, in the place of {value}")
    return "\n".join(lines)
