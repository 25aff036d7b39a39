"""Makes the environment in which other systems train for a comparison, .venv-peers: the project's own stays as it is.

PEERS_VENV=... names another folder. Versions stand in requirements-peers.txt; those of torch, gymnasium, MuJoCo and
ale-py are the project's, so that what is compared is the systems.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.saber.results.run_record import ROOT

_REQUIREMENTS = ROOT / "requirements-peers.txt"
_VERSIONS = (
    "import importlib.metadata as m, json; "
    "print(json.dumps({n: m.version(n) for n in ('stable-baselines3', 'torch', 'gymnasium', 'mujoco', 'ale-py')}))"
)


def peer_python() -> Path:
    """Return the interpreter of the peers' environment; raises RunError if there is none."""
    python = _folder() / "bin" / "python"
    if not python.exists():
        raise RunError(f"there is no {python}: run python -m benchmarks peer_environment first")
    return python


def peer_versions() -> dict[str, str]:
    """Return the versions of the packages whose speed and results are measured."""
    found = subprocess.run([peer_python(), "-c", _VERSIONS], stdout=subprocess.PIPE, text=True, check=True)
    versions: dict[str, str] = json.loads(found.stdout)
    return versions


def add_options(_: argparse.ArgumentParser) -> None:
    """Declare nothing: this has no options."""


def _folder() -> Path:
    return Path(os.environ.get("PEERS_VENV", ROOT / ".venv-peers"))


def _install(python: Path, *words: str) -> bool:
    command = [str(python), "-m", "pip", "install", "-q", "--no-input", *words]
    return subprocess.run(command, check=False, env=os.environ | {"PIP_USER": "0"}).returncode == 0


def measure(_: argparse.Namespace) -> tuple[()]:
    """Make the environment; torch comes first, in its build for CPUs where that is offered. Raises RunError."""
    folder = _folder()
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    torch = next(line for line in _REQUIREMENTS.read_text().splitlines() if line.startswith("torch=="))
    if not (_install(python, f"{torch}+cpu") or _install(python, torch)) or not _install(
        python, "-r", str(_REQUIREMENTS)
    ):
        raise RunError("pip could not install the peers (its message is above)")
    print(f"{folder} is ready: {peer_versions()}")
    return ()
