"""The sockets on which an inference server listens, and their folders."""

import os
import resource
import socket
import tempfile
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from rainbow_iqn_apex.programs.inference.listening import listening
from tests.deadline import wait_until
from tests.inference.serving import Served, Stream, client_of, together


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


# A mutation that fails here: `_accept` that goes on listening.
@pytest.mark.redis
@pytest.mark.usefixtures("one_thread")
def test_a_server_that_may_open_no_more_files_does_not_spin(
    redis_port: int, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Served(together("ppo"), redis_port, run_name) as served, client_of(served) as policy, ExitStack() as stack:
        accept, stream = served.server._accept, Stream(1)
        _, state = policy.act(stream.rows(), {}, 5)

        def counted(place: socket.socket) -> None:
            nonlocal tries
            tries += 1
            accept(place)

        monkeypatch.setattr(served.server, "_accept", counted)
        links = [stack.enter_context(closing(socket.socket(socket.AF_UNIX))) for _ in range(2)]
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (links[1].fileno() + 1, limits[1]))
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(0))
        begun = time.monotonic()
        links[0].connect(served.path)
        while tries < 5 and time.monotonic() < begun + 60:  # a `Deadline` would open files
            _, state = policy.act(stream.rows(), state, 5)
        assert 5 <= tries <= 2 + 5 * (time.monotonic() - begun), "five a second"


# A mutation that fails here: `_accept` that takes one connection in a turn, of which each may compute a batch.
@pytest.mark.redis
def test_all_who_wait_are_let_in_at_once(redis_port: int, run_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    with Served(together("ppo"), redis_port, run_name) as served, ExitStack() as stack:
        accept = served.server._accept

        def counted(place: socket.socket) -> None:
            nonlocal turns
            turns += 1
            accept(place)

        monkeypatch.setattr(served.server, "_accept", counted)
        served.hold()
        for _ in range(30):
            stack.enter_context(closing(socket.socket(socket.AF_UNIX))).connect(served.path)
        served.go_on()
        wait_until(lambda: len(served.server._peers) == 30, "all connections")
        assert turns == 1
