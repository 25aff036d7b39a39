"""A process that runs other code than its run's learner says so."""

import threading
from dataclasses import replace

import pytest

from rainbow_iqn_apex.common.checkout import Code, present
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.run_client import wait_for_run
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs.common import CodeWatch
from tests.memory.links import SETTINGS, learner_link


@pytest.mark.redis
def test_a_learner_records_its_code(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner:
        learner.write_progress("running", 0, 0, {})
        assert wait_for_run(client, run_name, SETTINGS, threading.Event()).code == present()


def test_other_code_is_told_once_for_each_learner(capsys: pytest.CaptureFixture[str]) -> None:
    events, record = EventLog(), RunStatus("id", "running", {}, 0, 0, code=present())
    other = replace(present(), release="0.0.1")
    watch = CodeWatch(events)
    for code in (None, present(), other, other, present(), Code("0.0.2", "unknown")):
        watch.look(replace(record, code=code))
    assert capsys.readouterr().out.splitlines() == [
        f"This process has other code than the learner: {present()}, not {theirs}; bring both to the same"
        for theirs in (other, "release 0.0.2, commit unknown")
    ]
    (alarm,) = events.newest()
    assert alarm.is_alarm and "release 0.0.2" in alarm.text, "the other is not so any more"
