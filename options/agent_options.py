"""Declares options: fields of frozen dataclasses, each with default, unit, bounds and help. Imports nothing slow.

The options here are those that all agents have. An agent's own stand in the `options.py` beside it.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

T = TypeVar("T")

_MOST = 1e15  # of any number: sums of several stay exact, and fit into 64 bits


class Bounds(NamedTuple):
    """Limit the values of an option."""

    above: float = -math.inf  # exclusive
    least: float = -math.inf
    most: float = _MOST
    choices: tuple[str, ...] = ()

    def error(self, value: Any) -> str:
        """Return what is wrong with a value; empty if nothing is."""
        if self.choices:
            known = f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
            return "" if value in self.choices else f"expected {known}, got {value!r}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            return ""
        if self.least > -math.inf and self.most < _MOST and not self.least <= value <= self.most:
            return f"must lie in {self.least:g} to {self.most:g}, is {value}"
        if value <= self.above:
            return f"must be above {self.above:g}, is {value}"
        if value < self.least:
            return f"must not be below {self.least:g}, is {value}"
        if value > self.most:
            return f"must not be above {self.most:g}, is {value}"
        return ""


def option(
    default: T,
    text: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = _MOST,
    choices: tuple[str, ...] = (),
    shared: bool = False,
    policy: bool = False,
    evaluation: bool = False,
    short: str | None = None,
    flag: bool = False,
    listed: bool = False,
) -> T:
    """Return a dataclass field that is an option.

    Args:
        default: the value where neither command line nor preset gives one.
        text: what `--help` prints of it, with its unit.
        above: numbers must be above this one.
        least: numbers must not be below this one.
        most: numbers must not be above this one.
        choices: the texts that are allowed; none allows all.
        shared: all processes of a run must have the same value.
        policy: an evaluation takes the value of the snapshot's run, as actions depend on it.
        evaluation: actions in an evaluation depend on it, and in no run.
        short: another spelling.
        flag: a boolean that is usually given without a value.
        listed: a text of parts with commas between, which a configuration file may give as a list.
    """
    marks = {"shared": shared, "policy": policy, "evaluation": evaluation}
    metadata = {"help": text, "short": short, "flag": flag, "listed": listed} | marks
    value: T = dataclasses.field(default=default, metadata=metadata | {"bounds": Bounds(above, least, most, choices)})
    return value


def flag_of(name: str) -> str:
    """Return the command line's spelling of a field."""
    return "--" + name.replace("_", "-")


def bounds_errors(options: Any) -> list[str]:
    """Return a line for each option of a dataclass whose value is outside its bounds."""
    fields = (field for field in dataclasses.fields(options) if "bounds" in field.metadata)
    found = ((field.name, field.metadata["bounds"].error(getattr(options, field.name))) for field in fields)
    return [f"{flag_of(name)}: {error}" for name, error in found if error]


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
        4, "agent steps per learner update, and per noise draw of an actor", above=0, shared=True, policy=True
    )
    batch_size: int = option(32, "samples of an update", above=0, most=10_000)
    max_gradient_norm: float = option(
        0.0, "gradients are scaled down to this norm if theirs is larger; 0: off", least=0
    )
    discount: float = option(0.99, "discount factor of an agent step", least=0, most=1, shared=True)
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
    ELSEWHERE: ClassVar[dict[str, Any]] = {}  # of all options, where the environment is not Atari; with a preset, too
    CPU: ClassVar[Preset] = {}  # of all options, with `--preset cpu`
    UNUSED: ClassVar[frozenset[str]] = frozenset()  # common options that the agent has no use for
    MAX_POLICY_LAG: ClassVar[int] = 1  # rounds by which acting may be ahead of learning, in lockstep: 0 takes turns
    WAITS_FOR_ROWS: ClassVar[bool] = False  # even without lockstep, no update is made before its steps were played

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
    def optimiser_steps(self) -> int:
        """Return how many steps the optimiser makes in a call of `Agent.update`."""
        return 1

    def size_errors(self, environments: int, batch_size: int) -> list[str]:  # noqa: ARG002 - most divide neither
        """Return what is wrong with the options of a run with so many environments and samples, one line each."""
        return []
