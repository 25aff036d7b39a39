"""The users that programs/make_redis_users.py makes, on real servers: what they need they may, and nothing else."""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.leases import Lease
from rainbow_iqn_apex.memory.broker.record import find_runs
from rainbow_iqn_apex.memory.broker.reports import ReportStore, ViewListener
from rainbow_iqn_apex.memory.broker.scripts import Scripts
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import EventLog, Reading, Reporter
from rainbow_iqn_apex.monitoring.view import MAX_BYTES, View, Viewer, encode
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.memory.guarded import Guarded, lead, send
from tests.processes import run
from tests.servers import SERVERS

pytestmark = pytest.mark.redis


def make_users(folder: Path, *options: str) -> dict[str, dict[str, str]]:
    """The variables of each user, as they stand in its file."""
    code, _, errors = run("programs/make_redis_users.py", folder, *options)
    assert code == 0, errors
    return {
        user: dict(re.findall("export (.*)=(.*)", (folder / f"{user}.env").read_text()))
        for user in ("learner", "actor", "viewer", "admin")
    }


def versions() -> list[Any]:
    """Every server at hand with the rules of 6.2, and those from 7 on with their own rules, too."""
    cases = []
    for name, server in SERVERS.items():
        newer = int(name.split()[1].split(".")[0]) >= 7
        cases += [pytest.param((server, seven), id=f"{name} {seven}") for seven in (False, True)[: 1 + newer]]
    return cases


Access = tuple[Path, dict[str, dict[str, str]]]  # the file for the server, and the variables of each user


@pytest.fixture(scope="module")
def accesses(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Access]:
    """Users by the rules of 6.2 and of 7, and an insider that looks at the server."""
    found = {}
    for seven in (False, True):
        folder = tmp_path_factory.mktemp("access") / "access"
        users, file = make_users(folder, *["--redis-7"] * seven), folder / "users.acl"
        file.write_text(file.read_text() + "user insider on nopass ~* &* +@all\n")
        found[seven] = (file, users)
    return found


@pytest.fixture(params=versions())
def guarded(request: pytest.FixtureRequest, tmp_path: Path, accesses: dict[bool, Access]) -> Iterator[Guarded]:
    program, seven = request.param
    file, users = accesses[seven]
    server = RedisServer(tmp_path, more={"aclfile": file, "lua-time-limit": 100}, program=program)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        found = [find_server("127.0.0.1", server.port, "", users[user]) for user in ("learner", "actor", "viewer")]
        learner, actor, viewer = [stack.enter_context(closing(connect(s.host, s.port, access=s.access))) for s in found]
        insider = stack.enter_context(redis.Redis(port=server.port, username="insider", password="-", protocol=2))
        insider.set("foreign", "untouched")
        yield Guarded(server, program, users["admin"], learner, actor, viewer, insider, seven)
        assert insider.get("foreign") == b"untouched"


@pytest.mark.usefixtures("short_reads")
def test_a_run_and_its_successor_need_no_other_rights(guarded: Guarded) -> None:
    for run_id in ("old", "new"):
        lead(guarded, run_id)
    assert not guarded.insider.keys("*:old:*"), "the old run was abandoned"
    assert guarded.refused() == []


