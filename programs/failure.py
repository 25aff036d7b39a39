"""Publishes why an actor has ended: its traceback stands in its own terminal alone."""

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

from rainbow_iqn_apex.common.errors import LeaseLostError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_error, name_exit
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.lease_owner import this_host
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.monitoring.report import MAX_BYTES, Event, Report, ReportError, Role, decode, encode

# Ends that are no failure of the actor's; where its lease is lost, the report is its successor's.
_IN_ORDER = (Stopped, UserError, BrokerError, LeaseLostError)
_FAILED = "failed ("  # begins the event


@contextmanager
def failure_reported(client: Client, keys: Keys, role: Role, number: int) -> Iterator[None]:
    """Write into the actor's report that it has failed, as an alarm, and let the exception go on."""
    began = time.time()
    try:
        yield
    except _IN_ORDER:
        raise
    except (Exception, SystemExit) as error:  # the latter by somebody's environment
        now = time.time()
        told = name_exit(error) if isinstance(error, SystemExit) else name_error(error)
        failed = Event(now, f"{_FAILED}{told})", is_alarm=True)
        with suppress(BrokerError), closing(ReportStore(client, keys)) as store:
            own = Report(role, number, this_host(), os.getpid(), began, now, ended=True)
            last = _read(store, number) or own
            events = (*(event for event in last.events if not event.is_alarm), failed)
            store.write(number, encode(replace(own, values=last.values, histograms=last.histograms, events=events)))
        raise


def failure_of(client: Client, keys: Keys, actor: int) -> str:
    """Return how an actor has failed, empty if it has not, or Redis does not answer."""
    with suppress(BrokerError), closing(ReportStore(client, keys)) as store:
        report = _read(store, actor)
        events = report.events if report and report.ended else ()
        return next((event.text for event in events if event.text.startswith(_FAILED)), "")
    return ""


def _read(store: ReportStore, actor: int) -> Report | None:
    found = store.read([actor], MAX_BYTES).get(actor)
    with suppress(ReportError):
        return decode(found.data) if found else None
    return None
