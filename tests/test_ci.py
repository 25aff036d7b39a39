"""What CI runs, between stand-ins for apt-get and the tests: a machine without Chromium gets it, or is told of it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ("bash", "dirname", "env", "grep", "sort")
DEBIAN = Path("/etc/os-release").exists() and "ID=debian" in Path("/etc/os-release").read_text().splitlines()
IS_ROOT = os.geteuid() == 0
needs_root_on_debian = pytest.mark.skipif(not (DEBIAN and IS_ROOT), reason="needs root on Debian")
NOBODY = 65534


class Machine:
    """A checkout, and a PATH that has no Chromium."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "bin"
        for name in ("bin", ".ci", "tests"):
            (folder / name).mkdir()
        for name in TOOLS:
            (self.tools / name).symlink_to(str(shutil.which(name)))
        shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
        self.tell("run_tests.sh", 'echo "tests: $* browser needed: ${TESTS_NEED_BROWSER:-no}"')
        self.tell("bin/apt-get", 'echo "$DEBIAN_FRONTEND $*" >>"$0.calls"')
        (folder / "tests" / "test_page.py").write_text("from tests.browser import Browser\n")
        (folder / "tests" / "test_other.py").write_text("import pytest\n")

    def tell(self, name: str, text: str) -> None:
        (self.folder / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
        (self.folder / name).chmod(0o755)

    def run(self, *, user: int | None = None) -> list[str]:
        command = [str(self.folder / ".ci" / "run"), "-q"]
        done = subprocess.run(
            command,
            env={"PATH": str(self.tools)},
            user=user,
            stdout=-1,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    @property
    def calls(self) -> list[str]:
        """What apt-get was called with."""
        calls = self.tools / "apt-get.calls"
        return calls.read_text().splitlines() if calls.exists() else []


@pytest.fixture
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # pytest's own folders are closed to other users
        yield Machine(Path(folder))


@needs_root_on_debian
def test_root_on_debian_installs_chromium_and_its_tests_cannot_be_left_out(machine: Machine) -> None:
    assert machine.run()[-1] == "tests: --durations=25 -q browser needed: 1"
    update, install = machine.calls
    assert update.startswith("noninteractive ") and update.endswith(" update")
    assert " -y " in install and install.endswith(" chromium")
    machine.tell("bin/apt-get", "exit 100")
    assert machine.run()[-2:] == [
        ".ci/run: apt-get could not install Chromium: the tests that need it will fail",
        "tests: --durations=25 -q browser needed: 1",
    ]


def test_nothing_is_installed_where_chromium_is(machine: Machine) -> None:
    machine.tell("bin/chromium", "")
    assert machine.run() == [f"tests: --durations=25 -q browser needed: {'1' if DEBIAN and IS_ROOT else 'no'}"]
    assert machine.calls == []


def test_others_are_told_what_is_left_out(machine: Machine) -> None:
    assert machine.run(user=NOBODY if IS_ROOT else None) == [
        ".ci/run: left out for want of Chromium, which this installs only as root on Debian: the browser's part of "
        "tests/test_page.py",
        "tests: --durations=25 -q browser needed: no",
    ]
    assert machine.calls == []
