"""matplotlib with its own defaults, whatever backend and style its user has chosen; the only module that imports it.

A notebook's MPLBACKEND names a module that need not be installed here, with which the import of matplotlib fails.
Figures are made without pyplot, so that nothing asks for a backend later.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@contextmanager
def _default_settings() -> Iterator[None]:
    """Hide the environment variables of a backend and of a file of settings, and what matplotlib logs about files."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    found = find_spec("matplotlib")
    own = str(Path(found.origin).with_name("mpl-data") / "matplotlibrc") if found and found.origin else ""
    users = {name: os.environ.get(name) for name in ("MPLBACKEND", "MATPLOTLIBRC")}
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": own}
    try:
        yield
    finally:
        for name, value in users.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


with _default_settings():
    import matplotlib as mpl
    from matplotlib import ticker
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Axes", "Figure", "drawing_style", "ticker"]


def drawing_style(style: dict[str, Any]) -> AbstractContextManager[None]:
    """Return a context in which figures have this style, and matplotlib's defaults elsewhere."""
    defaults: Any = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}
    return mpl.rc_context(defaults | style)
