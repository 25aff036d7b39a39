"""Whether there is anywhere to open a window."""

import os
import sys


def check_display() -> None:
    """Raise RuntimeError without a display: SDL, which opens the windows, draws into memory then and says nothing."""
    if sys.platform == "linux" and not any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"))):
        raise RuntimeError("cannot render: there is no display; set DISPLAY or WAYLAND_DISPLAY, or do not render")
