"""What the tests of start_learning_atari.sh share: a copy of the project to start it in, and what is left there."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from tests.deadline import wait_until
from tests.processes import Process, Processes

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "rainbow_iqn_apex"

# Notes its arguments, runs until it is told to stop or what to exit with, and saves into Redis, slowly if so told. It
# reads its options by itself and asks Redis without a client: what the real programs import takes a second each time.
STAND_IN = """
import argparse, json, os, signal, socket, sys, time
from contextlib import suppress
from pathlib import Path
import hiredis
from rainbow_iqn_apex.memory.broker.access import find_server
parser = argparse.ArgumentParser(allow_abbrev=False)
for option in ("--id-actor", "--id-eval-actor", "--id-inference", "--host-redis", "--redis-url"):
    parser.add_argument(option)
parser.add_argument("-p_red", "--port-redis", type=int)
parser.set_defaults(host_redis="localhost")
given = parser.parse_known_args()[0]
numbers = {"actor": given.id_actor, "evaluator": given.id_eval_actor, "server": given.id_inference}
name = next((name + number for name, number in numbers.items() if number), "learner")
stop = []
signal.signal(signal.SIGTERM, signal.SIG_IGN if Path(name + ".deaf").exists() else lambda *_: stop.append(1))
Path(name + ".env").write_text("".join(f"{k}={v}\\n" for k, v in os.environ.items() if k.startswith("REDIS_")))
Path(name + ".argv").write_text(json.dumps(sys.argv))
print(name, "is here", flush=True)
while not stop:
    time.sleep(0.02)
    with suppress(FileNotFoundError):
        sys.exit(int(Path(name + ".exit").read_text()))
time.sleep(float(os.environ.get("SAVE_SECONDS", "0")))
server = find_server(given.host_redis, given.port_redis, given.redis_url, os.environ)
access = server.access
commands = [("AUTH", access.username or "default", access.password)] if access.password else []
commands += [("SELECT", access.db), ("SET", "saved by " + name, 1)]
with socket.create_connection((server.host, server.port)) as connection, connection.makefile("rb") as replies:
    for command in commands:
        connection.sendall(hiredis.pack_command(command))
        assert replies.readline() == b"+OK\\r\\n"
print(name, "has saved", flush=True)
Path(name + ".saved").touch()
"""


# Below the ports that connections get (32 768 and up), so that none takes one before its server begins. Each worker of
# pytest has its own 500, and those 10 000 above are left to the buses of clusters.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_FIRST = 10_000 + _WORKER % 20 * 500
_PORTS = itertools.islice(itertools.cycle(range(_FIRST, _FIRST + 500)), os.getpid() % 500, None)  # pytests side by side


def free_port() -> int:
    """Return a port that nobody has, nor gets from here for a while; the one 10 000 above is free, too."""
    return next(port for port in itertools.islice(_PORTS, 500) if _is_free(port) and _is_free(port + 10_000))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def processes_in(folder: Path) -> dict[int, str]:
    """Command lines of the processes that work in the folder or were started from it, by their numbers."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if any(str(folder) in place for place in (process.cwd(), *words)) and process.pid != os.getpid():
                found[process.pid] = " ".join(words)
    return found


def kill_all_in(folder: Path) -> None:
    """Kill what is left there."""
    for pid in processes_in(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def copy_project(folder: Path, stand_in: str) -> None:
    """Copy the real script, configuration and packages, and put a stand-in into the place of the launchers."""
    folder.mkdir()
    for name in ("start_learning_atari.sh", "make_environment.sh", "redis_rainbow_6379.conf", "args.py"):
        shutil.copy(ROOT / name, folder)
    unfinished = shutil.ignore_patterns("*.pyc.*", "*.tmp.*")  # that Python and numba write at this moment
    for link in (ROOT / PACKAGE).iterdir():
        if link.is_symlink() and link.is_dir():
            shutil.copytree(ROOT / link.name, folder / link.name, ignore=unfinished)
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, symlinks=True, ignore=unfinished)  # links to these
    for name in ("launch_learner.py", "launch_inference.py", "launch_actor.py"):
        (folder / name).write_text(stand_in)


