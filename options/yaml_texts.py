"""Read a YAML file to its texts: no object is made of them.

So no tag of YAML can run anything, no alias can grow, and `no` and `010` stay what they are.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rainbow_iqn_apex.common.errors import UserError

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


def read(path: Path, wanted: Wanted) -> Iterator[Entry]:
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
