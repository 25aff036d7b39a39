"""A run on several hosts, with users, passwords and TLS: links go down, packets vanish, a host dies, an address moves.

HOSTS_CUTS=5,60,300 pytest tests/hosts/test_hosts.py -k links     # for how many seconds
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rainbow_iqn_apex.memory.broker.keys import Keys
from tests.chaos import notes
from tests.chaos.checks import check_scores, check_streams, check_what_was_read
from tests.chaos.proxy import Proxy
from tests.chaos.runs import ENVS, RAINBOW, ROUND
from tests.deadline import wait_until
from tests.hosts.launch import Acknowledged, checksum, read_acknowledged
from tests.hosts.network import missing
from tests.hosts.run import ACTORS, EVALUATOR, NAME, PLAYERS, SERVER, HostsRun, make_access, tls_server
from tests.system import LEARNER, Run

CUTS = [float(seconds) for seconds in os.environ.get("HOSTS_CUTS", "5").split(",")]
OPTIONS = [*RAINBOW.words, "--redis-timeout", "3600"]
ENDLESS = ["--T-max", "100000000"]
# Nothing but the end depends on --T-max then.
QUIET = [*OPTIONS, *f"--synchronize-actors-with-learner True --nb-actor {ACTORS} --priority-weight 1".split()]
LOCKSTEP = [*QUIET, *ENDLESS]
MOVED = "10.77.9.9"
REMOTE = (*PLAYERS, EVALUATOR)  # who is not on the server's host
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 + 20 * sum(CUTS))]


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users and certificates, as docs/access.md makes them."""
    tls_server()
    if reason := missing():
        pytest.skip(reason)
    return make_access(tmp_path_factory.mktemp("access") / "made")


# --- what happens between hosts; `alone` waits for who is cut off ---


def links(run: HostsRun, alone: list[str]) -> None:
    """A player's link is down, and the other's and the judge's packets vanish; then the server's link, its packets."""
    first, second = run.players
    for seconds in CUTS:
        first.link_down()
        second.blackhole()
        run.judge.blackhole()
        run.lasts(seconds, [*REMOTE, *alone])
        first.link_up()
        second.end_blackhole()
        run.judge.end_blackhole()
        run.wait_for_progress()
        run.server.link_down()
        run.lasts(seconds, [*REMOTE, *alone])
        run.server.link_up()
        run.wait_for_progress()
        run.server.blackhole()
        run.lasts(seconds, [*REMOTE, *alone])
        run.server.end_blackhole()
        run.wait_for_progress()


def deaths(run: HostsRun, _alone: list[str]) -> None:
    """The hosts of a player and of the evaluation actor die, with commands under way, and are booted again."""
    hosts = {"0": run.players[0], EVALUATOR: run.judge}
    for host in hosts.values():
        host.blackhole()
    run.lasts(1, [])
    for who, host in hosts.items():
        host.kill()
        assert run.processes[who].finish() != 0
        host.end_blackhole()
        host.boot()
        run.start(who)
    run.wait_for_progress()


def address(run: HostsRun, _alone: list[str]) -> None:
    """The server's name means another address; connections to the former one are neither answered nor reset."""
    run.server.add_address(MOVED)
    run.network.set_name(SERVER, MOVED)
    run.server.remove_address(run.server.address)
    run.all_tell([LEARNER, *REMOTE])
    run.wait_for_progress()


def wire(run: HostsRun, _alone: list[str]) -> None:
    """The name means a host that passes everything on late, and loses replies and connections."""
    with run.wire.inside(), Proxy(6379, run.server.address, (run.wire.address, 6379)) as proxy:
        proxy.latency = 0.03
        run.network.set_name(SERVER, run.wire.address)
        # Else connections past the proxy would stay.
        run.client.execute_command("CLIENT KILL", "LADDR", f"{run.server.address}:6379")  # type: ignore[no-untyped-call]
        run.wait_for_progress()
        assert len(proxy.connections) >= len(run.processes), "not everybody comes by the proxy"
        proxy.drop(2, silent=False)
        run.wait_for_progress()
        proxy.cut(1)
        run.wait_for_progress()
        proxy.reset_often(1)
        run.wait_for_progress()
        run.network.set_name(SERVER, run.server.address)
    run.wait_for_progress()


EVENTS: list[Callable[[HostsRun, list[str]], None]] = [links, deaths, address, wire]


class Outcome(NamedTuple):
    """What must not depend on what happens between hosts."""

    weights: str
    scores: list[str]


