"""A run that is watched computes what it computes unwatched, byte for byte."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from memory.broker.connection import Client
from memory.broker.run_status import read_run
from memory.broker.transport import Keys
from memory.broker.views import ViewListener
from monitoring.view import MAX_BYTES, decode
from tests.small import FAMILIES, SHORT_CHAIN
from tests.system import System

LENGTH = "--T-max 4000 --evaluation-interval 2000".split()


class Watcher(threading.Thread):
    """Watches actor 0 of a run from its beginning on; `close` it in the end."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(name="watcher")
        self._client, self._name = client, name
        self._done = threading.Event()
        self.kinds: list[str] = []

    def run(self) -> None:
        with closing(ViewListener(self._client)) as listener:
            while not self._done.is_set():
                if record := read_run(self._client, self._name):
                    listener.listen({Keys(self._name, record.run_id).view(0)})
                    if found := listener.next(MAX_BYTES):
                        self.kinds.append(decode(found[1])["kind"])

    def close(self) -> None:
        self._done.set()
        self.join()


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize(("options", "kind"), [(SHORT_CHAIN, "quantiles"), (FAMILIES["r2d2"], "values")])
def test_a_watched_run_is_the_same_run(
    redis_port: int, client: Client, run_name: str, tmp_path: Path, options: list[str], kind: str
) -> None:
    # Mutation: let `RainbowIqn.inspection` draw its fractions, and leave out `set_state` in `Rollout.inspect`.
    results = []
    for name in ("alone", "watched"):
        watcher = Watcher(client, run_name + name)
        if name == "watched":
            watcher.start()
        with System(redis_port, run_name + name, tmp_path / name, [*options, *LENGTH]) as system:
            results.append(system.finish())
    watcher.close()
    assert len(watcher.kinds) >= 3 and set(watcher.kinds) == {kind}, "it was watched"
    assert results[0] == results[1]
