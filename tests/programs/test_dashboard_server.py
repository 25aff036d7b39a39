"""The dashboard's server: who may read from it, what its options refuse, and how it bears what peers have written."""

import asyncio
import http.cookiejar
import json
import os
import resource
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from math import inf, nan
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import Owner, RunStatus
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.monitoring.overview import Overview, Process
from rainbow_iqn_apex.monitoring.report import Event, Report, encode
from rainbow_iqn_apex.monitoring.sinks.sink import RunInfo
from rainbow_iqn_apex.monitoring.sinks.videos import FilmFiles
from rainbow_iqn_apex.programs.dashboard import server
from rainbow_iqn_apex.programs.dashboard.server import present, task_of
from rainbow_iqn_apex.programs.dashboard.watcher import LastOverview
from tests.dashboard import ask, moment, start
from tests.dashboard import write_run as write_files
from tests.deadline import Deadline, wait_until
from tests.memory.links import write_run
from tests.monitoring.films import film
from tests.monitoring.sinks.moments import moment as a_moment
from tests.processes import Processes, run

pytestmark = pytest.mark.redis


@pytest.fixture
def folder(tmp_path: Path, run_name: str) -> Path:
    folder = tmp_path / run_name  # a test of a like name has perhaps had this path before, and its run is there still
    folder.mkdir()
    return folder


@pytest.fixture
def store(client: Client, run_name: str, folder: Path) -> Iterator[ReportStore]:
    """A run in Redis that nobody plays, with a learner that has reported once."""
    settings = {"game": "pong", "env": "atari", "agent": "rainbow_iqn", "nb_actor": 1, "T_max": 1000}
    write_run(client, run_name, RunStatus("id", "running", settings, 0, 0, owner=Owner.of(folder), written=5), {})
    with closing(ReportStore(client, Keys(run_name, "id"))) as store:
        store.write(None, encode(report(began=1.0)))
        yield store


def test_the_files_of_a_run_are_found_by_the_name_that_they_have() -> None:
    # Mutation: take what follows the first colon as it is.
    record = RunStatus("id", "running", {"game": "pong", "env": "gymnasium:ale_py:ALE/Pong-v5"}, 0, 0)
    assert task_of(Overview("mine", record, (), (), "running")) == "ale_py-ALE-Pong-v5"


def report(began: float = 1.0, **values: float) -> Report:
    events = (Event(2.0, "<script>alert(1)</script>", True),)
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return Report("learner", 0, "<b>host", 7, began, began + 90, values=named, events=events)


def test_the_page_has_what_the_run_s_processes_tell(
    processes: Processes, store: ReportStore, redis_port: int, run_name: str, folder: Path
) -> None:
    _, address = start(processes, redis_port, folder)

    def now() -> Any:
        return ask(address)

    def states() -> list[str]:
        store.write(None, encode(report()))  # as a process does again and again: one that has not of late is silent
        return [process["state"] for process in now().get("processes", [])]

    wait_until(lambda: states() == ["working", "missing"], "both processes")
    shown = now()
    assert shown["run"]["name"] == run_name, "the run of this folder, though others are on the server"
    assert {"actor 0 has not reported", "<script>alert(1)</script>"} <= set(shown["alerts"])
    store.write(None, encode(report(began=3.0, redis__quarantined=2)))
    wait_until(lambda: "was started again, as process 7" in texts(now()), "the restart")
    store.write(None, encode(report(began=3.0, redis__quarantined=5)))
    wait_until(lambda: "quarantined 3 messages that it could not read" in texts(now()), "the change")
    store.write(None, b"\xff" * 40_000)
    wait_until(lambda: now()["processes"][0]["state"] == "missing", "the damaged report to count as none")


