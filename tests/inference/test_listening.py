"""The folders of an inference server's sockets."""

import os
import socket
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.programs.inference.listening import listening


def make(place: Path, name: str, stack: ExitStack, *, lives: bool = False, age: float = 3600) -> Path:
    folder = place / f"rainbow.inference.{name}"
    folder.mkdir()
    link = socket.socket(socket.AF_UNIX)
    link.bind(os.fspath(folder / "socket"))
    if lives:
        link.listen(0)
        stack.enter_context(link)
    else:
        link.close()
    then = folder.stat().st_mtime - age
    os.utime(folder, (then, then))
    return folder


def test_folders_of_killed_servers_go_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: remove a young folder; one whose server lives; follow a link; remove what holds another file.
    with ExitStack() as stack:
        elsewhere = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))  # a socket's path is short
        monkeypatch.setattr("tempfile.tempdir", os.fspath(place))
        dead, young = make(place, "dead", stack), make(place, "young", stack, age=0)
        alive, full = make(place, "alive", stack, lives=True), make(place, "full", stack, lives=True)
        while True:  # as many as a frozen server's queue takes
            link = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
            link.setblocking(False)
            if link.connect_ex(os.fspath(full / "socket")):
                break
        other = make(place, "other", stack)
        (other / "file").touch()
        os.utime(other, (0, 0))
        linked = make(elsewhere, "linked", stack)
        (place / "rainbow.inference.link").symlink_to(linked)
        with listening("", 0) as own:
            assert not dead.exists() and all(path.exists() for path in (young, alive, full, linked / "socket"))
            assert (other / "file").exists()
            assert Path(own.path).parent.parent == place and Path(own.path).exists()
        assert not Path(own.path).parent.exists()
