"""Checks that there is a display to open a window on."""

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_TIMEOUT_S = 5.0


def check_display() -> None:
    """Raise RuntimeError without a display: SDL, which opens the windows, would draw into memory without an error."""
    if sys.platform != "linux" or os.environ.get("SDL_VIDEODRIVER"):
        return
    named = {name: value for name in ("WAYLAND_DISPLAY", "DISPLAY") if (value := os.environ.get(name))}
    if not named:
        raise RuntimeError("cannot render: there is no display; set DISPLAY or WAYLAND_DISPLAY, or do not render")
    if not any(_answers(where) for name, value in named.items() for where in _addresses(name, value)):
        text = " or ".join(f"{name}={value}" for name, value in named.items())
        raise RuntimeError(f"cannot render: nothing answers at {text}; correct it, or do not render")


@contextmanager
def into_memory() -> Iterator[None]:
    """Let SDL draw without a display where none is named: it would look for one, and print an error."""
    names = ("WAYLAND_DISPLAY", "DISPLAY", "SDL_VIDEODRIVER")
    if any(os.environ.get(name) for name in names):
        yield
        return
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    try:
        yield
    finally:
        del os.environ["SDL_VIDEODRIVER"]  # for `check_display`


def _addresses(name: str, value: str) -> Iterator[str | tuple[str, int]]:
    """Yield the addresses at which a display may listen: paths of sockets, or host and port."""
    if name == "WAYLAND_DISPLAY":
        yield str(Path(os.environ.get("XDG_RUNTIME_DIR", "/"), value))
    elif match := re.fullmatch(r"(.*):(\d+)(\.\d+)?", value):  # an X server: ":0", "host:10.0", "unix:1"
        host, number = match[1], int(match[2])
        if host in ("", "unix"):
            path = f"/tmp/.X11-unix/X{number}"
            yield path
            yield f"\0{path}"
        if host != "unix":
            yield host or "localhost", 6000 + number


def _answers(address: str | tuple[str, int]) -> bool:
    try:
        if isinstance(address, tuple):
            socket.create_connection(address, _TIMEOUT_S).close()
        else:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(_TIMEOUT_S)
                probe.connect(address)
    except (OSError, OverflowError, UnicodeError):  # the last two for impossible ports and hosts
        return False
    return True
