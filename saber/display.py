"""Whether there is anywhere to open a window."""

import os
import re
import socket
import sys
from collections.abc import Iterator

_TIMEOUT_S = 5.0


def check_display() -> None:
    """Raise RuntimeError without a display: SDL, which opens the windows, draws into memory then and says nothing."""
    if sys.platform != "linux" or os.environ.get("SDL_VIDEODRIVER") or os.environ.get("WAYLAND_DISPLAY"):
        return
    display = os.environ.get("DISPLAY")
    if not display:
        raise RuntimeError("cannot render: there is no display; set DISPLAY or WAYLAND_DISPLAY, or do not render")
    if not any(map(_answers, _addresses(display))):
        raise RuntimeError(f"cannot render: nothing answers at DISPLAY={display}; correct it, or do not render")


def _addresses(display: str) -> Iterator[tuple[socket.AddressFamily, str | tuple[str, int]]]:
    """Where the X server of a display such as ":0", "host:10.0" or "unix:1" listens."""
    match = re.fullmatch(r"(.*):(\d+)(\.\d+)?", display)
    if match is None:
        return
    host, number = match[1], int(match[2])
    if host in ("", "unix"):
        path = f"/tmp/.X11-unix/X{number}"
        yield socket.AF_UNIX, path
        yield socket.AF_UNIX, f"\0{path}"
    yield socket.AF_INET, (host if host not in ("", "unix") else "127.0.0.1", 6000 + number)


def _answers(address: tuple[socket.AddressFamily, str | tuple[str, int]]) -> bool:
    family, where = address
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_TIMEOUT_S)
        try:
            probe.connect(where)
        except (OSError, OverflowError):  # the latter for ports that there are not
            return False
    return True
