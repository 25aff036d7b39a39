"""Real Redis servers for the tests, and experience whose every number says where it comes from."""

import itertools
import os
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import psutil
import pytest
import redis
import torch
from hypothesis import HealthCheck, settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from redis.backoff import NoBackoff
from redis.retry import Retry

from rainbow_iqn_apex.memory import replay
from rainbow_iqn_apex.memory.broker import log, run_client
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.ring import Ring
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType
from rainbow_iqn_apex.memory.segment_tree import SegmentTree
from tests.browser import browser  # noqa: F401 - a fixture
from tests.dashboard import address  # noqa: F401 - a fixture
from tests.deadline import wait_until
from tests.processes import ROOT, Process, Processes, wait_for_ends
from tests.servers import BUNDLED, OTHERS
from tests.sshd import Sshd
from tests.start_script import STAND_IN, Workplace, copy_project, free_port

for _name in [name for name in os.environ if name.startswith("REDIS_")]:
    del os.environ[_name]  # the tests bring their own servers

_SLOW = [HealthCheck.too_slow]  # a busy machine must not fail a test
settings.register_profile("project", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW)
settings.load_profile("project")

_run_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", default="all", help="quick: no slow tests; 2/7: those and the share 2 of 0 to 6; all")


def missing_packages(folder: Path = ROOT) -> list[str]:
    """The packages of environments and sinks that are not installed, of those that this Python can have."""
    texts = [(folder / f"requirements-{name}.txt").read_text() for name in ("extra", "alone")]
    wanted = [Requirement(line) for text in texts for line in text.splitlines()]
    there = {canonicalize_name(found.name) for found in distributions()}
    return [
        each.name
        for each in wanted
        if not (each.marker and not each.marker.evaluate()) and canonicalize_name(each.name) not in there
    ]


def pytest_configure() -> None:
    """Let SIGTERM, which `timeout` sends, end the tests as Ctrl-C does: their processes are in groups of their own.

    No signal stays ignored, as `nohup` and the background of a script have it: the tests' processes would inherit that.
    """
    if os.environ.get("TESTS_NEED_EXTRAS") and (missing := missing_packages()):
        raise pytest.UsageError(f"TESTS_NEED_EXTRAS: not installed: {', '.join(missing)}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # the tests go on; what they start gets the default


def _end(*_: object) -> None:
    """End the tests once: a worker, whom the terminal and pytest tell, is not disturbed while it ends its processes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Hand an interruption on to pytest-xdist's workers, and let them end their processes: it would soon kill them."""
    if exitstatus == pytest.ExitCode.INTERRUPTED and session.config.pluginmanager.has_plugin("dsession"):
        workers = psutil.Process().children()
        theirs = [process for worker in workers for process in worker.children()]
        for worker in workers:
            worker.terminate()
        with suppress(AssertionError):
            wait_for_ends(theirs, 30)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tier = config.getoption("--tier")
    left_out = {item for item in items if item.get_closest_marker("slow") and not is_in_tier(item.nodeid, tier)}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session", autouse=True)
def _a_worker_s_share_of_the_cores() -> None:
    """Let PyTorch keep to it: threads that spin, as they wait for one that has no core, make small products slow."""
    if torch := sys.modules.get("torch"):
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))


def is_in_tier(slow_test: str, tier: str) -> bool:
    """Tell whether a tier runs a slow test; its name alone decides which share it is in."""
    if tier in ("all", "quick"):
        return tier == "all"
    share, shares = map(int, tier.split("/"))
    return zlib.crc32(slow_test.encode()) % shares == share


