"""The packages that some environments need: extras, looked for where one of these is asked for."""

import shlex
import sys
from importlib.util import find_spec

_MUJOCO = ("mujoco>=3.17,<4", "imageio>=2.38")  # dm_control breaks with MuJoCo 4
PACKAGES = {
    "mujoco": _MUJOCO,
    "dm-control": ("shimmy>=2.0", "dm-control>=1.0.50", *_MUJOCO),
    "minigrid": ("minigrid>=3.2",),
    "vizdoom": ("vizdoom>=1.3.2",),
    "football": ("envpool>=1.2.5",),
    "crafter": ("crafter>=1.8.3",),
}
# They ask for packages that nothing here uses, such as NumPy 1 or another Gymnasium, and are installed without them: no
# extras for pip.
PACKAGES_ALONE = {"procgen": ("procgen2>=0.10.7",), "nle": ("nle>=1.3.0",)}
_MODULES = {  # of the others it is one with the extra's name
    "mujoco": ("mujoco", "imageio"),
    "dm-control": ("shimmy", "dm_control", "mujoco", "imageio"),
    "football": ("envpool",),
}

_OF_GYMNASIUM = ("mujoco", "dm-control", "minigrid")


def packages_of(env: str) -> set[str]:
    """Return the names of the extras' packages that may simulate what `--env` names, installed or not."""
    kind = env.partition(":")[0]
    extras = _OF_GYMNASIUM if kind.startswith("gymnasium") else (kind,)
    packages = (package for extra in extras for package in (PACKAGES | PACKAGES_ALONE).get(extra, ()))
    return {package.partition(">")[0] for package in packages} - {"imageio"}  # which writes pictures


def missing(extra: str) -> str:
    """Return how to install an extra of `PACKAGES` or `PACKAGES_ALONE`; empty if it is there."""
    if all(map(find_spec, _MODULES.get(extra, (extra,)))):
        return ""
    if extra == "dm-control" and sys.version_info >= (3, 13):
        return "the extra dm-control needs Python 3.11 or 3.12: labmaze, a part of it, has no packages for later ones"
    if extra == "procgen" and sys.version_info >= (3, 12):
        return "procgen2 needs Python 3.11: it has no packages for later ones"
    packages = PACKAGES.get(extra) or ("--no-deps", *PACKAGES_ALONE[extra])
    command = shlex.join([sys.executable, "-m", "pip", "install", *packages])
    return f"the extra {extra} is missing; install it with: {command}"


def need(extra: str, what: str) -> None:
    """Raise ValueError, in one line, if an extra is missing that `what` is made with."""
    if how := missing(extra):
        raise ValueError(f"{what} cannot be made: {how}")
