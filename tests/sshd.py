"""An sshd of the tests on loopback, with keys and a configuration of its own, and an ssh that has names for it.

Nothing of this user's or machine's ssh is read or written. Without an sshd a test is skipped, with one line.
"""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.deadline import wait_until
from tests.processes import Process, Processes
from tests.start_script import Workplace, free_port, is_listening

SSHD = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
_PRIVILEGES = Path("/run/sshd")  # where an sshd of root keeps the part of it that may do nothing
needs_sshd = pytest.mark.skipif(not (SSHD and shutil.which("ssh-keygen")), reason="needs sshd: openssh-server")


class Sshd:
    """The server, and a folder `bin` for the PATH of who shall reach it as node1, node2 and node3."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder = folder
        self.port = free_port()
        self._processes = Processes()
        self._process: Process | None = None
        folder.mkdir(parents=True)
        for name in ("host", "user"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True)
        shutil.copy(folder / "user.pub", folder / "authorized")
        lines = [
            f"Port {self.port}", "ListenAddress 127.0.0.1", f'HostKey "{folder / "host"}"', "PidFile none",
            f'AuthorizedKeysFile "{folder / "authorized"}"', "UsePAM no", "StrictModes no", "PermitRootLogin yes",
            "PasswordAuthentication no", "KbdInteractiveAuthentication no", "MaxStartups 100", *more,
        ]  # fmt: skip
        (folder / "sshd_config").write_text("\n".join([*lines, ""]))
        key = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {key}")
        self.configure("node1 node2 node3")
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{folder / "ssh_config"}" "$@"\n'
        )
        (folder / "bin" / "ssh").chmod(0o755)

    def configure(self, names: str, *more: str) -> None:
        """Write what a user has in ~/.ssh/config."""
        lines = [
            f"Host {names}", "HostName 127.0.0.1", f"Port {self.port}", f'IdentityFile "{self.folder / "user"}"',
            "IdentitiesOnly yes", f'UserKnownHostsFile "{self.folder / "known"}"', "GlobalKnownHostsFile none", *more,
        ]  # fmt: skip
        (self.folder / "ssh_config").write_text("\n".join([*lines, ""]))

    def start(self) -> None:
        if os.geteuid() == 0:
            _PRIVILEGES.mkdir(mode=0o755, exist_ok=True)
        words = ["-D", "-e", "-f", self.folder / "sshd_config"]
        self._process = self._processes.start(*words, program=str(SSHD), output=self.folder / "log", together=True)
        try:
            wait_until(lambda: is_listening(self.port), lambda: (self.folder / "log").read_text(), 20)
        except BaseException:
            self.close()  # else it is left to the garbage collector, in another test
            raise

    def sessions(self) -> list[psutil.Process]:
        """The processes of the connections, and what runs in them as long as that has not left its parent."""
        assert self._process
        return self._process.children()

    def kill_sessions(self) -> None:
        """Cut every connection off, as a network does that goes: the clients get an end, those there nothing."""
        _kill(self.sessions())

    def stop(self) -> None:
        """Stop the server, and cut every connection off."""
        if self._process:
            sessions = self.sessions()
            self._process.terminate()
            self._process.finish(20)
            _kill(sessions)

    @property
    def path(self) -> str:
        return f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"

    def close(self) -> None:
        if self._process and self._process.exit_code is None:
            self.kill_sessions()
        self._processes.close()


def _kill(sessions: list[psutil.Process]) -> None:
    for process in sessions:
        with contextlib.suppress(psutil.Error):
            if process.name() == "sshd":
                process.kill()


def write_hosts(workplace: Workplace, text: str) -> list[str]:
    (workplace.folder / "hosts.txt").write_text(text)
    return ["--hosts", "hosts.txt", "--windows", "none"]


def there(workplace: Workplace) -> list[psutil.Process]:
    """What stands for the start script on the other side."""
    return workplace.processes("rainbow_iqn_apex.programs.start.remote_side")


def here(workplace: Workplace) -> list[psutil.Process]:
    """What stands for an actor on this side."""
    return workplace.processes("rainbow_iqn_apex.programs.start.hosts")
