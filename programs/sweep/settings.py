"""Read what a sweep varies from a YAML file, of which every key is declared here.

# sweep.yaml
games: [pong, breakout]      # or environments, or both
agents: [impala, r2d2]
seeds: [1, 2, 3]
options:                     # of every run
  preset: cpu
  T-max: 200000
vary:                        # each value makes runs of its own
  hidden-size: [64, 256]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rainbow_iqn_apex.options import command_line, config_file

if TYPE_CHECKING:
    import yaml

_MOST_VALUES = 1000  # of a list
_WANTED = config_file.Wanted(
    "FILE",
    "FILE: no such file: ",
    "expected the keys games or environments, agents, seeds, options and vary",
    "is it a file of a sweep?",
    "the name of a key",
)


@dataclass(frozen=True)
class Settings:
    """Lists what a sweep goes over; all values are texts, as on a command line."""

    games: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    agents: tuple[str, ...] = ("rainbow_iqn",)
    seeds: tuple[str, ...] = ("123",)
    options: tuple[tuple[str, str], ...] = ()  # names as they are written, without dashes before them
    vary: tuple[tuple[str, tuple[str, ...]], ...] = ()


def read(path: Path) -> tuple[Settings, list[str]]:
    """Return the settings of a file, and its mistakes, one a line; raises UserError if the file can be read as none."""
    values: dict[str, Any] = {}
    errors = []
    for key, node in config_file.read_yaml(path, _WANTED):
        try:
            if key not in _KEYS:
                raise ValueError(command_line.unknown(key, list(_KEYS)).partition(": ")[2])
            if key in values:
                raise ValueError("is given twice; leave out one of them")
            values[key] = _KEYS[key](node)
        except ValueError as error:
            errors += [f"{path}: {_shown(key)}: {line}" for line in str(error).splitlines()]
    if not errors and not values.get("games") and not values.get("environments"):
        errors.append(f"{path}: {_WANTED.lines}; there is neither a game nor an environment")
    return Settings(**values), errors


def _texts(node: "yaml.Node") -> tuple[str, ...]:
    """Return the values of a list, or a single one."""
    import yaml

    is_list = isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq"
    parts: Sequence[yaml.Node] = node.value if is_list else [node]
    if not 1 <= len(parts) <= _MOST_VALUES:
        raise ValueError(f"expected 1 to {_MOST_VALUES} values, got {len(parts)}")
    found = tuple(map(config_file.scalar, parts))
    if twice := {text for text in found if found.count(text) > 1}:
        raise ValueError(f"expected each value once, got {min(twice)!r} twice")
    return found


def _mapping(read_value: Callable[["yaml.Node"], Any]) -> Callable[["yaml.Node"], tuple[tuple[str, Any], ...]]:
    def read_mapping(node: "yaml.Node") -> tuple[tuple[str, Any], ...]:
        import yaml

        if not isinstance(node, yaml.MappingNode) or node.tag != "tag:yaml.org,2002:map":
            raise ValueError("expected a line `name: value` for each option")
        found: dict[str, Any] = {}
        errors = []
        for key, value in node.value:
            try:
                name = config_file.scalar(key).replace("_", "-")
                if name in found:
                    raise ValueError("is given twice; leave out one of them")
                found[name] = read_value(value)
            except ValueError as error:
                errors.append(f"{_shown(str(key.value))}: {error}")
        if errors:
            raise ValueError("\n".join(errors))
        return tuple(found.items())

    return read_mapping


def _shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= 100 else ascii(key)[:100]


_KEYS: dict[str, Callable[["yaml.Node"], Any]] = {
    "games": _texts,
    "environments": _texts,
    "agents": _texts,
    "seeds": _texts,
    "options": _mapping(config_file.scalar),
    "vary": _mapping(_texts),
}
