"""Both ends of the transport for the tests, and what they say to each other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.record import Owner, RunStatus, record_fields
from rainbow_iqn_apex.memory.messages import RoundEnd, decode_message
from tests.deadline import wait_until

SETTINGS = {"seed": 1, "discount": 0.99, "game": "pong"}
HERE = Owner.of(Path())


def actor_link(client: Client, name: str, run_id: str = "id", stop: threading.Event | None = None) -> ActorClient:
    return ActorClient(client, name, run_id, 0, stop or threading.Event())


@contextmanager
def learner_link(client: Client, name: str, run_id: str = "id", *, afresh: bool = False) -> Iterator[LearnerClient]:
    with LearnerClient(client, name, SETTINGS, 2) as link:
        link.lead(run_id, afresh=afresh)
        yield link


def play(link: ActorClient, *rounds: int) -> None:
    """One commit; the number of a message is its round."""
    link.commit([RoundEnd(number) for number in rounds], b"state after %d" % rounds[-1])


def rounds_of(client: Client, name: str) -> list[tuple[int, object]]:
    """Number and content of all messages."""
    entries = entries_of(client, Keys(name, "id").log(0))
    return [(int(i.split(b"-")[0]), decode_message(fields[b"m"], 1000)) for i, fields in entries]


def entries_of(client: Client, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Name and fields of all entries of a stream."""
    entries: Any = client.xrange(stream)
    return list(entries)


def played(client: Client, name: str) -> list[int]:
    """The rounds whose ends are in the log, in its order."""
    return [message.round for _, message in rounds_of(client, name) if isinstance(message, RoundEnd)]


def expected(last: int) -> list[tuple[int, object]]:
    return [(number, RoundEnd(number)) for number in range(1, last + 1)]


def write_run(client: Client, name: str, record: RunStatus, read: dict[int, int]) -> None:
    """Write the record of a run in one shard."""
    client.hset(Keys(name, "").run, mapping=record_fields(record, read))


@contextmanager
def after(seconds: float, what: Callable[[], object]) -> Iterator[None]:
    timer = threading.Timer(seconds, what)
    timer.start()
    yield
    timer.join()


def weights(version: int) -> bytes:
    return wire.encode(wire.Tag.WEIGHTS, {"version": version})


def wait_for_rewrite(client: Client) -> None:
    at_work = ("aof_rewrite_in_progress", "aof_rewrite_scheduled")
    wait_until(lambda: not any(client.info("persistence")[name] for name in at_work), "the file that is written anew")
