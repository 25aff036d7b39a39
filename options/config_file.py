"""Read a configuration file: the settings that a command line leaves out, by the names of their options.

# pong.yaml, for --config pong.yaml
game: pong
batch-size: 64  # or batch_size

A value is read as the same text on the command line is, and a setting that is given twice is noticed.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import short_path
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.options import command_line

if TYPE_CHECKING:
    import yaml

_MOST_BYTES = 100_000  # every option needs some 50


class Entry(NamedTuple):
    """A key of a mapping, with its value."""

    key: str
    value: "yaml.Node"


class Wanted(NamedTuple):
    """Hold what messages tell of a file."""

    option: str  # which has named the file
    absent: str  # before the path of a file that is not there
    lines: str  # what was expected in the file
    question: str  # for a file that is none of this kind
    key: str  # what was expected before a colon


CONFIG = "config"  # the option that names the file
_WANTED = Wanted(
    "--config",
    "--config: no such file: ",
    "expected a line `name: value` for each setting",
    "is it a configuration file?",
    "the name of an option",
)
_FLAG = re.compile(r"--[A-Za-z][\w-]*")
_OTHER_NAMES = {  # an option on the command line takes the place of these in a file, too
    "agent": {"rainbow_only"},
    "rainbow_only": {"agent"},
    "redis_url": {"host_redis", "port_redis"},
    "host_redis": {"redis_url"},
    "port_redis": {"redis_url"},
}


class Settings(NamedTuple):
    """Holds what a command line and its configuration file give."""

    values: dict[str, Any]  # by option; the command line goes before the file
    keys: dict[str, str]  # how the file names the options whose values are the file's
    errors: list[str]


def read(groups: Sequence[type], argv: Sequence[str] | None, used: Set[str] = frozenset()) -> Settings:
    """Read a command line of the options of these groups, and the configuration file that it names.

    Of an unknown option `used` names those that may be meant, see `command_line.read`.
    """
    values, errors = command_line.read(groups, argv, used)
    path = values.get(CONFIG)
    if path is None:
        return Settings(values, {}, errors)
    try:
        entries = list(read_yaml(path, _WANTED))
    except UserError as error:
        return Settings(values, {}, [*errors, str(error)])
    found, keys, wrong = _values(groups, entries, used)
    errors += [f"{path}: {text}" for text in wrong]
    replaced = {other for name in values for other in (name, *_OTHER_NAMES.get(name, ()))}
    found = {name: value for name, value in found.items() if name not in replaced}
    return Settings(found | values, {name: keys[name] for name in found}, errors)


def name_source(line: str, path: Path | None, keys: Mapping[str, str]) -> str:
    """Return the line of an error; where the file gives the faulty option, the line names the file and the key."""
    spellings = {flag_of(name): key for name, key in keys.items()}
    head, colon, rest = line.partition(": ")
    file = short_path(path) if path else ""
    if head.startswith("--") and any(flag in spellings for flag in _FLAG.findall(head)):
        head = _FLAG.sub(lambda match: spellings.get(match[0], match[0]), head)
        return f"{file}: {head}{colon}{rest}"
    others = sorted({spellings[flag] for flag in _FLAG.findall(rest) if flag in spellings})
    return f"{line} ({file} sets {', '.join(others)})" if others else line


def _values(
    groups: Sequence[type], entries: Sequence[Entry], used: Set[str]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the values of a file and its keys, both by option, and its mistakes."""
    fields = {f.name: f for group in groups for f in dataclasses.fields(group)}
    values: dict[str, Any] = {}
    keys: dict[str, str] = {}
    errors = []
    for key, value in entries:
        name = key.replace("-", "_")
        try:
            if name not in fields:
                known = [
                    other if "_" in key else other.replace("_", "-") for other in fields if other in (used or fields)
                ]
                raise ValueError(command_line.unknown(key, known).partition(": ")[2])
            if name == CONFIG:
                raise ValueError("a configuration file cannot name another; leave it out")
            if name in keys:
                raise ValueError(f"is given twice, first as {keys[name]}; leave out one of them")
            keys[name] = key
            values[name] = command_line.convert(fields[name], _text_of(value, listed=fields[name].metadata["listed"]))
        except ValueError as error:
            errors.append(f"{key if key.isprintable() else ascii(key)}: {error}")
    return values, keys, errors


def _text_of(node: "yaml.Node", *, listed: bool) -> str:
    """Return the text of a value, of a `listed` option also of a list of parts; raises ValueError for any other."""
    import yaml

    if listed and isinstance(node, yaml.SequenceNode):
        return ",".join(scalar(part) for part in node.value)
    return scalar(node)


def read_yaml(path: Path, wanted: Wanted) -> Iterator[Entry]:
    """Yield the entries of a file's mapping; raises UserError if the file holds none."""
    import yaml  # only who names a file waits for this

    try:
        root = yaml.compose(_text(path, wanted), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UserError(f"{path}: {line}{wanted.lines} in YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path}: {wanted.lines} in YAML") from error
    if root is None:  # nothing but comments
        return
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{path}: {wanted.lines}")
    for key, value in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UserError(f"{path}: line {key.start_mark.line + 1}: expected {wanted.key}")
        yield Entry(str(key.value), value)


def _text(path: Path, wanted: Wanted) -> str:
    try:
        if not path.is_file():
            raise UserError(f"{wanted.absent}{path}; {wanted.lines} in YAML")
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:  # cut within a letter, perhaps
            raise UserError(f"{path}: expected at most {_MOST_BYTES} bytes; {wanted.question}")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{wanted.option}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected a text in UTF-8; {wanted.question}") from error


def scalar(node: "yaml.Node") -> str:
    """Return the text of a value; raises ValueError for any other kind."""
    import yaml

    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError(
            f"expected a single value, got a {'list' if isinstance(node, yaml.SequenceNode) else 'mapping'}"
        )
    if kind == "null":
        raise ValueError("expected a value")
    if kind not in ("bool", "float", "int", "merge", "str", "timestamp", "value"):  # what plain texts resolve to
        raise ValueError("expected a value without a tag")
    text = str(node.value)
    if "\0" in text or len(text.splitlines()) > 1:
        raise ValueError("expected a text of one line")
    return text
