"""Settings of `--preset` in the place of the defaults, each with its reason; the command line overrides them.

Here stand those that suit every agent. An agent's own, and those that it needs otherwise, stand beside its options.
"""

from collections.abc import Callable
from typing import Any

from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.options.agent_options import AgentOptions, Preset

PRESETS: dict[str, Preset] = {
    "paper": {},
    "cpu": {
        "learner_threads": (1, "two need longer for small products than one; targets have a thread besides"),
        "learn_start": (2000, "agent steps; learning begins within a minute"),
        "memory_capacity": (100_000, "0.8 GB of frames"),
        "weight_synchro_frequency": (200, "agent steps; weights are small, and change fast"),
        "log_interval": (2500, "agent steps; something to see twice a minute"),
        "evaluation_interval": (25_000, "agent steps; a snapshot every few minutes"),
    },
    "fast": {},
}
_ROWS_EACH = 16_000  # of replay for an environment: two greedy episodes of Atari; with fewer, replay learned worse


def preset_of(name: str, agent: type[AgentOptions], *, pictures: bool, capacity: int | None = None) -> Preset:
    """Return the settings of a preset for an agent; none for an unknown name.

    Where observations are no pictures, what the agent takes there stays: presets are made for pictures. A replay of
    `capacity` rows, if the command chooses one, is shared by as many environments as it has enough rows for.
    """
    own = {"cpu": agent.CPU, "fast": agent.FAST}.get(name, {})
    common = PRESETS.get(name, {})
    kept = frozenset() if pictures else agent.VECTORS.keys()
    settings = own | {setting: common[setting] for setting in common if setting not in agent.UNUSED | own.keys()}
    preset = {setting: value for setting, value in settings.items() if setting not in kept}
    if pictures and capacity is not None and agent.REPLAYS and "nb_env_per_actor" in preset:
        fitting = max(1, capacity // least_rows(preset))
        if fitting < preset["nb_env_per_actor"][0]:
            preset["nb_env_per_actor"] = (fitting, f"as many as --memory-capacity {capacity} has enough rows for")
    return preset


def least_rows(preset: Preset) -> int:
    """Return how many rows of replay each environment should have at least.

    A preset's own sizes were chosen by what was learned with them, so that fewer rows are enough for its settings.
    """
    if not {"memory_capacity", "nb_env_per_actor"} <= preset.keys():
        return _ROWS_EACH
    return min(_ROWS_EACH, int(preset["memory_capacity"][0]) // int(preset["nb_env_per_actor"][0]))


def announce_preset(name: str, preset: Preset) -> str:
    """Return one line about a preset."""
    return f"Preset {name}: {counted(len(preset), 'setting')}; --verbose prints each with its reason"


def describe_preset(name: str, preset: Preset, settings: Callable[[str], Any]) -> str:
    """Return the settings of a preset with their reasons, one line each; a line marks what the command line overrides.

    `settings` returns the value of an option in use.
    """
    lines = [f"Preset {name}:"]
    for setting, (value, reason) in preset.items():
        given = settings(setting)
        chosen = f"{flag_of(setting)} {given}"
        lines.append(f"  {chosen:<36} {reason}" if given == value else f"  {chosen:<36} given, in the place of {value}")
    return "\n".join(lines)
