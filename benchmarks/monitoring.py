"""What it costs to look at a run: agent steps a second with everything on, with nothing on, and before there was it.

    python -m benchmarks.monitoring --before <checkout of a commit without reports>

Whole runs in turn. "Everything" is the dashboard open on an actor, TensorBoard's files, and Prometheus every ten
seconds. What is opened is asked for by HTTP as a page does, since a browser is seldom on the machine of a run.
"""

import argparse
import re
import socket
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.harness import Comparison, Rate, run
from benchmarks.redis_server import RedisServer
from benchmarks.system import intervals, start, wait_for
from rainbow_iqn_apex.saber.results.run_record import ROOT

_OPTIONS = "--game space_invaders --disable-cuda --preset cpu --learn-start 1000 --log-interval 500"
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
        """Ask."""
        second = 0
        while not self._left.wait(1.0):
            second += 1
            for address in [*self._often, *([] if second % _SELDOM_S else self._seldom)]:
                with suppress(URLError, TimeoutError, ConnectionError), urlopen(address, timeout=5) as answer:
                    self.answers += len(answer.read()) > 0


def measure(args: argparse.Namespace) -> list[Comparison]:
    """One comparison: runs with nothing on, with everything on, and of another checkout if there is one."""
    ways = {"nothing on": (ROOT, False), "everything on": (ROOT, True)}
    if args.before:
        ways = {"before": (args.before, False), **ways}
    count = _QUICK if args.quick else _INTERVALS
    measured = [{name: _speed(*way, count) for name, way in ways.items()} for _ in range(args.repeats)]
    first = next(iter(ways))
    rates = [
        Rate(name, "steps/s", tuple(m[name] for m in measured), tuple(m[name] / m[first] for m in measured))
        for name in ways
    ]
    return [Comparison("a run that is looked at", tuple(rates), dict.fromkeys([*ways][1:], _ALLOWED))]


def _speed(root: Path, everything: bool, count: int) -> float:
    """Return the agent steps per second of a run, over `count` log intervals after the first of learning."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_monitoring_")))
        port, metrics, page = stack.enter_context(RedisServer()).port, _free_port(), _free_port()
        options = [*_OPTIONS.split(), "--port-redis", str(port), "--path-to-results", str(folder / "results")]
        more = ["--tensorboard", "--metrics-port", str(metrics)] if everything else []
        said = folder / "learner.txt"
        learner = start(stack, ["launch_learner.py", *options, *more], said, root)
        start(stack, ["launch_actor.py", "--id-actor", "0", *options], folder / "actor.txt", root)
        wait_for(learner, said, 3)
        if everything:
            where = ["--port-redis", str(port), "--path-to-results", str(folder / "results"), "--port", str(page)]
            start(stack, ["dashboard.py", *where], folder / "dashboard.txt", root)
            often, seldom = ([f"http://127.0.0.1:{page}/{name}" for name in names] for names in (_OFTEN, _SELDOM))
            seldom.append(f"http://127.0.0.1:{metrics}/metrics")
            reader = stack.enter_context(Reader(often, seldom))
            while reader.answers < len(often) + len(seldom):
                time.sleep(0.1)
        begun = len(intervals(said)) + 1  # the interval under way had another beginning
        wait_for(learner, said, begun + count)
        seconds = intervals(said)[begun : begun + count]
    interval = int(re.findall(r"--log-interval (\d+)", _OPTIONS)[0])
    return interval * len(seconds) / sum(seconds)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, help="checkout of a commit without reports, to compare with")


if __name__ == "__main__":
    run(measure, str(__doc__), add_options=_more)