class Workplace:
    """A copy of the project, and the script when it runs in it, with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder.parent / "temporary"
        self.temporary.mkdir()
        self._clock = folder.parent / "clock"
        self.output_file = folder.parent / "output"
        self.port = free_port()
        self.environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "TMUX")}
        self.environment |= {"TMPDIR": str(self.temporary), "RAINBOW_VENV": sys.prefix}
        self._processes = Processes()
        self._process: Process | None = None
        self.address = ["--port-redis", str(self.port)]
        self.preset = ["--preset", "paper"]  # without one, the script asks PyTorch for a GPU first, which takes seconds

    def command(self, *options: object) -> list[str]:
        script = self.folder / "start_learning_atari.sh"
        return ["bash", str(script), *self.address, *self.preset, *map(str, options)]

    def start(self, *options: object) -> None:
        """Start the script, not in the project's folder: that must not matter."""
        self.output_file.unlink(missing_ok=True)
        program, *words = self.command(*options)
        self._process = self._processes.start(
            *words, program=program, cwd=self.folder.parent, environment=self.environment, output=self.output_file,
            together=True,
        )  # fmt: skip

    def begin(self, *options: object, who: str = "actor0") -> list[str]:
        """Start the script without windows, and return what a process was started with; it can be told to stop now."""
        self.start("--windows", "none", *options)
        return self.argv(who)

    @property
    def output(self) -> str:
        return self.output_file.read_text()

    @property
    def process(self) -> Process:
        assert self._process is not None
        return self._process

    def wait_for(self, true: Callable[[], object], what: str, seconds: float = 30) -> None:
        if self._process is None:  # it was started elsewhere
            wait_until(true, lambda: f"{what}\n{self.output[-5000:]}", seconds)
        else:
            self._process.wait_until(true, what, seconds)

    def wait_for_line(self, pattern: str, seconds: float = 30) -> None:
        self.wait_for(lambda: re.search(f"(?m)^{pattern}$", self.output), pattern, seconds)

    def press_ctrl_c(self) -> None:
        self.process.press_ctrl_c()

    def send(self, number: signal.Signals) -> None:
        self.process.send(number)

    def exit_code(self, seconds: float = 30) -> int:
        return self.process.finish(seconds)

    def stop(self, seconds: float = 30) -> None:
        """Stop the run by Ctrl-C, in good order, so that nothing is left."""
        self.press_ctrl_c()
        assert self.exit_code(seconds) == 0, self.output
        self.assert_nothing_left()

    def run(self, *options: object) -> int:
        self.start(*options)
        return self.exit_code()

    def find_gpus(self, number: int) -> None:
        """Let PyTorch find so many, whatever this machine has: what the script asks is put in its place."""
        (self.folder / "torch.py").write_text(
            f"class cuda:\n    is_available = staticmethod(lambda: {number} > 0)\n"
            f"    device_count = staticmethod(lambda: {number})\n"
        )

    def stop_the_clock(self) -> None:
        """Let the time by which processes are started again pass by `pass_time` alone."""
        self.pass_time(1000)
        main = self.folder / "programs" / "start" / "__main__.py"
        held = f"lambda: float(open({str(self._clock)!r}).read())"
        text = main.read_text().replace("start(script, words, stop)", f"start(script, words, stop, {held})")
        assert held in text
        main.write_text(text)

    def pass_time(self, seconds: float) -> None:
        now = float(self._clock.read_text()) if self._clock.exists() else 0.0
        (self.temporary / "now").write_text(str(now + seconds))
        (self.temporary / "now").rename(self._clock)

    def tell(self, name: str, exit_code: int) -> None:
        (self.folder / "told").write_text(str(exit_code))
        (self.folder / "told").rename(self.folder / f"{name}.exit")

    def argv(self, name: str) -> list[str]:
        """What a process was started with; waits for it, and for the learner, which may come later than its actors."""

        def read(who: str) -> str:
            file = self.folder / f"{who}.argv"
            return file.read_text() if file.exists() else ""

        self.wait_for(lambda: all(read(who).endswith("]") for who in ("learner", name)), f"learner and {name} to start")
        argv: list[str] = json.loads(read(name))
        return argv

    def processes(self, word: str) -> list[psutil.Process]:
        """Those whose command line has this word: that run a launcher, or a module."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if word in process.cmdline() and process.cwd() == str(self.folder):
                    found.append(process)
        return found

    def has_saved(self, name: str) -> bool:
        return (self.folder / f"{name}.saved").exists()

    def has_kept(self, results: str) -> bool:
        """Whether Redis has written there; from version 7 on it makes several files in a folder of their own."""
        return any((self.folder / results).rglob(f"redis_{self.port}.aof*"))

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not processes_in(self.folder), f"no process left, of {processes_in(self.folder)}", 5)
        assert not is_listening(self.port)
        assert list(self.temporary.glob("rainbow.*")) == []  # PyTorch keeps a cache there, too

    def close(self) -> None:
        """Leave nothing behind, also where a test has failed."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(AssertionError):
                self._process.finish(30)
        kill_all_in(self.folder)
        self._processes.close()


def get_on(process: Process, who: Iterable[str] = ("learner",)) -> int:
    """Wait until each of these has printed two more lines of progress; return the last T of the first one."""

    def printed() -> list[list[str]]:
        return [re.findall(rf"(?m)^\[{name}\] .*\] T = (\d+) ", process.output) for name in who]

    wanted = [len(found) + 2 for found in printed()]
    process.wait_until(lambda: all(map(int.__ge__, map(len, printed()), wanted)), "progress of all", 180)
    return int(printed()[0][-1])


def go_on_with(workplace: Workplace) -> list[str]:
    """The commands that the script gives for going on."""
    return re.findall("^start_learning_atari: go on from here with: (.*)$", workplace.output, re.MULTILINE)
