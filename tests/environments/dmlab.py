"""A stand-in for DeepMind Lab on the path of this process and of those that it starts."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ENGINES = Path(__file__).with_name("engines")


@contextmanager
def stand_in() -> Iterator[None]:
    """Let `deepmind_lab` be the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ENGINES)
        patch.setenv("PYTHONPATH", f"{ENGINES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        sys.modules.pop("deepmind_lab", None)
        yield
    sys.modules.pop("deepmind_lab", None)
