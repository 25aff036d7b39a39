"""The plot is whole at every moment of a run, for whoever reads it again and again."""

import json
import re
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.small import SHORT_CHAIN
from tests.system import System

RUN = [*SHORT_CHAIN, *"--learn-start 900 --T-max 4000 --nb-env-per-actor 3".split()]


class Reader(threading.Thread):
    """Reads a file as fast as it can until it is told to stop, and keeps every content that differs from the last."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="reader")
        self._path = path
        self._done = threading.Event()
        self.reads = 0
        self.versions: list[str] = []

    def run(self) -> None:
        stamp = None
        while not self._done.wait(0.001):
            try:
                with self._path.open(encoding="utf-8") as file:
                    content = file.read()
            except FileNotFoundError:
                assert stamp is None, "once there, it never goes"
                continue
            self.reads += 1
            if hash(content) != stamp:
                stamp = hash(content)
                self.versions.append(content)

    def close(self) -> None:
        self._done.set()
        self.join()


@pytest.mark.redis
@pytest.mark.slow
def test_every_read_of_the_plot_is_a_whole_page(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: write to `path` itself in `write_reward_plot`.
    reader = Reader(tmp_path / "run" / "Reward_chain.html")
    reader.start()
    with closing(reader), System(redis_port, run_name, tmp_path / "run", RUN, change="saving_often") as system:
        system.finish()
    assert reader.reads > len(reader.versions) >= 5, "it was read while it changed"
    steps = []
    for page in reader.versions:
        assert page.startswith("<!doctype html>") and page.endswith("</html>\n")
        (figure,) = re.findall(r'<script type="application/json" id="figure">(.*?)</script>', page)
        steps.append(max(json.loads(figure)["plot"]["data"][0]["x"], default=0))
    assert steps == sorted(steps) and steps[-1] > 3000, "each newer than the one before"