COMMANDS = [
    "FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "SAVE", "SHUTDOWN", "DEBUG OBJECT foreign", "MONITOR", "MODULE LIST",
    "CONFIG GET *", "CONFIG SET dir /", "ACL LIST", "ACL SETUSER actor allkeys", "CLIENT LIST",
    "CLIENT KILL TYPE normal", "KEYS *", "RANDOMKEY", "GET foreign", "SET foreign x", "DEL foreign", "SET riq x",
    "MIGRATE host 1 foreign 0 1", "EVAL redis.call('FLUSHALL') 0", "EVAL redis.call('CONFIG','GET','*') 0",
    "EVAL redis.call('DEL','foreign') 0", "EVAL redis.call('DEL',KEYS[1]) 1 foreign", "SCRIPT FLUSH", "SCRIPT KILL",
    "REPLICAOF localhost 1", "PUBLISH channel x", "PUBLISH riqx:{run}:id:actor:0:view x", "SUBSCRIBE channel",
]  # fmt: skip
LEARNERS_COMMANDS = ["BGREWRITEAOF", "SCAN 0", "UNLINK riqx:{run}:id:log:0", "XTRIM riqx:{run}:id:log:0 MAXLEN 0"]
LEARNERS_KEYS = ["SET riqx:{run}:id:quarantine x", "XADD riqx:{run}:id:other * m x"]
# What an actor reads: Redis 6.2 cannot keep it from writing there.
READ_BY_ACTORS = [
    "SET riqx:{run}:id:weights:0 x",
    "EVAL redis.call('SET',KEYS[1],'x') 1 riqx:{run}:id:weights:0",
    "DEL riqx:{run}:id:weights:1",
    "XADD riqx:{run}:id:versions * v x",
    "HSET riqx:{run} status stopped",
    "SET riqx:{run}:learner x",
]


VIEWERS_COMMANDS = [
    "EVAL return(1) 0",
    "SET riqx:{run}:id:actor:0:view x",
    "HSET riqx:{run} status stopped",
    "SET riqx:{run}:id:inference:actor:0:address x",
    "XADD riqx:{run}:id:inference:actors * actor 0",
]


def is_refused(client: redis.Redis, command: str) -> bool:
    try:
        send(client, *command.split())
    except redis.ResponseError as error:
        assert re.search("[Nn]o permission|executing the script can't|not allowed", str(error)), (command, error)
        return True
    return False


def test_strangers_are_refused(guarded: Guarded) -> None:
    for command in ("PING", "INFO", "GET foreign", "GET riqx:{run}"):
        stranger = redis.Redis(port=guarded.server.port, protocol=2, retry=Retry(NoBackoff(), 0))
        with stranger, pytest.raises(redis.AuthenticationError):
            send(stranger, *command.split())


def test_neither_user_may_more_than_it_needs(guarded: Guarded) -> None:
    for client in (guarded.learner, guarded.actor, guarded.viewer):
        assert [command for command in COMMANDS if not is_refused(client, command)] == []
    own = LEARNERS_COMMANDS + LEARNERS_KEYS
    assert [command for command in own if not is_refused(guarded.actor, command)] == []
    assert [command for command in own if is_refused(guarded.learner, command)] == [], "the mutation"
    writing = [command for command in [*own, *READ_BY_ACTORS, *VIEWERS_COMMANDS] if command != "SCAN 0"]
    assert [command for command in writing if not is_refused(guarded.viewer, command)] == []
    open_to_actors = [] if guarded.seven else READ_BY_ACTORS
    assert [command for command in READ_BY_ACTORS if not is_refused(guarded.actor, command)] == open_to_actors
    guarded.insider.delete("riqx:{run}:learner")


@pytest.mark.slow
def test_a_viewer_sees_a_run_and_what_an_actor_of_it_sees(guarded: Guarded) -> None:
    lead(guarded, "id")
    keys, viewer = Keys("run", "id"), Viewer()
    assert find_runs(guarded.viewer.aside()).names == ["run"]
    with (
        closing(OverviewReader(guarded.viewer.aside(), "run")) as reader,
        closing(ViewListener(guarded.viewer)) as listener,
        Reporter(ReportStore(guarded.actor, keys), "actor", 0, lambda: Reading({}), EventLog(), viewer=viewer),
    ):
        listener.listen({keys.view(0)})
        found: dict[str, bytes] = {}
        view = View(5.0, 7, 3, np.zeros((2, 3), np.uint8))

        def see() -> bool:
            viewer.give(lambda: view)
            found.update(listener.next(MAX_BYTES))
            return bool(found)

        wait_until(see, "a view")
        overview = reader.read()
        assert overview and overview.processes[1].state == "working"
    assert found == {keys.view(0): encode(view)}
    assert guarded.refused() == []


