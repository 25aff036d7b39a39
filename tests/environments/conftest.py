"""What the tests of environments share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ENGINES = Path(__file__).with_name("engines")


@pytest.fixture
def labyrinths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for DeepMind Lab on the path of this process and of those that it starts."""
    monkeypatch.syspath_prepend(ENGINES)
    monkeypatch.setenv("PYTHONPATH", f"{ENGINES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sys.modules.pop("deepmind_lab", None)
    yield
    sys.modules.pop("deepmind_lab", None)
