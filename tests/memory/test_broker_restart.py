"""A whole run in lockstep whose Redis server is killed again and again: it ends, and as if nothing had happened."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memory.transport import connect
from tests.conftest import RedisServer

pytestmark = pytest.mark.redis
ROOT = Path(__file__).parent.parent.parent
SETTINGS = (
    "--env chain --game chain --hidden-size 16 --batch-size 8 --num-tau-samples 4 --num-tau-prime-samples 5 "
    "--num-quantile-samples 6 --learn-start 200 --memory-capacity 400 --T-max 1500 --log-interval 300 "
    "--weight-synchro-frequency 50 --length-actor-buffer 100 --disable-cuda"
).split()
Disturb = Callable[[RedisServer], None]


@contextmanager
def launched(launcher: str, port: int, folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "-m", "tests.chain.launch", launcher, *SETTINGS, *more]
    command += ["--port-redis", str(port), "--path-to-results", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_weights(port: int) -> None:
    """Until the learner has published versions 0 and 1, and can do nothing more without its actor."""
    deadline = time.monotonic() + 30
    with closing(connect("127.0.0.1", port)) as client:
        while not any(client.xlen(key) == 2 for key in client.keys("riqx:{chain}:*:versions")):
            assert time.monotonic() < deadline, "the learner publishes nothing"
            time.sleep(0.05)


def episodes_of_a_run(server: RedisServer, folder: Path, disturb: Disturb) -> str:
    """Disturb the server before the actor comes and at the learner's log lines; returns the training log."""
    with launched("launch_learner.py", server.port, folder) as learner:
        wait_for_weights(server.port)
        disturb(server)
        with launched("launch_actor.py", server.port, folder, "--id-actor", "0") as actor:
            assert learner.stdout
            disturbed = waits = 0
            with closing(learner.stdout) as lines:
                for line in lines:
                    waits += "Waiting for actor 0 to play round" in line  # ten seconds each
                    assert waits < 4, "both wait for each other"
                    if " T = " in line and disturbed < 3:
                        disturb(server)
                        disturbed += 1
            assert disturbed == 3
            assert (learner.wait(10), actor.wait(20)) == (0, 0)
    return (folder / "chain.csv").read_text()


@pytest.fixture(scope="module")
def undisturbed(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    return episodes_of_a_run(redis_server, tmp_path_factory.mktemp("undisturbed"), lambda _: None)


def keep(server: RedisServer) -> None:
    server.stop(signal.SIGKILL)
    server.start()


def lose(server: RedisServer) -> None:
    server.restart_without(since=0)


@pytest.mark.parametrize("disturb", [keep, lose])
def test_a_run_survives_restarts(undisturbed: str, own_server: RedisServer, tmp_path: Path, disturb: Disturb) -> None:
    assert undisturbed.count("\n") > 100
    assert episodes_of_a_run(own_server, tmp_path / "results", disturb) == undisturbed
