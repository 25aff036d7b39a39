"""The options that all agents have, the base class of an agent's own options, and the presets.

An agent's own options, with its own presets, are in the `options.py` of its folder.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from rainbow_iqn_apex.common.option import flag_of, option
from rainbow_iqn_apex.common.text import counted


@dataclass(frozen=True)
class LearningOptions:
    """learning"""

    history_length: int = option(4, "frames in an observation stack", above=0, most=10_000, shared=True, policy=True)
    learn_start: int = option(
        80_000,
        "agent steps over all actors before learning (papers give frames: 4 times as many)",
        above=0,
        shared=True,
    )
    replay_frequency: int = option(
        4,
        "agent steps per learner update; actors of Rainbow and Rainbow-IQN draw noise after as many calls",
        above=0,
        shared=True,
        policy=True,
    )
    batch_size: int = option(32, "samples of an update", above=0, most=10_000)
    max_gradient_norm: float = option(
        0.0, "gradients are scaled down to this norm if theirs is larger; 0: off", least=0
    )
    discount: float = option(0.99, "discount factor of an agent step", least=0, most=1, shared=True)
    reward_scale: float = option(
        1.0,
        "rewards are multiplied by this for learning, before the clip, never in scores",
        above=0,
        shared=True,
        policy=True,
    )
    reward_clip: float = option(
        1.0, "rewards are clipped to +- this for learning, never in scores; 0: off", least=0, shared=True, policy=True
    )
    precision: str = option(
        "auto",
        "of the large products: float32, bfloat16, or auto (bfloat16 where the device computes in it)",
        choices=("float32", "bfloat16", "auto"),
    )


Preset = dict[str, tuple[Any, str]]  # settings by name, each with its reason


@dataclass(frozen=True)
class AgentOptions:
    """Base of an agent's own options, which its subclass names in its docstring."""

    DEFAULTS: ClassVar[dict[str, Any]] = {}  # of common options, in the place of their own
    VECTORS: ClassVar[dict[str, Any]] = {}  # of all options, where observations are vectors; with a preset, too
    CPU: ClassVar[Preset] = {}  # of all options, with `--preset cpu`
    FAST: ClassVar[Preset] = {}  # with `--preset fast`, which is refused where there is none
    REPLAYS: ClassVar[bool] = False  # --memory-capacity is a replay's: a smaller one takes fewer of CPU's environments
    UNUSED: ClassVar[frozenset[str]] = frozenset()  # common options that the agent has no use for
    RATE_FALLS: ClassVar[bool] = False  # to 0 at --T-max; so it does with an option `rate_decay` that is True
    MAX_POLICY_LAG: ClassVar[int] = 1  # rounds by which acting may be ahead of learning, in lockstep: 0 takes turns
    WAITS_FOR_ROWS: ClassVar[bool] = False  # even without lockstep, no update is made before its steps were played

    @classmethod
    def table_fault(cls) -> str:
        """Return which of the tables above has another form than it should; empty if none has."""
        for name in ("DEFAULTS", "VECTORS", "CPU", "FAST"):
            if not isinstance(getattr(cls, name), dict):
                return f"expected {name} to be a dict of values by option"
        for name in ("CPU", "FAST"):
            if not all(isinstance(each, tuple) and len(each) == 2 for each in getattr(cls, name).values()):
                return f"expected {name} to hold a pair for each option: the value, and why"
        return "" if isinstance(cls.UNUSED, Set) else "expected UNUSED to be a set of options"

    @classmethod
    def misnamed(cls, common: Set[str]) -> list[str]:
        """Return the names in the tables above that are neither common options nor the agent's own."""
        named = {*cls.DEFAULTS, *cls.VECTORS, *cls.CPU, *cls.FAST, *cls.UNUSED}
        return sorted(named - common - {field.name for field in fields(cls)})

    @property
    def round_rows(self) -> int:
        """Rows that each environment plays in a round; 0: --weight-synchro-frequency decides."""
        return 0

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        return []

    @property
    def unused(self) -> frozenset[str]:
        """Return the common options that these have no use for."""
        return self.UNUSED

    @property
    def rate_falls(self) -> bool:
        """Whether the learning rate falls to 0 at --T-max."""
        return self.RATE_FALLS or bool(getattr(self, "rate_decay", False))

    @property
    def optimiser_steps(self) -> int:
        """Return how many steps the optimiser makes in a call of `Agent.update`."""
        return 1

    def size_errors(self, environments: int, batch_size: int) -> list[str]:  # noqa: ARG002 - most divide neither
        """Return what is wrong with the options of a run with so many environments and samples, one line each."""
        return []


# Settings of `--preset` instead of the defaults, each with its reason; the command line overrides them.
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
