"""The packages that some environments need: extras, looked for where one of these environments is asked for."""

import shlex
import sys
from importlib.util import find_spec

_MUJOCO = ("mujoco>=3.17,<4", "imageio>=2.38")  # dm_control breaks with MuJoCo 4
PACKAGES = {
    "mujoco": _MUJOCO,
    "dm-control": ("shimmy>=2.0", "dm-control>=1.0.50", *_MUJOCO),
    "vizdoom": ("vizdoom>=1.3.2",),
}
_MODULES = {
    "mujoco": ("mujoco", "imageio"),
    "dm-control": ("shimmy", "dm_control", "mujoco", "imageio"),
    "vizdoom": ("vizdoom",),
}


def missing(extra: str) -> str:
    """Return how to install an extra of `PACKAGES`; empty if it is there."""
    if all(map(find_spec, _MODULES[extra])):
        return ""
    if extra == "dm-control" and sys.version_info >= (3, 13):
        return "the extra dm-control needs Python 3.11 or 3.12: labmaze, a part of it, has no packages for later ones"
    command = shlex.join([sys.executable, "-m", "pip", "install", *PACKAGES[extra]])
    return f"the extra {extra} is missing; install it with: {command}"


def need(extra: str, what: str) -> None:
    """Raise ValueError, in one line, if an extra is missing that `what` is made with."""
    if how := missing(extra):
        raise ValueError(f"{what} cannot be made: {how}")
