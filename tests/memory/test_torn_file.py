"""A crash in the middle of a write to Redis's append-only file: what comes after it is not lost at the next start."""

import os
import resource
import signal
import subprocess
import threading
from contextlib import ExitStack

import pytest

from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.admin import rewrite_file
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.messages import RoundEnd
from tests.conftest import RedisServer
from tests.memory.links import played, wait_for_rewrite

pytestmark = pytest.mark.redis


def tear_last_write(server: RedisServer) -> None:
    """Crash, with half of the last commit on the disk."""
    server.stop(signal.SIGKILL)
    file = server.log
    content = file.read_bytes()
    torn = content.rindex(b"riqx:{run}:id:state:0") + 2
    assert b"XADD" in content[content.rindex(b"MULTI", 0, torn) : torn], "a message, and no state"
    os.truncate(file, torn)
    server.start()


def play(client: Client, *rounds: int) -> None:
    """What an actor of run `id` does that is stopped and started again."""
    with ActorClient(client, "run", "id", 0, threading.Event()) as actor:
        actor.saved()
        for round_ in rounds:
            actor.commit([RoundEnd(round_)], f"state {round_}".encode())


def learner_of(client: Client, stack: ExitStack) -> LearnerClient:
    learner = stack.enter_context(LearnerClient(client, "run", {}, 1))
    learner.lead("id")
    learner.publish_alone({0: b"weights"})
    learner.write_progress("running", 0, 0, {})
    wait_for_rewrite(client)
    return learner


def checked(server: RedisServer) -> subprocess.CompletedProcess[str]:
    """Run redis-check-aof on the file: the server's own program, which must have that name."""
    command = ["redis-check-aof", str(server.log)]
    return subprocess.run(command, executable=server.program, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("started_again", [False, True], ids=["learner runs", "learner is started again"])
def test_what_follows_a_torn_write_is_read_again(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch, started_again: bool
) -> None:
    # Mutation: an empty `rewrite_file`.
    monkeypatch.setattr(lease, "TTL_MS", 1500)  # a successor waits for that of a predecessor that was torn off
    with ExitStack() as learners, ExitStack() as successors:
        learner = learner_of(own_client, learners)
        play(own_client, 1, 2, 3)
        if started_again:
            learners.close()
        tear_last_write(own_server)
        assert played(own_client, "run") == [1, 2], "the torn commit is dropped as a whole"
        if started_again:
            learner = learner_of(own_client, successors)
        learner.restore_weights()
        wait_for_rewrite(own_client)
        play(own_client, 13, 14)
        own_server.stop(signal.SIGKILL)
        check = checked(own_server)
        own_server.start()
        assert played(own_client, "run") == [1, 2, 13, 14]
        assert own_client.hget("riqx:{run}:id:state:0", "state") == b"state 14"
    assert check.returncode == 0 and "is valid" in check.stdout, check


def test_a_server_that_cannot_write_its_file_anew_is_used_all_the_same(
    own_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    pid = own_client.info("server")["process_id"]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))  # no pipe to a child; as where it has no memory for one
    rewrite_file(own_client)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("The Redis server does not write its append-only file anew: ")
