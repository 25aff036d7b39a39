"""A run that is watched computes what it computes unwatched, byte for byte."""

import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import read_run
from rainbow_iqn_apex.memory.broker.reports import ViewListener
from rainbow_iqn_apex.monitoring.view import MAX_BYTES, decode
from tests.small import FAMILIES, SHORT_CHAIN
from tests.system import EVALUATORS, System

# Enough steps for some seconds, and small batches.
LENGTH = "--T-max 2500 --learn-start 400 --evaluation-interval 1000".split()


class Watcher(threading.Thread):
    """Watches actor 0 and evaluation actor 0 of a run from its beginning on; a context manager."""

    def __init__(self, client: Client, name: str) -> None:
        super().__init__(name="watcher")
        self._client, self._name = client, name
        self._done = threading.Event()
        self.kinds: tuple[list[str], list[str]] = ([], [])  # of the actor, and of the evaluation actor

    def __enter__(self) -> "Watcher":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        with closing(ViewListener(self._client)) as listener:
            while not self._done.is_set():
                if record := read_run(self._client, self._name):
                    channels = [Keys(self._name, record.run_id, evaluation).view(0) for evaluation in (False, True)]
                    listener.listen(set(channels))
                    for channel, view in listener.next(MAX_BYTES).items():
                        self.kinds[channels.index(channel)].append(decode(view)["kind"])


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "kind"), [([*SHORT_CHAIN, "--batch-size", "16"], "quantiles"), (FAMILIES["r2d2"], "values")]
)
def test_a_watched_run_is_the_same_run(
    redis_port: int, client: Client, run_name: str, tmp_path: Path, options: list[str], kind: str
) -> None:
    # Mutation: let `RainbowIqn.inspection` draw its fractions, and leave out `set_state` in `watching.inspect`.
    with Watcher(client, f"{run_name}watched") as watcher, ExitStack() as stack:
        systems = [
            stack.enter_context(System(redis_port, run_name + name, tmp_path / name, [*options, *LENGTH]))
            for name in ("alone", "watched")
        ]
        systems[1].start(EVALUATORS[0])
        alone, watched = (system.finish() for system in systems)
    for kinds in watcher.kinds:
        told = kinds[1:] if kinds[:1] == [""] else kinds  # before its first action a Rainbow cannot tell
        assert len(told) >= 2 and set(told) == {kind}, "it was watched"
    assert watched == alone
