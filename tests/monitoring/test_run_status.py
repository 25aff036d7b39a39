"""run_status.py: on a server of its own, with runs and reports as programs write them, and as others may."""

import io
import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from memory.broker.connection import Client, connect
from memory.broker.reports import ReportStore
from memory.broker.run_status import RunStatus, write_run
from memory.broker.transport import Keys
from monitoring.report import Report, Role, encode
from monitoring.terminal.server_look import Look, ServerReader
from monitoring.terminal.show import picture_of, text_of
from tests.conftest import RedisServer
from tests.processes import Ended, Processes, run
from tests.small import CARTPOLE, TINY
from tests.system import LEARNER, Run
from tests.terminal import Terminal

KEPT_S = 24 * 3600
VALUES = {"train/version": 41.0, "train/updates_per_second": 9.24, "redis/unread": 3.0, "process/memory": 1.2e9}
PLAYED = {"actor/version": 39.0, "actor/steps_per_second": 311.0, "actor/unread": 1.0, "process/memory": 4e8}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.close()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Client]:
    with connect("127.0.0.1", server.port) as client:
        yield client


class WrittenRun:
    """A run as its processes have written it: a learner and two actors."""

    def __init__(self, client: Client, name: str, nb_actor: int = 2) -> None:
        self.client, self.keys = client, Keys(name, f"id-{name}")
        settings = {"nb_actor": nb_actor, "T_max": 1000}
        write_run(client, name, RunStatus(self.keys.run_id, "running", settings, 400, 500), {})
        self.report("learner", 0, VALUES | {"time/remaining": 750.0, "rollout/ep_rew_mean": 12.4})
        self.report("actor", 0, PLAYED)
        self.report("actor", 1, PLAYED | {"actor/version": 41.0}, waits_for="the learner to publish weights version 42")

    def report(
        self,
        role: Role,
        number: int,
        values: dict[str, float],
        age: float = -60,
        waits_for: str = "",
        began: float = 60,
    ) -> None:
        """Write a report of this age; one below 0 stays new for as long, as a program may need to start."""
        now = time.time()
        report = Report(role, number, "here", 1234 + number, now - began, now, waits_for=waits_for, values=values)
        actor = None if role == "learner" else number
        with closing(ReportStore(self.client, self.keys)) as store:
            store.write(actor, encode(report))
        self.client.expire(self.keys.report(number) if role == "actor" else self.keys.learner_report, int(KEPT_S - age))


def status(server: RedisServer, *options: str) -> Ended:
    return run("run_status.py", "--port-redis", str(server.port), *options)


def look(client: Client) -> Look:
    with closing(ServerReader(client, "here", "")) as reader:
        return reader.look()


def test_a_server_without_a_run_is_healthy(server: RedisServer) -> None:
    assert status(server) == (0, f"no run on localhost:{server.port}\n", "")


def test_all_processes_of_several_runs_are_shown(server: RedisServer, client: Client) -> None:
    for name in ("pong", "qbert"):
        WrittenRun(client, name)
    code, out, errors = status(server)
    assert (code, errors) == (0, "")
    pong, qbert, *_ = out.split("\n\n")
    headline, header, learner, ahead, waits = pong.splitlines()
    assert headline == "run pong: running, T = 400 of 1,000 (40 %), 12 min left, score 12.40"
    assert header.split("  ")[0] == "process"
    assert re.fullmatch(r"learner +working +9\.2 upd/s +41 +3 +1\.2 GB +\d s +1234 +here", learner)
    assert re.fullmatch(r"actor 0 +working +311 steps/s +39 +2 +1 +400 MB +\d s +1234 +here", ahead)
    assert re.fullmatch(r"actor 1 +waiting .* the learner to publish weights version 42", waits)
    assert waits.index("the learner") == header.index("waits for"), "the columns are aligned"
    assert "run qbert: running" in qbert
    assert "qbert" not in status(server, "--run-name", "pong").out
    assert status(server, "--run-name", "other")[:2] == (1, "run other\n! the server has no run of this name\n\n")


