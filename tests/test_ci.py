"""What CI runs, between stand-ins for apt-get and the tests: a machine gets Chromium and Redis, or is told of them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import is_in_tier

ROOT = Path(__file__).parent.parent
TOOLS = ("bash", "date", "dirname", "env", "grep", "sort")
DEBIAN = Path("/etc/os-release").exists() and "ID=debian" in Path("/etc/os-release").read_text().splitlines()
IS_ROOT = os.geteuid() == 0
needs_root_on_debian = pytest.mark.skipif(not (DEBIAN and IS_ROOT), reason="needs root on Debian")
NOBODY = 65534


class Machine:
    """A checkout, and a PATH that has a Redis server, an sshd and no Chromium."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = folder / "bin"
        for name in ("bin", ".ci", "tests"):
            (folder / name).mkdir()
        for name in TOOLS:
            (self.tools / name).symlink_to(str(shutil.which(name)))
        shutil.copy(ROOT / ".ci" / "run", folder / ".ci")
        self.tell(
            "run_tests.sh",
            'echo "tests: $* browser needed: ${TESTS_NEED_BROWSER:-no} extras: ${TESTS_NEED_EXTRAS:-no}"',
        )
        self.tell("bin/apt-get", 'echo "$DEBIAN_FRONTEND $*" >>"$0.calls"')
        for server in ("redis-server", "sshd"):
            self.tell(f"bin/{server}", "")
        (folder / "tests" / "test_page.py").write_text("from tests.browser import Browser\n")
        (folder / "tests" / "test_other.py").write_text("import pytest\n")

    def tell(self, name: str, text: str) -> None:
        (self.folder / name).unlink(missing_ok=True)  # never write through a link, to a program of this machine
        (self.folder / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
        (self.folder / name).chmod(0o755)

    def run(self, *, arguments: Sequence[str] = ("-q",), user: int | None = None) -> list[str]:
        command = [str(self.folder / ".ci" / "run"), *arguments]
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
    assert machine.run()[-1] == "tests: -q --durations=25 browser needed: 1 extras: 1"
    update, install = machine.calls
    assert update.startswith("noninteractive ") and update.endswith(" update")
    assert " -y " in install and install.endswith(" chromium")
    machine.tell("bin/apt-get", "exit 100")
    assert machine.run()[-2:] == [
        ".ci/run: apt-get could not install Chromium: the tests that need it will fail",
        "tests: -q --durations=25 browser needed: 1 extras: 1",
    ]


def test_nothing_is_installed_where_chromium_is(machine: Machine) -> None:
    machine.tell("bin/chromium", "")
    assert machine.run() == [
        f"tests: -q --durations=25 browser needed: {'1' if DEBIAN and IS_ROOT else 'no'} extras: 1"
    ]
    assert machine.calls == []


def test_others_are_told_what_is_left_out(machine: Machine) -> None:
    assert machine.run(user=NOBODY if IS_ROOT else None) == [
        ".ci/run: left out for want of Chromium, which this installs only as root on Debian: the browser's part of "
        "tests/test_page.py",
        "tests: -q --durations=25 browser needed: no extras: 1",
    ]
    assert machine.calls == []


@needs_root_on_debian
@pytest.mark.parametrize(
    ("program", "package", "line"),
    [
        ("redis-server", "redis-server", "redis-server: no test runs on Debian's"),
        ("sshd", "openssh-server", "openssh-server: no test goes over ssh"),
    ],
)
def test_root_on_debian_installs_servers(machine: Machine, program: str, package: str, line: str) -> None:
    machine.tell("bin/chromium", "")
    (machine.tools / program).unlink()
    machine.run()
    assert [call.split()[-1] for call in machine.calls] == ["update", package]
    machine.tell("bin/apt-get", "exit 100")
    assert machine.run()[-2] == f".ci/run: apt-get could not install {line}"


@pytest.mark.parametrize(("program", "words"), [("redis-server", "a redis-server: "), ("sshd", "an sshd: ")])
def test_others_are_told_which_server_is_not_there(machine: Machine, program: str, words: str) -> None:
    machine.tell("bin/chromium", "")
    (machine.tools / program).unlink()
    told, _ = machine.run(user=NOBODY if IS_ROOT else None)
    assert told.startswith(f".ci/run: left out for want of {words}")


def test_a_day_runs_a_share_of_the_slow_tests(machine: Machine) -> None:
    for day, share in ((20000, 1), (20001, 2), (20006, 0)):
        machine.tell("bin/date", f"echo {day * 86400 + 17}")
        *_, told, tests = machine.run(arguments=[])
        assert told.startswith(f".ci/run: with share {share} of 0 to 6 of the slow tests, by the date")
        assert f" --tier {share}/7 " in tests


def test_a_week_runs_every_slow_test_once() -> None:
    tests = [f"tests/test_x.py::test_{name}[{i}]" for name in "abc" for i in range(100)]
    shares = [{test for test in tests if is_in_tier(test, f"{share}/7")} for share in range(7)]
    assert all(shares) and sum(map(len, shares)) == len(tests) and set().union(*shares) == set(tests)
    assert not any(is_in_tier(test, "quick") for test in tests)
    assert all(is_in_tier(test, "all") for test in tests)
