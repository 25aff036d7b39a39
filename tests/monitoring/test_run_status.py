"""run_status.py: on a server of its own, with runs and reports as programs write them, and as others may."""

import json
import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.waiting import FOR_ROUND, FOR_WEIGHTS
from rainbow_iqn_apex.memory.broker import reports
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import InferenceServers
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.monitoring.terminal.show import ServerReader, text_of
from tests.conftest import RedisServer
from tests.memory.links import write_run
from tests.monitoring.written_run import PLAYED, VALUES, WrittenRun, look, overview, status
from tests.processes import Processes, run
from tests.small import CARTPOLE, TINY
from tests.system import LEARNER, Run
from tests.terminal import Terminal


def test_a_server_without_a_run_is_healthy(own_server: RedisServer) -> None:
    assert status(own_server) == (0, f"no run on localhost:{own_server.port}\n", "")


def test_all_processes_of_several_runs_are_shown(own_server: RedisServer, own_client: Client) -> None:
    for name in ("pong", "qbert"):
        WrittenRun(own_client, name)
    code, out, errors = status(own_server)
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
    assert "qbert" not in status(own_server, "--run-name", "pong").out
    assert status(own_server, "--run-name", "other")[:2] == (1, "run other\n! the server has no run of this name\n\n")


SERVED = {
    "actor/version": 40.0, "inference/clients": 5.0, "inference/requests": 9e4, "inference/batch": 12.25,
    "inference/latency": 0.0031, "inference/slowest": 0.0408, "process/memory": 5e8,
}  # fmt: skip


def test_inference_servers_are_shown(own_server: RedisServer, own_client: Client) -> None:
    # Mutations: take the actors' keys for the servers'; an alarm about a server that has left; none about a silent one.
    written = WrittenRun(own_client, "pong")
    servers = InferenceServers(own_client, "pong", written.keys.run_id, 1)
    for number in (0, 3):
        servers.enlist(number)
        written.report("inference server", number, SERVED)
    code, out, _ = status(own_server)
    assert code == 0
    assert re.search(r"(?m)^inference server 0 +working +40 +1 +500 MB +\d s +1234 +here$", out)
    told = "5 actors ask, batches of 12.2 environments, answers after 3.1 ms (99 %: 40.8 ms)"
    assert [line for line in out.splitlines() if "actors ask" in line] == [
        f"inference server {number}: {told}" for number in (0, 3)
    ]
    (pong,) = json.loads(status(own_server, "--json").out)["runs"]
    *_, last = pong["processes"]
    assert (last["role"], last["number"], last["rate"], last["metrics"]) == ("inference server", 3, None, SERVED)
    written.report("inference server", 3, SERVED, ended=True)
    assert status(own_server).code == 0, "it has left, and its actors have gone to another"
    written.report("inference server", 0, SERVED, age=20)
    code, out, _ = status(own_server)
    assert code == 1 and re.search(r"(?m)^! inference server 0 has been silent for \d\d s$", out)
    assert "actors ask" not in out


def test_a_server_of_many_runs_is_healthy(own_client: Client) -> None:
    # Mutation: call it a failure that not all are shown.
    for number in range(53):
        WrittenRun(own_client, f"run-{number}", nb_actor=0)
    state = look(own_client)
    assert state.healthy and len(state.runs) == 50
    assert text_of(state)[-1] == "3 more runs are not shown; --run-name shows one"


def test_nobody_is_missing_in_a_run_that_is_over(own_client: Client) -> None:
    # Mutations: expect reports of it, which are kept for a day; leave out those that are there.
    written = WrittenRun(own_client, "pong")
    write_run(own_client, "pong", RunStatus(written.keys.run_id, "finished", {"nb_actor": 3}, 400, 500), {})
    for key in (written.keys.learner_report, written.keys.report(0), written.keys.report(1)):
        own_client.delete(key)
    assert [(process.title, process.state) for process in overview(own_client).processes] == [("learner", "left")]
    written.report("actor", 1, PLAYED, ended=True)
    shown = overview(own_client).processes
    assert [(process.title, process.state) for process in shown] == [("learner", "left"), ("actor 1", "left")]


