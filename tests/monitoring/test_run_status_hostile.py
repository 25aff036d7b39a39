"""run_status.py where somebody else has written reports and records, or has taken a right away."""

import io
import json
import re

import pytest
from rich.console import Console

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.monitoring.terminal.show import ServerState, picture_of, text_of
from tests.conftest import RedisServer
from tests.monitoring.written_run import WrittenRun, look, status

_LEFT_OUT = "3 records not shown, of names that no run may have: another client has written them (docs/access.md)"
HOSTILE = {
    "no JSON": b"\xff\x1b[2J",
    "huge": b"[" * 10_000_000,
    "deep": b"[" * 30_000,
    "other fields": b"{}",
    "a number": b"7",
    "an endless number": b'{"role":' + b"9" * 20_000 + b"}",
}


@pytest.mark.parametrize("how", [*HOSTILE, "another's report", "other types"])
def test_hostile_reports_count_as_missing(own_client: Client, how: str) -> None:
    # Mutation: let ReportError pass.
    written = WrittenRun(own_client, "pong")
    key = written.keys.report(1)
    if how == "another's report":
        own_client.set(key, own_client.get(written.keys.report(0)) or b"")
    elif how == "other types":
        own = json.loads(own_client.get(key) or b"")
        own_client.set(key, json.dumps(own | {"values": {"process/memory": [1]}, "events": 3, "role": {}}))
    else:
        own_client.set(key, HOSTILE[how])
    seen = look(own_client)
    assert not seen.healthy
    (pong,) = seen.runs
    assert pong.overview and [process.state for process in pong.overview.processes] == ["working", "working", "missing"]
    assert "! actor 1 has not reported" in text_of(seen)
    assert_harmless(seen)


@pytest.mark.parametrize("right", ["pttl", "getrange", "hmget"])
def test_a_right_that_is_lacking_is_named(own_server: RedisServer, own_client: Client, right: str) -> None:
    # Mutation: take any error for no report.
    WrittenRun(own_client, "pong")
    own_client.execute_command("ACL", "SETUSER", "default", f"-{right}")
    code, out, errors = status(own_server)
    assert (code, errors, len(out.splitlines())) == (1, "", 3)
    assert re.search(rf"run pong\n! .*permission.* '{right}' command", out)


def test_texts_and_numbers_of_others_are_harmless(own_client: Client) -> None:
    # Mutation: take every key behind `riqx:{` for a run's record.
    written = WrittenRun(own_client, "pong")
    own = json.loads(own_client.get(written.keys.report(1)) or b"")
    values = dict.fromkeys(own["values"], -1e299) | {"time/remaining": 1e299}
    texts = {"host": "\x1b]0;title\x07", "waits_for": "\x1b[2J\r\nfoo", "values": values, "process": 10**10}
    for key, role in ((written.keys.report(1), {}), (written.keys.learner_report, {"role": "learner", "number": 0})):
        own_client.set(key, json.dumps(own | texts | role), keepttl=True)
    for name in ("\x1b[2J", "x:log:1", "x}:log:{y"):
        own_client.hset(f"riqx:{{{name}}}", mapping={"run_id": "id", "status": "running"})
    own_client.set("riqx:{text}", "no record")
    own_client.hset("riqx:{damaged}", mapping={"run_id": "x", "status": "\x1b[2J"})
    seen = look(own_client)
    assert [(run.name, bool(run.failure), run.healthy) for run in seen.runs] == [
        ("damaged", True, False), ("pong", False, True), ("text", True, False),
    ]  # fmt: skip
    assert text_of(seen)[-1] == _LEFT_OUT and seen.content()["note"] == _LEFT_OUT
    assert_harmless(seen)


def assert_harmless(state: ServerState) -> None:
    """Nothing that is shown has a character that a terminal would obey."""
    console = Console(width=80, record=True, file=io.StringIO(), color_system=None)
    console.print(picture_of(state))
    texts = [*text_of(state), *(drawn := console.export_text().split("\n"))]
    assert len(drawn) > 3
    assert all(line.isprintable() for line in texts)
    assert json.dumps(state.content(), allow_nan=False).isprintable()