@pytest.mark.parametrize(("t_max", "shown"), [(nan, None), (inf, None), (10**4000, None), (-1, None), (7.0, 7)])
def test_a_length_of_the_run_that_is_none_is_left_out(t_max: float, shown: int | None) -> None:
    # Mutation: hand `T_max` on as it is.
    record = RunStatus("id", "running", {"game": "pong", "T_max": t_max}, 0, 0)
    overview = Overview("run", record, (Process("learner", 0, "missing"),), (), "running")
    found = present(LastOverview(overview, 1.0, ""))
    assert json.loads(json.dumps(found, allow_nan=False))["run"]["t_max"] == shown


def test_an_abandoned_run_is_shown_as_one() -> None:
    # Mutation: the status of its record, which its learner has left as running.
    record = RunStatus("id", "running", {"game": "pong"}, 0, 0)
    overview = Overview("run", record, (Process("learner", 0, "missing"),), (), "abandoned")
    run = present(LastOverview(overview, 1.0, ""))["run"]
    assert (run["status"], run["is_over"]) == ("abandoned", True)


def texts(shown: Any) -> list[str]:
    return [event["text"] for event in shown["events"]]


def test_files_and_events_are_those_of_the_run_on_the_server(
    processes: Processes, client: Client, redis_port: int, run_name: str, folder: Path
) -> None:
    # Mutation: add the events of the files that are shown, or show the files that were written last.
    for number, name in enumerate(("t2", "t3")):
        write_files(folder / name, "pong", 5)
        os.utime(folder / name / "pong.csv", (1e9 + number, 1e9 + number))
        history = json.loads(moment(5, 5)) | {"events": [[5.0, f"of {name}", False]]}
        (folder / name / "pong_metrics.jsonl").write_text(json.dumps(history) + "\n")
    settings = {"game": "pong", "env": "atari", "T_max": 1000}
    record = RunStatus("id", "running", settings, 0, 0, owner=Owner.of(folder / "t2"), written=5)
    write_run(client, run_name, record, {})
    _, address = start(processes, redis_port, folder, "--run-name", run_name)
    wait_until(lambda: ask(address).get("run"), "the run")
    for asked, shown in (("", "t2/pong"), ("?run=t3/pong", "t3/pong"), ("", "t2/pong")):
        found = ask(address, f"api/now{asked}")
        assert (found["files"]["own"], found["files"]["shown"]) == ("t2/pong", shown)
        assert [text for text in texts(found) if text.startswith("of ")] == ["of t2"]
    elsewhere = RunStatus("id", "running", settings, 0, 0, owner=Owner(str(folder / "t2"), "elsewhere"))
    write_run(client, run_name, elsewhere, {})
    wait_until(lambda: ask(address)["files"]["own"] == "", "a run on another machine")
    assert ask(address)["files"]["shown"] == "t3/pong", "the newest"


def test_all_answers_carry_the_policy_and_no_script_is_in_the_page(
    processes: Processes, redis_port: int, folder: Path
) -> None:
    _, address = start(processes, redis_port, folder)
    for path in ("", "static/main.js", "static/../server.py", "static/nothing", "api/now", "elsewhere"):
        try:
            answer: Any = urllib.request.urlopen(address + path, timeout=60)
        except HTTPError as error:
            answer = error
        with answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "script-src 'self';" in policy and "default-src 'none'" in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert (answer.status == 200) == (path in ("", "static/main.js", "api/now")), path
            if not path:
                page = answer.read().decode()
    assert page.count("<script") == page.count(' src="/static/') and " style=" not in page and "http" not in page


def test_a_page_of_somebody_else_cannot_read_under_another_name(
    processes: Processes, redis_port: int, folder: Path
) -> None:
    # Mutation: let every host name pass.
    _, address = start(processes, redis_port, folder)
    with pytest.raises(HTTPError, match="400"):
        ask(address, Host="evil.example")
    assert ask(address, Host="localhost:1")["files"]["runs"] == []