def test_an_actor_s_user_cannot_lead(guarded: Guarded) -> None:
    with (
        pytest.raises(UserError, match="REDIS_USERNAME: the Redis user lacks a right") as refused,
        LearnerClient(guarded.actor, "run", {}, 1) as learner,
    ):
        learner.lead("id")
    assert "\n" not in str(refused.value)
    assert not guarded.insider.exists("riqx:{run}"), "nothing has changed"


@pytest.mark.parametrize("missing", ["-set", "-evalsha", "-pexpire -get"])
def test_a_lease_without_rights_is_refused_at_once(guarded: Guarded, missing: str) -> None:
    send(guarded.insider, "ACL", "SETUSER", "learner", *missing.split())
    with (
        pytest.raises(UserError, match="REDIS_USERNAME: the Redis user lacks a right") as refused,
        Lease(guarded.learner, "riqx:{run}:learner", "the thing", "use another") as lease,
    ):
        Scripts(guarded.learner).renew("riqx:{run}:learner", lease.token, 1000)
    assert "\n" not in str(refused.value)


def test_a_user_that_may_nothing_is_refused(guarded: Guarded) -> None:
    send(guarded.insider, "ACL", "SETUSER", "nobody", "on", ">word")
    server = find_server("127.0.0.1", guarded.server.port, "", {"REDIS_USERNAME": "nobody", "REDIS_PASSWORD": "word"})
    with pytest.raises(UserError, match="REDIS_USERNAME: the Redis user lacks a right"):
        connect(server.host, server.port, access=server.access)


def as_administrator(guarded: Guarded, *words: str) -> str:
    """What redis-cli prints, with the password in the environment as docs/access.md has it."""
    cli = shutil.which("redis-cli")
    if not cli:
        pytest.skip("needs redis-cli, which does not come with the bundled server")
    words = ("--user", "admin", "-p", str(guarded.server.port), *words)
    code, out, errors = run(*words, program=cli, environment=os.environ | guarded.admin)
    assert (code, errors) == (0, ""), "no warning of a password on the command line"
    return out.strip()


def test_an_administrator_may_follow_our_advice(guarded: Guarded) -> None:
    assert as_administrator(guarded, "config", "set", "maxmemory", "1gb") == "OK"
    assert as_administrator(guarded, "del", "riqx:{run}") == "0"
    assert guarded.insider.config_get("maxmemory")["maxmemory"] == str(1 << 30)


def test_an_administrator_ends_a_script_that_an_actor_s_user_does_not(guarded: Guarded) -> None:
    # Mutation: a time limit of an hour keeps everybody out, the administrator too.
    ended = threading.Event()

    def block() -> None:
        with pytest.raises(redis.ResponseError, match="killed by user"):
            send(guarded.actor, "EVAL", "while true do end", 0)
        ended.set()

    as_administrator(guarded, "ping")  # leaves the test out here, before a script blocks the server
    thread = threading.Thread(target=block, daemon=True)
    thread.start()
    while as_administrator(guarded, "script", "kill") != "OK":
        assert not ended.wait(0.05)
    thread.join()
    assert ended.is_set() and guarded.learner.ping()


def test_files_are_their_owner_s_and_hold_no_password_twice(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "folder"
    old = os.umask(0)
    try:
        users = make_users(folder)
    finally:
        os.umask(old)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
        ("users.acl", "learner.env", "actor.env", "viewer.env", "admin.env"), 0o600
    )
    assert folder.stat().st_mode & 0o777 == 0o700
    passwords = {value for user in users.values() for name, value in user.items() if name != "REDIS_USERNAME"}
    assert len(passwords) == 4 and all(len(password) >= 32 for password in passwords)
    assert not any(password in (folder / "users.acl").read_text() for password in passwords)
    (folder / "users.acl").unlink()
    before = {path: path.read_text() for path in folder.iterdir()}
    code, _, errors = run("programs/make_redis_users.py", folder)
    assert (code, errors.count("\n")) == (2, 1)
    assert str(folder / "learner.env") in errors
    assert {path: path.read_text() for path in folder.iterdir()} == before
