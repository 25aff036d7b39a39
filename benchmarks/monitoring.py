"""What it costs to look at a run: agent steps a second with everything on, and with nothing on.

Whole runs in turn. "Everything" is the dashboard open on an actor, TensorBoard's files, and Prometheus every ten
seconds. What is opened is asked for by HTTP as a page does, since a browser is seldom on the machine of a run.
"""

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.harness import Comparison, beside_first
from benchmarks.processes import Program, RedisServer, free_port

_INTERVAL = 500  # agent steps
_OPTIONS = f"--game space_invaders --disable-cuda --preset cpu --learn-start 1000 --log-interval {_INTERVAL}"
_INTERVALS = 10
_QUICK = 2  # intervals
_ALLOWED = 0.98  # of the steps per second
_OFTEN = ("api/now", "api/view?actor=0")  # as the page asks: once a second
_SELDOM = ("api/scores", "api/metrics?name=train/loss&name=time/fps")  # when there is more in the files
_SELDOM_S = 10


class Reader(threading.Thread):
    """Asks for some addresses once a second and for others every ten seconds, until its block ends."""

    def __init__(self, often: list[str], seldom: list[str]) -> None:
        super().__init__(name="reader", daemon=True)
        self.answers = 0
        self._often, self._seldom = often, seldom
        self._left = threading.Event()

    def __enter__(self) -> "Reader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self.join()

    def run(self) -> None:
        """Ask until the block has ended."""
        second = 0
        while not self._left.wait(1.0):
            second += 1
            for address in [*self._often, *([] if second % _SELDOM_S else self._seldom)]:
                with suppress(URLError, TimeoutError, ConnectionError), urlopen(address, timeout=5) as answer:
                    self.answers += len(answer.read()) > 0


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare runs with nothing on, and with everything on."""
    nothing, everything, count = "nothing on", "everything on", _QUICK if args.quick else _INTERVALS
    measured = [{nothing: _speed(False, count), everything: _speed(True, count)} for _ in range(args.repeats)]
    rates = {name: [m[name] for m in measured] for name in (nothing, everything)}
    return [beside_first("a run that is looked at", "steps/s", rates, {everything: _ALLOWED})]


def _speed(everything: bool, count: int) -> float:
    """Return the agent steps per second of a run, over `count` log intervals after the first of learning."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_monitoring_")))
        port, metrics, page = stack.enter_context(RedisServer()).port, free_port(), free_port()
        options = [*_OPTIONS.split(), "--port-redis", str(port), "--path-to-results", str(folder / "results")]
        more = ["--tensorboard", "--metrics-port", str(metrics)] if everything else []
        learner = Program(stack, ["launch_learner.py", *options, *more], folder / "learner.txt")
        Program(stack, ["launch_actor.py", "--id-actor", "0", *options], folder / "actor.txt")
        learner.wait_for_intervals(3)
        if everything:
            where = ["--port-redis", str(port), "--path-to-results", str(folder / "results"), "--port", str(page)]
            Program(stack, ["dashboard.py", *where], folder / "dashboard.txt")
            often, seldom = ([f"http://127.0.0.1:{page}/{name}" for name in names] for names in (_OFTEN, _SELDOM))
            seldom.append(f"http://127.0.0.1:{metrics}/metrics")
            reader = stack.enter_context(Reader(often, seldom))
            while reader.answers < len(often) + len(seldom):
                time.sleep(0.1)
        begun = len(learner.intervals()) + 1  # the interval under way had another beginning
        learner.wait_for_intervals(begun + count)
        seconds = learner.intervals()[begun : begun + count]
    return _INTERVAL * len(seconds) / sum(seconds)
