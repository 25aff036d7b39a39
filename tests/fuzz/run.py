"""Feeds seeded hostile bytes to the targets, and watches for what must not happen.

That is: another exception than the documented ones, a case that takes seconds, an allocation of hundreds of megabytes,
and code that is run.
"""

import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import psutil

from tests.fuzz.target import Target

SECONDS_A_CASE = 5
HEADROOM_BYTES = 384 << 20  # that a case may allocate
CODE = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pickle.find_class")
_target: Target | None = None  # that is fed


class Hang(BaseException):
    """A case took too long."""


class CodeRun(BaseException):
    """A case has started something."""


class Outcome(NamedTuple):
    """What the cases of a target came to."""

    cases: int
    accepted: int
    seconds: float
    failures: dict[str, bytes]  # one case for each kind of failure


def fuzz(target: Target, cases: int, seed: int) -> Outcome:
    """Feed this many cases; the same seed makes the same ones."""
    rng = random.Random(seed)
    start, accepted = time.monotonic(), 0
    failures: dict[str, bytes] = {}
    with _watched(), redirect_stdout(StringIO()), warnings.catch_warnings(action="ignore"):
        for _ in range(cases):
            data = target.forge(rng, rng.choice(target.samples))
            failure = _feed(target, data)
            accepted += failure is None
            if failure:
                failures.setdefault(failure, data)
    return Outcome(cases, accepted, time.monotonic() - start, failures)


def _feed(target: Target, data: bytes) -> str | None:
    """None if it was taken, an empty text if it was refused, else what went wrong."""
    try:
        with _fed(target):
            read = target.read(data)
    except target.allowed as error:
        return "" if len(str(error)) < 100_000 else "a message without end"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return _describe(error)
    try:
        with _fed(target):
            target.use(read)
    except BaseException as error:  # noqa: BLE001 - as above
        return _describe(error)
    return None


@contextmanager
def _fed(target: Target) -> Iterator[None]:
    global _target
    _watch(SECONDS_A_CASE)
    try:
        _target = target
        yield
    finally:
        _target = None
        _watch(0)


def _watch(seconds: float) -> None:
    """Ring when so much processor time is used, or ten times as much has passed: others may use the processor, too."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def _describe(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        raise error
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {where.filename}:{where.lineno}: {str(error)[:150]}"


@contextmanager
def _watched() -> Iterator[None]:
    """With an alarm for hangs, and little more memory than there is in use."""

    def ring(*_: object) -> None:
        raise Hang(f"more than {SECONDS_A_CASE} s")

    before = {number: signal.signal(number, ring) for number in (signal.SIGALRM, signal.SIGPROF)}
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + HEADROOM_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in before.items():
            signal.signal(number, handler)


def _audit(event: str, arguments: Any) -> None:
    if _target and event in CODE and not (event == "socket.connect" and arguments[1] == _target.server):
        raise CodeRun(event)


sys.addaudithook(_audit)
