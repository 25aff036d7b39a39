"""A server in trouble answers each client so: docs/reliability.md has the table, which these tests read.

The proxies of `tests.chaos.resp` give the answers: to a share of the commands, then to all of them.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.scripts import Commit, Scripts
from tests import dashboard
from tests.chaos.resp import ANSWERS, RespProxy, Schedule
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.documents import documents
from tests.processes import Process, Processes
from tests.small import SHORT_CHAIN
from tests.start_script import Workplace
from tests.system import EVALUATORS, LEARNER, Result, System

pytestmark = pytest.mark.redis
EVALUATOR, STATUS, DASHBOARD = EVALUATORS[0], "run_status.py", "dashboard.py"
OPTIONS = [*SHORT_CHAIN, *"--learn-start 300 --log-interval 100 --T-max 2000".split()]
CODE_2 = "exit code 2"


class Row(NamedTuple):
    """A row of the table."""

    line: str  # with which a process waits, and ends
    start: str  # of learner, actors and start script, while the server answers so
    start_line: str
    shown: str  # by run_status.py and the dashboard


def table() -> dict[str, Row]:
    text = documents()["docs/reliability.md"].split("\n## What Redis answers\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"][2:]
    return {name.strip("`"): _row(*cells) for name, *cells in rows}


def _row(line: str, start: str, shown: str) -> Row:
    start, _, start_line = start.partition(", `")
    return Row(line, start, start_line.strip("`") or line, shown)


TABLE = table()


def test_the_table_has_all_answers() -> None:
    assert list(TABLE) == list(ANSWERS)
    assert {row.start for row in TABLE.values()} == {CODE_2, "waits, then exit code 1"}
    assert {row.shown for row in TABLE.values()} == {"the line", "the run", "what failed"}


# --- the quick tier's share ---


def commit_through(server: RedisServer, name: str, run: str) -> int:
    """Commit through a proxy that answers so at times; return how often it did."""
    keys = Keys(run, "id")
    with RespProxy(server.port, Schedule(ANSWERS[name], seed=3)) as proxy:
        with closing(connect("127.0.0.1", proxy.port)) as client:
            proxy.schedule.share = 0.25
            scripts = Scripts(client)
            for number in range(1, 13):
                message = b"%d" % number
                assert scripts.commit(keys, 0, b"token", Commit(number, [message], message), allow_gap=False) is None
                assert client.hget(keys.state(0), "state") == message
            proxy.schedule.share = 0
            log: Any = client.xrange(keys.log(0))
            assert [fields[b"m"] for _, fields in log] == [b"%d" % number for number in range(1, 13)]
        return proxy.schedule.answered.total()


def test_nothing_is_lost_or_doubled(own_server: RedisServer, run_name: str) -> None:
    # Mutation: `trouble_of` that returns None.
    with ThreadPoolExecutor(len(ANSWERS)) as pool:
        done = [pool.submit(commit_through, own_server, name, f"{run_name}{name}") for name in ANSWERS]
        assert min(answered.result() for answered in done) > 0


# --- whole runs ---


class Answered(System):
    """A run, of which every process finds its server behind a proxy of its own."""

    def __init__(self, server: RedisServer, name: str, folder: Path, answer: str, stack: ExitStack) -> None:
        super().__init__(0, name, folder, OPTIONS, change="hasty")
        who = [LEARNER, "0", EVALUATOR, STATUS, DASHBOARD]
        self.proxies = {
            one: stack.enter_context(RespProxy(server.port, Schedule(ANSWERS[answer], seed)))
            for seed, one in enumerate(who)
        }
        stack.enter_context(self)
        self.start(EVALUATOR)

    def beside(self, who: str, *more: str, change: str = "") -> Process:
        return super().beside(who, "--port-redis", str(self.proxies[who].port), *more, change=change)

    def answer(self, share: float) -> None:
        """Give the answer to a share of all commands."""
        for proxy in self.proxies.values():
            proxy.schedule.share = share


@pytest.fixture(scope="module")
def quiet_run(redis_port: int, tmp_path_factory: pytest.TempPathFactory) -> Result:
    with System(redis_port, "quiet_answers", tmp_path_factory.mktemp("quiet"), OPTIONS) as system:
        return system.finish()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_every_client_goes_on_or_ends_with_one_line(
    own_server: RedisServer, stack: ExitStack, processes: Processes, quiet_run: Result, tmp_path: Path, name: str
) -> None:
    # Mutation: a row of `trouble.py` left out.
    row = TABLE[name]
    system = Answered(own_server, "answered", tmp_path / "run", name, stack)
    page, address = dashboard.start(processes, system.proxies[DASHBOARD].port, tmp_path / "run")
    system.wait_for(LEARNER, "] T = ", 2)
    system.wait_for(EVALUATOR, "plays chain")

    system.answer(0.1)
    wait_for_answers(system, processes, row)
    assert not [who for who, process in system.processes.items() if process.exit_code is not None], system.last_words()

    system.answer(1)
    for who, process in system.processes.items():
        assert process.finish(120) == 1, system.last_words()
        check_last_line(process, who, row.line)
    status = look(processes, system)
    if row.shown != "the run":
        assert row.shown == "what failed" or row.line in status
        named = "" if row.shown == "what failed" else row.line
        wait_until(lambda: (said := dashboard.ask(address)["problem"]) and named in said, "the dashboard to name it")
    check_starts(system, row)

    system.answer(0)
    for who in system.processes:
        system.start(who)
    wait_until(lambda: not dashboard.ask(address)["problem"], "the dashboard to show the run", 60)
    assert page.exit_code is None and page.errors == ""
    result = system.finish()
    assert result._replace(values=[]) == quiet_run._replace(values=[])


def wait_for_answers(system: Answered, processes: Processes, row: Row) -> None:
    """Wait until each client has had some, those that only read where reading is concerned, and the run gets on."""
    clients = [LEARNER, "0", EVALUATOR, *([] if row.shown == "the run" else [STATUS, DASHBOARD])]

    def have_had() -> bool:
        look(processes, system)
        return all(system.proxies[who].schedule.answered.total() > 1 for who in clients)

    wait_until(have_had, lambda: f"answers for {clients}\n{system.last_words()}", 120)
    lines = system.printed(LEARNER).count("] T = ")
    system.wait_for(LEARNER, "] T = ", lines + 1)


def look(processes: Processes, system: Answered) -> str:
    """Return what run_status.py prints; it ends, and has no other words."""
    ended = processes.start(STATUS, "--port-redis", system.proxies[STATUS].port).end()
    if ended.code == 2:
        assert ended.errors.count("\n") == 1
        return ended.errors
    assert ended.code in (0, 1) and ended.errors == "", ended
    return ended.out


def check_last_line(process: Process, who: str, line: str) -> None:
    program = "launch_learner.py" if who == LEARNER else "launch_actor.py"
    last = process.output.splitlines()[-1]
    assert last.startswith(f"{program}: ") and line in last, process.output[-2000:]
    assert "Traceback" not in process.output


def check_starts(system: Answered, row: Row) -> None:
    """Start programs while all commands get the answer."""
    if row.start == CODE_2:
        begun = {who: system.beside(who) for who in system.processes}
        assert {who: process.finish() for who, process in begun.items()} == dict.fromkeys(begun, 2)
    else:  # an actor waits for the learner
        begun = {LEARNER: system.beside(LEARNER)}
        assert begun[LEARNER].finish() == 1
    for process in begun.values():
        assert row.start_line in process.output.splitlines()[-1], process.output[-2000:]
        assert "Traceback" not in process.output


@pytest.mark.slow
def test_the_start_script(workplace: Workplace, own_server: RedisServer) -> None:
    """It asks at its beginning alone; the mutation is an answer that is refused in another one's line."""
    for name in ANSWERS:
        row = TABLE[name]
        with RespProxy(own_server.port, Schedule(ANSWERS[name], seed=1)) as proxy:
            workplace.address = ["--port-redis", str(proxy.port)]
            proxy.schedule.share = 1
            workplace.start("--windows", "none", "--use-running-redis")
            if row.start == CODE_2:
                assert workplace.exit_code() == 2
                assert row.start_line in re.findall("(?m)^.*error: .*$", workplace.output)[-1], workplace.output
            else:
                workplace.wait_for_line(r"\[learner\] learner is here")
                proxy.schedule.share = 0
                workplace.press_ctrl_c()
                assert workplace.exit_code() == 0
            assert "Traceback" not in workplace.output
