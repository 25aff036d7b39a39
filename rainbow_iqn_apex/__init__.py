"""The project as a package: `rainbow_iqn_apex.agents` is the folder `agents/`, in the checkout and installed.

The folders and programs beside this one are linked into it, so that every module has one name, which no other package
and no module of a user's own can take. `train`, `evaluate` and `load_policy` are for scripts and notebooks.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow_iqn_apex.programs.python_interface import evaluate, load_policy, train

__version__ = "1.0.0"  # pyproject.toml reads it here
__all__ = ["evaluate", "load_policy", "train"]


def __getattr__(name: str) -> Any:
    """Import a function when it is first used: it takes seconds, for which no program waits."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rainbow_iqn_apex.programs import python_interface

    return getattr(python_interface, name)