def test_all_runs_are_read_on_one_connection(client: Client) -> None:
    for name in ("pong", "qbert", "breakout"):
        WrittenRun(client, name)
    before = len(client.client_list())
    with closing(ServerReader(client, "here", "")) as reader:
        assert len(reader.look().runs) == 3
        assert len(client.client_list()) == before + 1


def test_json_has_the_names_that_are_promised(server: RedisServer, client: Client) -> None:
    WrittenRun(client, "pong")
    code, out, _ = status(server, "--json")
    found = json.loads(out)
    (pong,) = found["runs"]
    learner, first, _ = pong["processes"]
    for names in (found, pong, learner):
        assert all(re.search(rf'"{name}"', HELP) for name in names), "documented in --help"
    assert (code, found["healthy"], pong["healthy"], pong["alerts"], pong["t_learner"]) == (0, True, True, [], 400)
    assert (learner["role"], learner["rate"], learner["rate_unit"], learner["lag"]) == (
        "learner",
        9.24,
        "updates/s",
        None,
    )
    assert (first["number"], first["version"], first["lag"], first["metrics"]) == (0, 39, 2, PLAYED)


HELP = run("run_status.py", "--help").out


def test_many_that_are_missing_are_told_in_one_line(client: Client) -> None:
    # Mutation: a line for each process.
    written = WrittenRun(client, "pong", nb_actor=10**9)
    client.delete(written.keys.report(1))
    for actor in (2, 3):
        written.report("actor", actor, PLAYED, age=20 + actor)
    (pong,) = look(client).runs
    assert pong.overview
    missing, silent = pong.overview.alerts
    assert missing == "actors 1, 4, 5, 6 and 4089 more have not reported"
    assert re.fullmatch(r"actors 2, 3 have been silent for up to \d\d s", silent)


def test_nobody_is_missing_just_after_a_start(server: RedisServer, client: Client) -> None:
    # Mutations: no state "starting"; one that outlasts the learner's first 30 seconds, or is that of newer reports.
    written = WrittenRun(client, "pong")

    def states() -> list[str]:
        (pong,) = look(client).runs
        return [process.state for process in pong.overview.processes] if pong.overview else []

    written.report("learner", 0, VALUES, began=2)
    client.delete(written.keys.report(0))
    written.report("actor", 1, PLAYED, age=25)
    assert (states(), status(server).code) == (["working", "starting", "starting"], 0)
    written.report("learner", 0, VALUES, began=22)
    written.report("actor", 1, PLAYED, age=17)
    assert states() == ["working", "starting", "silent"]
    written.report("learner", 0, VALUES, began=40)
    assert states() == ["working", "missing", "silent"]
    written.report("learner", 0, VALUES, age=60)
    for ago, learner in ((0, "starting"), (40, "silent")):
        record = RunStatus("id-pong", "starting", {"nb_actor": 1}, 4, 5, written=int(time.time()) - ago)
        write_run(client, "pong", record, {})
        assert states()[0] == learner


def test_a_run_that_nobody_has_led_for_a_day_is_abandoned(server: RedisServer, client: Client) -> None:
    # Mutation: a run whose learner still reports.
    written, now = WrittenRun(client, "pong"), int(time.time())
    for hours, code in ((23, 1), (25, 0)):
        for key in (written.keys.learner_report, written.keys.report(0), written.keys.report(1)):
            client.delete(key)
        record = RunStatus("id-pong", "running", {"nb_actor": 2, "T_max": 1000}, 400, 500, written=now - hours * 3600)
        write_run(client, "pong", record, {})
        found = status(server)
        assert (found.code, "! " in found.out) == (code, bool(code))
        assert f"run pong: {'running' if code else 'abandoned'}, T = 400" in found.out
    assert json.loads(status(server, "--json").out)["runs"][0]["status"] == "abandoned"
    written.report("learner", 0, VALUES)
    assert "run pong: running" in status(server).out, "its clock may be wrong"


