"""A reader of actors' messages for the tests, and what writes to it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import redis

from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.log import Entry, ExperienceReader
from rainbow_iqn_apex.memory.messages import Episode, Message, MessageSchema, encode_message
from tests.deadline import Deadline

SCHEMA = MessageSchema(max_payload=1000)


@contextmanager
def open_inbox(
    client: Client,
    keys: Keys,
    actors: int = 2,
    stop: threading.Event | None = None,
    kind: type[ExperienceReader] = ExperienceReader,
    **more: Any,
) -> Iterator[ExperienceReader]:
    with closing(kind(client, keys, actors, SCHEMA, stop or threading.Event(), **more)) as inbox:
        yield inbox


def say(client: redis.Redis, keys: Keys, actor: int, first: int, *messages: Message | bytes) -> None:
    for number, message in enumerate(messages, first):
        data = message if isinstance(message, bytes) else encode_message(message)
        client.xadd(keys.log(actor), {"m": data}, id=f"{number}-0")


def episode(number: int) -> Episode:
    return Episode({"number": number})


def take(inbox: ExperienceReader, count: int) -> list[Entry]:
    """Exactly this many entries, as they arrive."""
    entries = inbox.take_all()
    deadline = Deadline(5, f"{count} entries")
    while len(entries) < count:
        deadline.check()
        inbox.wait(WaitReporter("a test"))
        entries += inbox.take_all()
    assert len(entries) == count
    return entries


def ids(entries: Iterable[Entry | None]) -> list[tuple[int, int]]:
    return [(entry.id.actor, entry.id.sequence) for entry in entries if entry]  # None: a second of waiting


@contextmanager
def stopped_after(seconds: float) -> Iterator[threading.Event]:
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()
        timer.join()