class RedisServer:
    """The bundled server, or another, on a loopback port, which can be stopped, robbed of data and restarted."""

    def __init__(
        self, folder: Path, *, append_only: bool = False, more: dict[str, object] | None = None, program: str = ""
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment: dict[str, str] | None = None  # its variables; None: ours
        self.first: tuple[str, ...] = ()  # words of its command line before all options
        self._append_only = append_only
        self._more = more or {}
        self.program = program or BUNDLED
        self._process: Process | None = None
        self._processes = ExitStack()

    @property
    def log(self) -> Path:
        """What the server appends to; from Redis 7 on that is one of several files in a folder."""
        files = (self.folder / "appendonlydir").glob("*.incr.aof")
        return max(files, key=lambda file: int(file.name.split(".")[-3]), default=self.folder / "appendonly.aof")

    def start(self) -> None:
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self.folder,
            "save": "",
            "appendonly": "yes" if self._append_only else "no",
            "appendfsync": "always",  # so that a test knows what the file holds
            "logfile": self.folder / "redis.log",
            **self._more,
        }
        words = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        self._process = self._processes.enter_context(Processes()).start(
            *self.first, *words, program=self.program, environment=self.environment
        )
        with redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0)) as client:

            def is_there() -> bool:
                assert self._process and self._process.exit_code is None, (self.folder / "redis.log").read_text()
                return _answers(client)

            try:
                wait_until(is_there, "the Redis server to answer", 10, every=0.01)
            except BaseException:
                self.close()  # else it is left to the garbage collector, in another test
                raise

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        with self._processes:
            if self._process:
                self._process.send(how)
                self._process.finish(10)
                self._process = None

    def close(self) -> None:
        self.stop(signal.SIGKILL)

    def freeze(self, seconds: float) -> None:
        """Answer nobody for some time, as while a disk is busy."""
        self.pause()
        time.sleep(seconds)
        self.go_on()

    def pause(self) -> None:
        """Answer nobody, but keep all connections."""
        assert self._process
        self._process.send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Answer again, after `pause` or without one."""
        assert self._process
        self._process.send(signal.SIGCONT)

    def restart_without(self, since: int) -> None:
        """Crash, and come back with the first `since` bytes of `log`, what was synced to the disk; 0: with nothing."""
        self.stop(signal.SIGKILL)
        if not since:
            shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)
        if self.log.exists():
            os.truncate(self.log, since)
        self.start()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return True
    except redis.ConnectionError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let the broker's tests, and those of the log's reader, run on every server; on the others they are slow ones."""
    places = (ROOT / "tests" / "memory", ROOT / "tests" / "programs" / "test_ingest.py")
    if "redis_program" in metafunc.fixturenames and any(map(metafunc.definition.path.is_relative_to, places)):
        others = [pytest.param(path, id=name, marks=pytest.mark.slow) for name, path in OTHERS.items()]
        programs = [pytest.param(BUNDLED, id=pytest.HIDDEN_PARAM), *others]
        metafunc.parametrize("redis_program", programs, indirect=True, scope="session")


@pytest.fixture(scope="session")
def redis_program(request: pytest.FixtureRequest) -> str:
    """The server's program: the bundled one, where a test does not run on several."""
    return str(getattr(request, "param", BUNDLED))


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory, redis_program: str) -> Iterator[RedisServer]:
    """The session's server: no test may stop it, or touch keys of other runs than its own."""
    server = RedisServer(tmp_path_factory.mktemp("redis"), program=redis_program)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_server(tmp_path: Path, redis_program: str) -> Iterator[RedisServer]:
    """A server with an append-only file that the test may stop and restart."""
    folder = tmp_path / "own_redis"
    folder.mkdir()
    server = RedisServer(folder, append_only=True, program=redis_program)
    server.start()
    yield server
    server.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def redis_port(redis_server: RedisServer) -> int:
    return redis_server.port


@pytest.fixture
def client(redis_port: int) -> Iterator[Client]:
    with connect("127.0.0.1", redis_port) as client:
        yield client


@pytest.fixture
def own_client(own_server: RedisServer) -> Iterator[Client]:
    with connect("127.0.0.1", own_server.port) as client:
        yield client


