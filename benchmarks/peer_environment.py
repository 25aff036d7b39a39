"""Makes environments in which other systems train for a comparison: the project's own stays as it is.

.venv-peers has Stable-Baselines3, .venv-appo Sample Factory, whose numpy and gymnasium are older; PEERS_VENV=... and
APPO_VENV=... name other folders. Versions stand in requirements-peers.txt and requirements-appo.txt; those of torch and
ale-py are the project's, so that what is compared is the systems.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from rainbow_iqn_apex.common.checkout import ROOT
from rainbow_iqn_apex.common.errors import RunError

_PACKAGES = {
    "peers": ("stable-baselines3", "torch", "gymnasium", "mujoco", "ale-py"),
    "appo": ("sample-factory", "torch", "gymnasium", "ale-py"),
}


def peer_python(name: str = "peers") -> Path:
    """Return the interpreter of a peers' environment; raises RunError if there is none."""
    python = _folder(name) / "bin" / "python"
    if not python.exists():
        raise RunError(f"there is no {python}: run python -m benchmarks peer_environment {name} first")
    return python


def peer_versions(name: str = "peers") -> dict[str, str]:
    """Return the versions of the packages whose speed and results are measured."""
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {_PACKAGES[name]}}}))"
    found = subprocess.run([peer_python(name), "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    versions: dict[str, str] = json.loads(found.stdout)
    return versions


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("environment", nargs="?", choices=_PACKAGES, default="peers", help="[%(default)s]")


def _folder(name: str) -> Path:
    return Path(os.environ.get(f"{name.upper()}_VENV", ROOT / f".venv-{name}"))


def _install(python: Path, *words: str) -> bool:
    command = [str(python), "-m", "pip", "install", "-q", "--no-input", *words]
    return subprocess.run(command, check=False, env=os.environ | {"PIP_USER": "0"}).returncode == 0


def measure(args: argparse.Namespace) -> tuple[()]:
    """Make the environment; torch comes first, in its build for CPUs where that is offered. Raises RunError."""
    folder = _folder(args.environment)
    requirements = ROOT / f"requirements-{args.environment}.txt"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    torch = next(line for line in requirements.read_text().splitlines() if line.startswith("torch=="))
    if not (_install(python, f"{torch}+cpu") or _install(python, torch)) or not _install(
        python, "-r", str(requirements)
    ):
        raise RunError("pip could not install the peers (its message is above)")
    print(f"{folder} is ready: {peer_versions(args.environment)}")
    return ()
