"""Has anything become twice as slow? Fast measurements, each against work that never changes, with wide bounds.

A ratio of two works that run in turn depends little on how fast a machine is, and one of processor time little on how
busy it is: others' processes empty the caches and take a share of the memory's speed, so the two works need both in
like proportions (`plain.py`), and take short turns. Waiting is not seen, and all runs on one thread. A part
passes if its ratio is at least `TOLERATED` of what it was when the bound was set, and if the same work, done twice,
does not pass. An idle machine is asked for, so the tests leave it out.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks import plain
from benchmarks.chunks import random_chunks
from benchmarks.environment import emulator
from benchmarks.environment import ours as environment
from benchmarks.harness import Comparison, Work, compare, no_options, one_thread
from benchmarks.networks import rainbow_update
from benchmarks.replay import filled, our_sample, our_update, tree_update
from benchmarks.works import act_work
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.args import parse as parse_args
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.messages import decode_message, encode_message

add_options = no_options
TOLERATED = 0.62
_REPEATS = 25
_ONCE, _TWICE = "ours", "ours, done twice"
_SLICE_S = 0.03  # of processor time
_ROWS = 20_000


@dataclass(frozen=True)
class Gate:
    """Bounds how slow something may become."""

    works: Callable[[], tuple[Work, Work]]  # what never changes, and ours
    usual: float  # ratio of the second to the first, as calls a second

    @property
    def least(self) -> float:
        """Return the ratio below which the gate fails."""
        return TOLERATED * self.usual


def _environment() -> tuple[Work, Work]:
    return emulator(20), environment(20)


def _sample() -> tuple[Work, Work]:
    replay = filled(_ROWS)
    return plain.uniform_sample(replay, 32), our_sample(replay, 32)


def _update_priorities() -> tuple[Work, Work]:
    return tree_update(_ROWS, 32), our_update(filled(_ROWS), 32)


def _encode() -> tuple[Work, Work]:
    chunks = random_chunks("pong", 4)
    return plain.compress(chunks), lambda: [encode_message(chunk) for chunk in chunks]


def _decode() -> tuple[Work, Work]:
    chunks = random_chunks("pong", 4)
    messages = [encode_message(chunk) for chunk in chunks]
    return plain.decompress(chunks), lambda: [decode_message(m, 10**7) for m in messages]


def _act() -> tuple[Work, Work]:
    return plain.act(), act_work(Args(learn_start=1), 1)


def _update() -> tuple[Work, Work]:
    settings = parse_args(["--preset", "cpu"], "gate", "")
    return plain.update(settings.batch_size, settings.get("num_tau_samples")), rainbow_update(settings)


PARTS = {
    "environment": Gate(_environment, 0.83),
    "sample 32": Gate(_sample, 1.14),  # 0.95 to 1.17 on an idle machine, 0.88 to 1.35 on a full one; another: 0.75
    "update priorities of 32": Gate(_update_priorities, 3.7),  # 3.7 on an idle machine, 3.3 on a busy one
    "encode a chunk": Gate(_encode, 1.07),
    "decode a chunk": Gate(_decode, 0.6),
    "act": Gate(_act, 0.8),
    "update, --preset cpu": Gate(_update, 0.76),
}


def measure(_: argparse.Namespace) -> Iterator[Comparison]:
    """Compare each part; raises RunError if one is too slow, or would pass if its work were done twice."""
    failed = []
    for name, gate in PARTS.items():
        found = _compare(name, gate)
        yield found
        failed += [f"{name} is too slow"] if found.ratio(_ONCE) < gate.least else []
        failed += [f"{name} might be twice as slow"] if found.ratio(_TWICE) >= gate.least else []
    if failed:
        raise RunError("; ".join(failed))


def _compare(name: str, gate: Gate) -> Comparison:
    with one_thread():
        reference, ours = gate.works()
        works = {"what never changes": reference, _ONCE: ours, _TWICE: _twice(ours)}
        return compare(
            name, "1/s", works, repeats=_REPEATS, wanted={_ONCE: gate.least}, slice_s=_SLICE_S, clock=time.process_time
        )


def _twice(work: Work) -> Work:
    def twice() -> None:
        work()  # its result is dropped at once: two that are held would need twice the memory, too
        work()

    return twice
