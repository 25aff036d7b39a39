"""The record `<game>.json` beside a training log: how the run was made, and how far it got.

The learner writes the record when it starts and whenever it saves, so that a log can be reported without a snapshot. A
resumed run adds a start if anything has changed, such as the commit.
"""

import json
import platform
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins

from rainbow_iqn_apex.common import checkout, schema
from rainbow_iqn_apex.common.files import MOST_RECORD_BYTES, read_regular, short_path, write_file
from rainbow_iqn_apex.common.schema import Count
from rainbow_iqn_apex.environments.extras import packages_of
from rainbow_iqn_apex.saber.results.task import Task, tasks_of

_MISSING = "none"
_PACKAGES = ("ale-py", "gymnasium", "numpy", "opencv-python-headless", "torch")  # what scores may depend on


class Start(Struct, frozen=True, forbid_unknown_fields=True):
    """A start of the learner that differs from the one before."""

    settings: dict[str, Any]  # of the command line, by name; plain values, with "device" and the precision in use
    versions: dict[str, str]  # of Python and packages; ale-py is the emulator, with its games
    commit: str  # see `checkout.commit`


@dataclass(frozen=True)
class RunRecord:
    """How a run was made."""

    game: str  # or another environment's name, as in the names of files
    action_repeat: Annotated[int, Meta(ge=1, le=2**63 - 1)]  # frames per agent step
    reached: Count  # agent steps that the run has made
    starts: Annotated[tuple[Start, ...], Meta(min_length=1)]

    @property
    def task(self) -> Task:
        """The task of the run; of several the list, as one."""
        return Task(self.game, str(self.starts[-1].settings.get("env", "atari")))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that the run plays, one or several."""
        return tasks_of(self.game, self.starts[-1].settings)

    def started(self, start: Start) -> "RunRecord":
        """Return the record after a further start."""
        return self if start == self.starts[-1] else replace(self, starts=(*self.starts, start))


def present_start(settings: dict[str, Any]) -> Start:
    """Return a start here and now, with the settings as JSON gives them back."""
    return Start(
        json.loads(json.dumps(settings, default=str)), versions(str(settings.get("env", "atari"))), checkout.commit()
    )


def write_record(path: Path, record: RunRecord) -> None:
    """Replace the record at `path`, all or nothing; raises OSError."""
    write_file(path, f"{json.dumps(to_builtins(record), indent=1)}\n".encode())


def read_record(path: Path, folder: Path | None = None) -> RunRecord | None:
    """Read a record; None if there is no file. Raises ValueError for any other file, OSError as `read_regular`."""
    try:
        content = read_regular(path, folder or path.parent, MOST_RECORD_BYTES)
        return schema.parse_record(schema.parse_json(content), RunRecord)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{short_path(path)}: not a run's record ({error})") from error


def versions(env: str) -> dict[str, str]:
    """Return the versions of Python and of the packages that scores in the environment of `--env` may depend on."""
    extras = {name: _version(name) for name in sorted(packages_of(env))}
    installed = {name: found for name, found in extras.items() if found != _MISSING}
    return {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES} | installed


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _MISSING