@pytest.fixture
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a reader that waits for messages, and an actor that waits for the learner, soon see that they shall stop."""
    for module in (log, run_client):
        monkeypatch.setattr(module, "BLOCK_MS", 30)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts the test's processes, of which nothing is left after it."""
    with Processes() as processes:
        yield processes


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    """The real script, configuration and option parser, between stand-ins for the launchers."""
    folder = tmp_path / "a copy"  # with a space, as people have
    copy_project(folder, STAND_IN)
    (folder / "dashboard.py").write_text("import time\nwhile True:\n    print(flush=True)\n    time.sleep(0.1)\n")
    place = Workplace(folder)
    yield place
    place.close()


@pytest.fixture
def sshd(workplace: Workplace, tmp_path: Path) -> Iterator[Sshd]:
    """An sshd, by whose ssh the workplace's start script reaches its own folder, as that of another host."""
    server = Sshd(tmp_path / "sshd")
    server.start()
    (workplace.folder / ".venv").symlink_to(sys.prefix)
    workplace.environment["PATH"] = server.path
    yield server
    workplace.close()
    server.close()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Let small networks not wait for threads that other processes keep from running."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a replay have the tree and the ring of a GPU."""
    monkeypatch.setattr(replay, "make_tree", SegmentTree)
    monkeypatch.setattr(replay, "make_ring", Ring)


@pytest.fixture
def run_name() -> str:
    """A run of its own for each test, whatever it appends to the name: nothing is ever flushed."""
    return f"test{os.getpid()}_{next(_run_numbers)}_"


Moment = tuple[Row, int, Arrays, Arrays]  # a row, its action, the network's extras, the recurrent state before it


def random_rows(rng: np.random.Generator, count: int, stream: int) -> list[Moment]:
    """Rows, actions, extras and recurrent states of one environment, in which every row is told from every other.

    An observation [2, 3] holds the stream's number (above 0) and the row's; the extra `q` [2] and the state `memory`
    [5] are noise. Episodes have 1 to 9 actions and end truly or by truncation.
    """
    rows: list[Moment] = []
    left = 0
    for t in range(count):
        step_type = StepType.FIRST if not rows or rows[-1][0].step_type == StepType.LAST else StepType.MID
        if step_type == StepType.FIRST:
            left = int(rng.integers(1, 10))
        elif left == 0:
            step_type = StepType.LAST
        left -= 1
        obs = np.array([[stream, t // 256, t % 256], [rng.integers(256), 255 - stream, t % 7]], np.uint8)
        reward = 0.0 if step_type == StepType.FIRST else float(np.float32(rng.normal()))
        row = Row(obs, step_type, reward, float(rng.integers(2)) if step_type == StepType.LAST else 1.0)
        extras = {"q": rng.normal(size=2).astype(np.float32)}
        state = {"memory": rng.normal(size=5).astype(np.float32)}
        rows.append((row, int(rng.integers(18)), extras, state))
    return rows


def window_of(rows: list[Moment], start: int, spec: ChunkSpec) -> Arrays:
    """Rows `start` to `start + spec.window` of a stream as a chunk must hold them; before row 0 there is padding."""
    indices = range(start, start + spec.window)
    blank = [{name: np.zeros_like(array) for name, array in arrays.items()} for arrays in rows[0][2:]]
    padding: Moment = (Row(np.zeros_like(rows[0][0].obs), StepType.LAST, 0.0, 0.0), 0, blank[0], blank[1])
    picked = [rows[i] if i >= 0 else padding for i in indices]
    columns: dict[str, Array] = {
        "obs": np.array([row.obs for row, *_ in picked]),
        "step_type": np.array([row.step_type for row, *_ in picked], np.uint8),
        "reward": np.array([row.reward for row, *_ in picked], np.float32),
        "discount": np.array([row.discount for row, *_ in picked], np.float32),
        "action": np.array([action for _, action, *_ in picked], np.int32),
    }
    columns["extras.q"] = np.array([extras["q"] for _, _, extras, _ in picked])
    return columns | {"state.memory": np.array([state["memory"] for *_, state in picked])}