def test_other_machines_need_the_token(processes: Processes, redis_port: int, folder: Path) -> None:
    # Mutation: `Guard` without a comparison.
    process, address = start(processes, redis_port, folder, "--host", "0.0.0.0")
    plain, token = here(address)
    assert len(token) >= 40
    for path, headers in (
        ("", {}),
        ("?token=", {}),
        ("static/main.js", {}),
        ("api/now", {"Cookie": f"dashboard_token_{urlsplit(plain).port}=x"}),
    ):
        with pytest.raises(HTTPError, match="403") as refused:
            ask(plain, path, **headers)
        assert token not in refused.value.read().decode()
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    with browser.open(f"{plain}?token={token}", timeout=60) as page:
        assert page.url == plain and b"<title>" in page.read(), "the token has gone from the address"
    (cookie,) = cookies
    assert cookie.has_nonstandard_attr("HttpOnly") and cookie.get_nonstandard_attr("SameSite") == "strict"
    with browser.open(f"{plain}api/now", timeout=60) as answer:
        assert json.load(answer)["files"]
    assert process.output.count(token) == 1 and token not in process.errors


def here(address: str) -> tuple[str, str]:
    """The address of a dashboard that asks for a token, by this machine's own name, and the token."""
    plain, _, token = address.partition("?token=")
    return f"http://127.0.0.1:{urlsplit(plain).port}/", token


def test_two_dashboards_of_a_machine_do_not_lock_each_other_out(
    processes: Processes, redis_port: int, folder: Path
) -> None:
    # Mutation: name the cookie without the port.
    addresses = [here(start(processes, redis_port, folder, "--host", "0.0.0.0")[1]) for _ in range(2)]
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    for plain, token in addresses:
        browser.open(f"{plain}?token={token}", timeout=60).close()
    for plain, _ in addresses:
        with browser.open(f"{plain}api/now", timeout=60) as answer:
            assert answer.status == 200


def test_only_the_two_videos_of_a_known_run_are_served(processes: Processes, redis_port: int, folder: Path) -> None:
    # Mutation: join the place to the folder's path without a look at the list.
    write_files(folder, "pong", 3)
    sink = FilmFiles(RunInfo("run", "id", folder, "pong", {}))
    sink.take(a_moment(1, films={"best": film(height=105, width=80)}))
    (folder / "secret_best_evaluation.webm").write_bytes(b"secret")
    (folder.parent / "pong_best_evaluation.webm").write_bytes(b"secret")
    process, address = start(processes, redis_port, folder, "--host", "0.0.0.0")
    plain, token = here(address)
    known = {"Cookie": f"dashboard_token_{urlsplit(plain).port}={token}"}
    shown = ask(plain, **known)["files"]["films"]
    assert [(one["place"], one["at"]) for one in shown] == [("best", 1.5e9)]
    video = (folder / "pong_best_evaluation.webm").read_bytes()
    request = urllib.request.Request(f"{plain}api/film?run=pong&place=best", headers=known)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert (answer.headers["Content-Type"], answer.read()) == ("video/webm", video)
    for asked in (
        "run=pong&place=newest", "run=pong&place=../pong_best", "run=secret&place=best", "run=../pong&place=best",
        "run=../results/pong&place=best", "place=best", "run=pong&place=/etc/passwd",
    ):  # fmt: skip
        with pytest.raises(HTTPError, match="404"):
            ask(plain, f"api/film?{asked}", **known)
    with pytest.raises(HTTPError, match="403"):
        ask(plain, "api/film?run=pong&place=best")
    assert process.errors == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--port 70000", "--port: must lie in 0 to 65535"),
        ("--nb-actor 2", "--nb-actor: no such option"),
        ("--host no-such-machine.invalid", "--host: expected an address of this machine"),
        ("--host 192.0.2.1", "--host: expected an address of this machine, got '192.0.2.1' (Cannot assign"),
        ("--redis-url http://x", "--redis-url: expected redis://"),
        ("--redis-url redis://x --port-redis 5", "--host-redis, --port-redis: --redis-url names the Redis server"),
        ("--path-to-results dashboard.py", "--path-to-results: expected a folder"),
        ("--path-to-results nowhere", "--path-to-results: no such folder: nowhere; name the results folder of a run"),
    ],
)
def test_mistakes_are_told_in_a_line(words: str, told: str) -> None:
    (line,) = run("dashboard.py", *words.split()).refused()
    assert line.startswith(f"dashboard.py: error: {told}")