@pytest.mark.parametrize("how", ["killed", "never started", "starved"])
def test_what_is_wrong_is_named(server: RedisServer, client: Client, how: str) -> None:
    written = WrittenRun(client, "pong")
    if how == "killed":
        written.report("actor", 1, PLAYED, age=20)
    elif how == "starved":
        written.report("learner", 0, VALUES | {"train/n_updates": 7.0, "share/wait": 0.95})
    else:
        client.delete(written.keys.report(1))
    told = {
        "killed": r"actor 1 has been silent for \d\d s",
        "never started": "actor 1 has not reported",
        "starved": "starved",
    }
    code, out, errors = status(server)
    assert (code, errors) == (1, "")
    assert re.search(rf"(?m)^! .*{told[how]}", out)


HOSTILE = {
    "no JSON": b"\xff\x1b[2J",
    "huge": b"[" * 10_000_000,
    "deep": b"[" * 30_000,
    "other fields": b"{}",
    "a number": b"7",
    "an endless number": b'{"role":' + b"9" * 20_000 + b"}",
}


@pytest.mark.parametrize("how", [*HOSTILE, "a list", "another's report", "other types"])
def test_hostile_reports_count_as_missing(client: Client, how: str) -> None:
    # Mutation: let ReportStore.read raise for a key of another type.
    written = WrittenRun(client, "pong")
    key = written.keys.report(1)
    if how == "a list":
        client.delete(key)
        client.rpush(key, "x")
    elif how == "another's report":
        client.set(key, client.get(written.keys.report(0)) or b"")  # type: ignore[arg-type]
    elif how == "other types":
        own = json.loads(client.get(key) or b"")  # type: ignore[arg-type]
        client.set(key, json.dumps(own | {"values": {"process/memory": [1]}, "events": 3, "role": {}}))
    else:
        client.set(key, HOSTILE[how])
    seen = look(client)
    assert not seen.healthy
    (pong,) = seen.runs
    assert pong.overview and [process.state for process in pong.overview.processes] == ["working", "working", "missing"]
    assert "! actor 1 has not reported" in text_of(seen)
    assert_harmless(seen)


@pytest.mark.parametrize("right", ["pttl", "getrange", "hmget"])
def test_a_right_that_is_lacking_is_named(server: RedisServer, client: Client, right: str) -> None:
    # Mutation: take any error for no report.
    WrittenRun(client, "pong")
    client.execute_command("ACL", "SETUSER", "default", f"-{right}")
    code, out, errors = status(server)
    assert (code, errors, len(out.splitlines())) == (1, "", 3)
    assert re.search(rf"run pong\n! .*permission.* '{right}' command", out)


@pytest.mark.parametrize("T_max", ["1" + "0" * 400, "NaN", "-Infinity", "1e400", "[1]"])
def test_a_setting_that_nobody_can_have_given_damages_its_run_alone(
    server: RedisServer, client: Client, T_max: str
) -> None:
    # Mutation: take any number.
    for name in ("pong", "qbert"):
        WrittenRun(client, name)
    client.hset("riqx:{pong}", "settings", f'{{"T_max": {T_max}}}')
    code, out, errors = status(server)
    assert (code, errors) == (1, "")
    assert re.search(
        r"run pong\n! the record of run 'pong' .* is damaged: its settings are no .*\n\nrun qbert: run", out
    )


