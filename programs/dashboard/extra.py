"""The extra that the dashboard needs: looked for where it is needed, as a run needs it nowhere."""

import shlex
import sys
from importlib.util import find_spec

PACKAGES = ("starlette>=1.10", "uvicorn>=0.54")


def missing() -> str:
    """Return how to install the extra; empty if it is there."""
    if all(find_spec(package.partition(">")[0]) for package in PACKAGES):
        return ""
    command = shlex.join([sys.executable, "-m", "pip", "install", *PACKAGES])
    return f"the extra dashboard is missing; install it with: {command}"
