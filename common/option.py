"""Declares options: fields of frozen dataclasses, each with default, unit, bounds and help."""

import dataclasses
import math
from inspect import get_annotations
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_TYPES = (bool, int, float, str)
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
    shape: bool = False,
    machine: bool = False,
    short: str | None = None,
    flag: bool = False,
    listed: bool = False,
    path: bool = False,
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
        shape: shapes of weights depend on it.
        machine: no result depends on it, and processes may differ in it; for options of an environment, which have
            all other marks.
        short: another spelling.
        flag: a boolean that is usually given without a value.
        listed: a text of parts with commas between, which a configuration file may give as a list.
        path: a text that is a path, or empty, in which ~ stands for the home folder; a Path needs no mark.
    """
    marks = {"shared": shared, "policy": policy, "evaluation": evaluation, "shape": shape, "machine": machine}
    metadata = {"help": text, "short": short, "flag": flag, "listed": listed, "path": path} | marks
    value: T = dataclasses.field(default=default, metadata=metadata | {"bounds": Bounds(above, least, most, choices)})
    return value


def flag_of(name: str) -> str:
    """Return the command line's spelling of a field."""
    return "--" + name.replace("_", "-")


def fault_of(options: type[Any]) -> str:
    """Return why the fields of a class of options, which others have written, cannot be options; empty if they can."""
    fields = {field.name: field for field in dataclasses.fields(options)}
    for name, kind in get_annotations(options).items():
        if name not in fields and "ClassVar" not in str(kind):
            return f"{name} is no field: put @dataclass(frozen=True) before {options.__name__}"
    for name, field in fields.items():
        if "bounds" not in field.metadata or field.type not in _TYPES or type(field.default) is not field.type:
            return f"{name} of {options.__name__}: expected a bool, int, float or str made by `common.option.option`"
    return ""


def bounds_errors(options: Any) -> list[str]:
    """Return a line for each option of a dataclass whose value is outside its bounds."""
    fields = (field for field in dataclasses.fields(options) if "bounds" in field.metadata)
    found = ((field.name, field.metadata["bounds"].error(getattr(options, field.name))) for field in fields)
    return [f"{flag_of(name)}: {error}" for name, error in found if error]