HALF = b"GET /api/now HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


def half_open(address: str) -> socket.socket:
    """Begin a request, and do not end it."""
    place = urlsplit(address)
    connection = socket.create_connection((place.hostname, place.port), timeout=60)
    connection.sendall(HALF)
    return connection


def test_half_open_requests_shut_out_no_browser(processes: Processes, redis_port: int, folder: Path) -> None:
    # Mutation: no bound on connections, with which the process has no file left for a new one.
    write_files(folder, "pong", 3)
    process, address = start(processes, redis_port, folder)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (256, 256))
    with ExitStack() as stack, closing(HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=60)) as browser:
        for _ in range(4):
            for _ in range(100):
                stack.enter_context(half_open(address))
            assert ask(address)["files"]["runs"] == ["pong"]
            browser.request("GET", "/api/now")  # over a new connection, where the one before was closed, as browsers do
            assert browser.getresponse().read()
            browser.close()
        assert psutil.Process(process.pid).num_fds() < 200
    assert process.errors == ""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, threading.Event]]:
    """Run a server of answers, one of which is slow, with a short time for headers."""
    monkeypatch.setattr(server, "_HEADERS_S", 1.0)
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 5)
    done = threading.Event()

    async def slow(_: Request) -> PlainTextResponse:
        await asyncio.to_thread(done.wait, 60)
        return PlainTextResponse("slow")

    async def fast(_: Request) -> PlainTextResponse:
        return PlainTextResponse("fast")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = server.web_server(Starlette(routes=[Route("/slow", slow), Route("/", fast)]))
        thread = threading.Thread(target=program.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", done
        done.set()
        program.should_exit = True
        thread.join()


def rest(connection: socket.socket, trickle: bytes = b"") -> bytes:
    """Return what comes until the server closes the connection, to which a byte is sent now and then."""
    connection.settimeout(0.1)
    found = b""
    deadline = Deadline(60, "the end of a connection")
    with suppress(ConnectionError):
        while True:
            deadline.check()
            with suppress(TimeoutError):
                connection.sendall(trickle)
                if not (more := connection.recv(1000)):
                    break
                found += more
    return found


def test_headers_have_to_come_in_time_and_answers_may_take_longer(web: tuple[str, threading.Event]) -> None:
    # Mutations: no time limit; one that begins again with each byte; one for answers, too; none for a second request.
    address, done = web
    with half_open(address) as first, half_open(address) as second, half_open(address) as slow:
        slow.sendall(b"\r\n\r\nGET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        second.sendall(b"\r\n\r\n" + HALF)
        assert rest(first, b"x") == b""
        assert rest(second, b"x").startswith(b"HTTP/1.1 404")
        done.set()
        assert rest(slow).endswith(b"slow")


def test_of_too_many_connections_the_one_that_asks_nothing_goes(web: tuple[str, threading.Event]) -> None:
    # Mutation: close the oldest, or the newest.
    address, done = web
    place = urlsplit(address)
    assert place.hostname
    with ExitStack() as stack:
        slow = stack.enter_context(closing(HTTPConnection(place.hostname, place.port, timeout=60)))
        slow.request("GET", "/slow")
        for _ in range(20):
            stack.enter_context(half_open(address))
        assert urllib.request.urlopen(address, timeout=60).read() == b"fast"
        done.set()
        assert slow.getresponse().read() == b"slow"


def test_it_stops_in_good_order(processes: Processes, redis_port: int, folder: Path) -> None:
    process, address = start(processes, redis_port, folder)
    assert ask(address)
    process.terminate()
    assert process.end() == (0, process.output, "")