def check_ledger(run: HostsRun, *, lockstep: bool) -> None:
    """What actors were told is done is in the log once, in its order, was taken in once, and is in the CSV."""
    run.tap.catch_up()
    (run_id,) = run.tap.runs
    acknowledged = read_acknowledged(run.folder)
    held = {
        Acknowledged(actor, sequence, checksum(data))
        for actor, stream in run.tap.messages.items()
        for sequence, data in stream
    }
    assert len(acknowledged) > 50
    assert not acknowledged - held, "acknowledged, and not in the log"
    keys = Keys(NAME, run_id)
    states = {actor: run.client.hget(keys.state(actor), "state") for actor in run.tap.messages}
    messages = check_streams(run.tap.messages, states, RAINBOW.spec, ENVS)  # type: ignore[arg-type]
    read = check_what_was_read(notes.read_messages(run.folder), messages)
    if not lockstep:
        assert read == {actor: stream[-1][0] for actor, stream in messages.items()}, "not everything was read"
    check_scores({actor: stream[: read[actor]] for actor, stream in messages.items()}, run.results / "CartPole-v1.csv")
    scores = (run.results / "CartPole-v1_evaluation.csv").read_text().splitlines()
    assert len(set(scores)) == len(scores) > 1


def leave(run: HostsRun) -> None:
    """Stop the actors, wait until the learner has read everything, and stop it."""
    for who in (*PLAYERS, EVALUATOR):
        run.processes[who].terminate()
        assert run.processes[who].finish(120) == 0, run.last_words()
    run.tap.catch_up()
    newest = {(actor, messages[-1][0]) for actor, messages in run.tap.messages.items()}

    def has_read() -> bool:
        return newest <= {(taken.actor, taken.sequence) for taken in notes.read_messages(run.folder)}

    wait_until(has_read, lambda: f"the learner to read everything\n{run.last_words()}", 60)
    run.processes[LEARNER].terminate()
    assert run.processes[LEARNER].finish(120) == 0, run.last_words()


def outcome(printed: str, results: Path) -> Outcome:
    (weights,) = re.findall(r"Finished at T = \d+, weights ([0-9a-f]{16})\n", printed)
    return Outcome(weights, (results / "CartPole-v1.csv").read_text().splitlines())


@pytest.mark.parametrize("event", EVENTS)
def test_without_lockstep_nothing_is_lost_or_doubled(
    event: Callable[[HostsRun, list[str]], None], access: Path, tmp_path: Path
) -> None:
    with HostsRun(tmp_path / "run", access, [*OPTIONS, *ENDLESS]) as run:
        run.wait_for_messages(20)
        run.wait_for_progress()
        event(run, [])
        leave(run)
        check_ledger(run, lockstep=False)


def test_what_is_lost_is_noticed(access: Path, tmp_path: Path) -> None:
    """An actor that stores no state with its messages loses experience when its host dies."""
    with HostsRun(tmp_path / "run", access, [*OPTIONS, *ENDLESS], "messages without state") as run:
        run.wait_for_messages(20)
        run.wait_for_progress()
        deaths(run, [])
        run.wait_for_messages(20)
        leave(run)
        with pytest.raises(AssertionError, match="does not join"):
            check_ledger(run, lockstep=False)


@pytest.mark.parametrize("event", EVENTS)
def test_lockstep_ends_as_if_nothing_had_happened(
    event: Callable[[HostsRun, list[str]], None], access: Path, redis_port: int, run_name: str, tmp_path: Path
) -> None:
    """All are stopped when it has happened, and go on to an end that the machine's speed has decided."""
    with HostsRun(tmp_path / "run", access, LOCKSTEP) as run:
        run.wait_for_messages(20)
        run.wait_for_progress()
        event(run, [LEARNER])
        run.processes[LEARNER].terminate()
        assert [process.finish(120) for process in run.processes.values()] == [0, 0, 0, 0], run.last_words()
        (stopped,) = re.findall(r"Stopped at T = (\d+)", run.printed(LEARNER))
        end = ["--T-max", str((int(stopped) // ROUND + 20) * ROUND)]  # also behind learn-start, wherever it was stopped
        for who in (LEARNER, *PLAYERS):
            run.start(who, *end)
        for who in (LEARNER, *PLAYERS):
            assert run.processes[who].finish(400) == 0, run.last_words()
        check_ledger(run, lockstep=True)
        disturbed = outcome(run.printed(LEARNER), run.results)
    with Run(redis_port, run_name, tmp_path / "quiet", [*QUIET, *end]) as quiet:
        for who in (LEARNER, *PLAYERS):
            quiet.start(who)
        assert quiet.processes[LEARNER].finish(600) == 0, quiet.last_words()
        assert outcome(quiet.processes[LEARNER].output, quiet.folder) == disturbed