def test_texts_and_numbers_of_others_are_harmless(client: Client) -> None:
    written = WrittenRun(client, "pong")
    own = json.loads(client.get(written.keys.report(1)) or b"")  # type: ignore[arg-type]
    values = dict.fromkeys(own["values"], -1e299) | {"time/remaining": 1e299}
    texts = {"host": "\x1b]0;title\x07", "waits_for": "\x1b[2J\r\nfoo", "values": values, "process": 10**10}
    for key, role in ((written.keys.report(1), {}), (written.keys.learner_report, {"role": "learner", "number": 0})):
        client.set(key, json.dumps(own | texts | role), keepttl=True)
    client.set("riqx:{\x1b[2J}", "a name")
    client.set("riqx:{text}", "no record")
    client.hset("riqx:{damaged}", mapping={"run_id": "x", "status": "\x1b[2J"})
    seen = look(client)
    assert [(run.name, bool(run.failure), run.healthy) for run in seen.runs] == [
        ("damaged", True, False), ("pong", False, True), ("text", True, False),
    ]  # fmt: skip
    assert_harmless(seen)


def assert_harmless(look: Look) -> None:
    """Nothing that is shown has a character that a terminal would obey."""
    console = Console(width=80, record=True, file=io.StringIO(), color_system=None)
    console.print(picture_of(look))
    texts = [*text_of(look), *(drawn := console.export_text().split("\n"))]
    assert len(drawn) > 3
    assert all(line.isprintable() for line in texts)
    assert json.dumps(look.content(), allow_nan=False).isprintable()


def test_a_server_that_goes_away_is_waited_for(server: RedisServer, client: Client, processes: Processes) -> None:
    WrittenRun(client, "pong")
    watching = processes.start("run_status.py", "--port-redis", server.port, "--json", "--watch")
    watching.wait_for('"healthy": true')
    server.stop()
    watching.wait_for('"failure": "the Redis server does not answer')
    watching.press_ctrl_c()
    assert watching.end()[::2] == (1, "")


def test_a_terminal_shows_a_table_until_ctrl_c(server: RedisServer, client: Client) -> None:
    WrittenRun(client, "pong")
    with Terminal(["run_status.py", "--watch", "-p_red", str(server.port)]) as terminal:
        terminal.wait_for(r"actor 1 +waiting +311 steps/s .*\n")
        terminal.wait_for(r"actor 1: waiting for the learner to publish weights version 42")
        client.delete(Keys("pong", "id-pong").report(0))
        terminal.wait_for("! actor 0 has not reported")
        terminal.type("\x03")
        assert terminal.end() == 1
        assert (terminal.text, terminal.display.cursor_is_visible) == ("", True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--port-redis", "0"], "--port-redis"),
        (["--host-redis", "a", "--redis-url", "redis://b"], "--host-redis, --port-redis: "),
        (["--redis-url", "redis://u:s3cret@b"], "--redis-url: must not hold a password"),
        (["redis://u:s3cret@b"], "redis://***@b: no such option, see --help"),
        (["--wacth"], "--wacth: no such option; did you mean --watch?"),
        (["--port-redis", "1"], "no Redis server answers"),
    ],
)
def test_a_bad_command_is_refused_in_one_line(options: list[str], told: str) -> None:
    code, out, errors = run("run_status.py", *options)
    assert (code, out, errors.count("\n")) == (2, "", 1)
    assert told in errors and "s3cret" not in errors


@pytest.mark.slow
@pytest.mark.redis
def test_a_killed_actor_of_a_real_run_is_named(server: RedisServer, tmp_path: Path) -> None:
    options = [*CARTPOLE, *TINY, *"--nb-actor 2 --learn-start 200 --log-interval 200".split()]
    with Run(server.port, "real", tmp_path / "results", options) as real:
        learner, _, second = (real.start(who) for who in (LEARNER, "0", "1"))
        learner.wait_for("00 / 50000000\n")
        code, out, _ = status(server)
        assert code == 0, out
        second.kill()
        learner.wait_until(lambda: "! actor 1 has been silent for" in status(server).out, "the alert")
        code, out, _ = status(server)
        assert code == 1
        assert re.search(r"(?m)^actor 1 +silent ", out)
        learner.terminate()
        assert learner.finish() == 0
        code, out, _ = status(server)
        assert (code, out.startswith("run real: stopped, ")) == (0, True), (
            "nothing is wrong with a run that was stopped"
        )