def test_all_runs_are_read_on_one_connection(own_client: Client) -> None:
    for name in ("pong", "qbert", "breakout"):
        WrittenRun(own_client, name)
    before = len(own_client.client_list())
    with closing(ServerReader(own_client, "here", "")) as reader:
        assert len(reader.look().runs) == 3
        assert len(own_client.client_list()) == before + 1


def test_json_has_the_names_that_are_promised(own_server: RedisServer, own_client: Client) -> None:
    WrittenRun(own_client, "pong")
    code, out, _ = status(own_server, "--json")
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


def test_an_actor_that_waits_for_deleted_messages_is_told(own_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: a log whose messages are all read; one that holds unread messages; entries of any size.
    written = WrittenRun(own_client, "pong")
    written.report("actor", 0, PLAYED, waits_for="the learner to read this actor's experience")
    log = written.keys.log(0)
    for number in range(1, 8):
        own_client.xadd(log, {"m": b""}, id=f"{number}-0")

    def alerts(read: int | bytes) -> tuple[str, ...]:
        own_client.hset(written.keys.run, written.keys.read_field(0), read)
        return overview(own_client).alerts

    assert alerts(read=3) == alerts(read=7) == ()
    own_client.xdel(log, *(f"{number}-0" for number in range(4, 8)))
    assert alerts(read=3) == ("actor 0 waits for unread messages that have gone from Redis",)
    assert alerts(read=b"9" * 5000) == (), "no learner has written that"
    own_client.xtrim(log, maxlen=0, approximate=False)
    assert alerts(read=3) == ("actor 0 waits for unread messages that have gone from Redis",)
    assert alerts(read=7) == ()
    written.report("actor", 1, PLAYED, waits_for="the learner to read this actor's experience")
    own_client.xadd(written.keys.log(1), {"m": bytes(10_000)}, id="1-0")
    own_client.xadd(written.keys.log(1), {"m": b""}, id="2-0")
    own_client.xdel(written.keys.log(1), "2-0")
    own_client.hset(written.keys.run, written.keys.read_field(1), 1)
    assert alerts(read=3) == ("actors 0, 1 wait for unread messages that have gone from Redis",)
    monkeypatch.setattr(reports, "READ_BYTES", 1000)
    assert alerts(read=3) == ("actor 0 waits for unread messages that have gone from Redis",), "too much to read"
    with closing(reports.ReportStore(own_client, written.keys)) as store:
        assert store.server({0: 3, 1: 0})[2:] == (0, 4), "of the log of actor 0"


def test_many_that_are_missing_are_told_in_one_line(own_client: Client) -> None:
    # Mutation: a line for each process.
    written = WrittenRun(own_client, "pong", nb_actor=10**9)
    own_client.delete(written.keys.report(1))
    for actor in (2, 3):
        written.report("actor", actor, PLAYED, age=20 + actor)
    missing, silent = overview(own_client).alerts
    assert missing == "actors 1, 4, 5, 6 and 4089 more have not reported"
    assert re.fullmatch(r"actors 2, 3 have been silent for up to \d\d s", silent)


def test_nobody_is_missing_just_after_a_start(own_server: RedisServer, own_client: Client) -> None:
    # Mutations: no state "starting"; one that outlasts the learner's first 30 seconds, or is that of newer reports.
    written = WrittenRun(own_client, "pong")

    def states() -> list[str]:
        return [process.state for process in overview(own_client).processes]

    written.report("learner", 0, VALUES, began=2)
    own_client.delete(written.keys.report(0))
    written.report("actor", 1, PLAYED, age=25)
    assert (states(), status(own_server).code) == (["working", "starting", "starting"], 0)
    written.report("learner", 0, VALUES, began=22)
    written.report("actor", 1, PLAYED, age=17)
    assert states() == ["working", "starting", "silent"]
    written.report("learner", 0, VALUES, began=40)
    assert states() == ["working", "missing", "silent"]
    written.report("learner", 0, VALUES, age=60)
    for ago, learner in ((0, "starting"), (40, "silent")):
        record = RunStatus("id-pong", "starting", {"nb_actor": 1}, 4, 5, written=int(time.time()) - ago)
        write_run(own_client, "pong", record, {})
        assert states()[0] == learner


def test_processes_that_wait_for_each_other_are_in_lockstep(own_server: RedisServer, own_client: Client) -> None:
    # Mutations: count an actor that makes no steps; an actor that waits while the learner works.
    written, learner = WrittenRun(own_client, "pong"), VALUES | {"rollout/ep_rew_mean": 12.4}
    awaited = f"{FOR_WEIGHTS}42"
    written.report("learner", 0, learner, waits_for=f"actor 0{FOR_ROUND}41")
    written.report("actor", 0, PLAYED | {"actor/steps_per_second": 0.0}, waits_for=awaited)
    code, out, _ = status(own_server)
    assert code == 0
    assert re.search(r"(?m)^learner +lockstep .* here$", out)
    assert re.search(rf"(?m)^actor 0 +waiting .* {awaited}$", out), "it is stuck"
    assert re.search(r"(?m)^actor 1 +lockstep .* here$", out)
    written.report("learner", 0, learner)
    assert re.search(r"(?m)^learner +working .*\n.*\nactor 1 +waiting ", status(own_server).out)


@pytest.mark.parametrize("nb_actor", [1, 2])
def test_who_has_left_before_a_resume_is_no_alarm_in_its_first_frames(own_client: Client, nb_actor: int) -> None:
    # Mutations: an alarm about an actor beyond --nb-actor; a learner that counts as gone until it reports.
    written, now = WrittenRun(own_client, "pong"), time.time()
    written.report("learner", 0, VALUES, age=20, ended=True, ago=20)
    for actor in (0, 1):
        written.report("actor", actor, PLAYED, age=20, ended=True, ago=20)
        own_client.xadd(written.keys.actors, {"actor": actor})
    record = RunStatus("id-pong", "running", {"nb_actor": nb_actor, "T_max": 1000}, 400, 500, written=int(now))
    write_run(own_client, "pong", record, {})

    def seen() -> tuple[list[str], tuple[str, ...]]:
        pong = overview(own_client)
        return [process.state for process in pong.processes], pong.alerts

    assert seen() == (["starting"] * (1 + nb_actor), ())
    written.report("learner", 0, VALUES, began=2)
    assert seen() == (["working"] + ["starting"] * nb_actor, ())
    written.report("learner", 0, VALUES, began=300)
    left = "actor 0 has left" if nb_actor == 1 else "actors 0, 1 have left"
    assert seen() == (["working"] + ["left"] * nb_actor, (left,))
    written.report("learner", 0, VALUES, age=0, ended=True, ago=-5)
    assert seen()[1][0].endswith(("learner, actor 0 have left", "learner, actors 0, 1 have left"))


def test_an_inference_server_of_an_earlier_learner_is_no_alarm(own_client: Client) -> None:
    # Mutation: show all that have ever reported.
    written = WrittenRun(own_client, "pong")
    InferenceServers(own_client, "pong", written.keys.run_id, 1).enlist(0)
    written.report("inference server", 0, SERVED, age=90)
    for began, seen in ((60, 0), (300, 1)):
        written.report("learner", 0, VALUES, began=began)
        found = overview(own_client)
        assert sum(process.role == "inference server" for process in found.processes) == seen
        assert any("inference server 0 has been silent" in alert for alert in found.alerts) == bool(seen)


def test_a_run_that_nobody_has_led_for_a_day_is_abandoned(own_server: RedisServer, own_client: Client) -> None:
    # Mutation: a run whose learner still reports.
    written, now = WrittenRun(own_client, "pong"), int(time.time())
    for hours, code in ((23, 1), (25, 0)):
        for key in (written.keys.learner_report, written.keys.report(0), written.keys.report(1)):
            own_client.delete(key)
        record = RunStatus("id-pong", "running", {"nb_actor": 2, "T_max": 1000}, 400, 500, written=now - hours * 3600)
        write_run(own_client, "pong", record, {})
        found = status(own_server)
        assert (found.code, "! " in found.out) == (code, bool(code))
        assert f"run pong: {'running' if code else 'abandoned'}, T = 400" in found.out
    assert json.loads(status(own_server, "--json").out)["runs"][0]["status"] == "abandoned"
    written.report("learner", 0, VALUES)
    assert "run pong: running" in status(own_server).out, "its clock may be wrong"


def test_all_that_is_wrong_is_named(own_server: RedisServer, own_client: Client) -> None:
    written = WrittenRun(own_client, "pong", nb_actor=3)
    written.report("actor", 1, PLAYED, age=20)
    written.report("learner", 0, VALUES | {"train/n_updates": 700.0, "share/wait": 0.95})
    code, out, errors = status(own_server)
    assert (code, errors) == (1, "")
    for told in (r"actor 1 has been silent for \d\d s", "actor 2 has not reported", "the learner is starved"):
        assert re.search(rf"(?m)^! {told}", out)


@pytest.mark.parametrize(("updates", "is_starved"), [(0, False), (250, False), (300, True), (1e6, True)])
def test_a_learner_counts_as_starved_after_half_a_minute_of_updates(
    own_client: Client, updates: float, is_starved: bool
) -> None:
    # Mutation: judge by the learner's age, of which its actors need the first half a minute to start.
    written = WrittenRun(own_client, "pong")
    written.report("learner", 0, VALUES | {"train/n_updates": updates, "share/wait": 0.95}, began=40)
    assert any("the learner is starved" in alert for alert in overview(own_client).alerts) == is_starved


def test_a_server_that_goes_away_is_waited_for(
    own_server: RedisServer, own_client: Client, processes: Processes
) -> None:
    WrittenRun(own_client, "pong")
    watching = processes.start("run_status.py", "--port-redis", own_server.port, "--json", "--watch")
    watching.wait_for('"healthy": true')
    own_server.stop()
    watching.wait_for('"failure": "the Redis server does not answer')
    watching.press_ctrl_c()
    assert watching.end()[::2] == (1, "")


def test_a_terminal_shows_a_table_until_ctrl_c(own_server: RedisServer, own_client: Client) -> None:
    WrittenRun(own_client, "pong")
    with Terminal(["run_status.py", "--watch", "-p_red", str(own_server.port)]) as terminal:
        terminal.wait_for(r"actor 1 +waiting +311 steps/s .*\n")
        terminal.wait_for(r"actor 1: waiting for the learner to publish weights version 42")
        own_client.delete(Keys("pong", "id-pong").report(0))
        terminal.wait_for("! actor 0 has not reported")
        terminal.type("\x03")
        assert terminal.finish() == 1
        assert (terminal.output, terminal.display.cursor_is_visible) == ("", True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--port-redis", "0"], "--port-redis"),
        (["--run-name", "x:log:y"], "--run-name: expected at most 128 letters, digits,"),
        (["--host-redis", "a", "--redis-url", "redis://b"], "--host-redis, --port-redis: "),
        (["--host-redis", "redis://u:s3cret@b"], "--host-redis: expected the name or address of a machine"),
        (["--redis-url", "redis://u:s3cret@b"], "--redis-url: must not hold a password"),
        (["redis://u:s3cret@b"], "redis://***@b: no such option; --help lists all"),
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
def test_a_killed_actor_of_a_real_run_is_named(own_server: RedisServer, tmp_path: Path) -> None:
    options = [*CARTPOLE, *TINY, *"--nb-actor 2 --learn-start 200 --log-interval 200".split()]
    with Run(own_server.port, "real", tmp_path / "results", options) as real:
        learner, _, second = (real.start(who) for who in (LEARNER, "0", "1"))
        learner.wait_for("00 / 50000000\n")
        code, out, _ = status(own_server)
        assert code == 0, out
        second.kill()
        learner.wait_until(lambda: "! actor 1 has been silent for" in status(own_server).out, "the alert")
        code, out, _ = status(own_server)
        assert code == 1
        assert re.search(r"(?m)^actor 1 +silent ", out)
        learner.terminate()
        assert learner.finish() == 0
        code, out, _ = status(own_server)
        assert (code, out.startswith("run real: stopped, ")) == (0, True), (
            "nothing is wrong with a run that was stopped"
        )
