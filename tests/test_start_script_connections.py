"""start_learning_atari.sh --hosts when an actor, a connection or the start script ends: nothing is left behind."""

import contextlib
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import ROOT, Processes, clean_environment, wait_for_ends
from tests.small import CARTPOLE
from tests.sshd import Sshd, here, needs_sshd, there, write_hosts
from tests.start_script import Workplace, free_port

pytestmark = [pytest.mark.slow, needs_sshd]

# Longer than the other side waits for a beat, and than a connection that answers no more is believed.
_SILENCE_S = 60


def begin(workplace: Workplace) -> psutil.Process:
    """Start a run with an actor on node1, and return the actor; its note goes, so that another's is seen."""
    workplace.start(*write_hosts(workplace, "node1 1\n"))
    workplace.argv("actor0")
    (workplace.folder / "actor0.argv").unlink()
    (actor,) = workplace.processes("launch_actor.py")
    return actor


def end(workplace: Workplace) -> None:
    workplace.stop(90)
    assert workplace.has_saved("actor0")


def wait_for_another(workplace: Workplace, actor: psutil.Process) -> None:
    """Wait until the actor has gone, and one that is ready to stop has taken its place."""
    wait_for_ends([actor])
    workplace.wait_for(lambda: (workplace.folder / "actor0.argv").exists(), "another actor", 60)


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("actor", ".*actor 0 on node1 was killed by SIGKILL and is started again"),
        *((what, r".*Waiting for the ssh connection to node1 \(0 sec\): .*") for what in ("sshd", "ssh", "that side")),
        ("this side", ".* is started again"),
    ],
)
def test_an_actor_ends_with_its_connection_and_another_follows(
    workplace: Workplace, sshd: Sshd, what: str, told: str
) -> None:
    # Mutations: let the other side go on at the end of its input; give up at a lost connection.
    actor = begin(workplace)
    if what == "that side":
        talk(workplace)
    if what == "ssh":
        (ssh,) = [child for child in here(workplace)[0].children() if child.name() == "ssh"]
        ssh.kill()
    elif what == "sshd":
        sshd.kill_sessions()
    elif what == "actor":
        actor.kill()
    else:
        (here if what == "this side" else there)(workplace)[0].kill()
    wait_for_another(workplace, actor)
    workplace.wait_for_line(told)
    end(workplace)


def talk(workplace: Workplace) -> None:
    """Let the actor print: one whose helper was killed ends at its next line."""
    (workplace.folder / "talk").touch()


@pytest.fixture(autouse=True)
def _actors_that_talk_when_told(workplace: Workplace) -> None:
    launcher = workplace.folder / "launch_actor.py"
    heard = "while not stop:\n    if Path('talk').exists():\n        print(1, flush=True)"
    launcher.write_text(launcher.read_text().replace("while not stop:", heard))


@pytest.mark.usefixtures("sshd")
def test_a_killed_start_script_leaves_nothing_there(workplace: Workplace) -> None:
    """The actor is asked to stop, and saves: its Redis is still there."""
    # Mutation: leave out the look at who reads the lines.
    actor = begin(workplace)
    (learner,) = workplace.processes("launch_learner.py")
    left = [actor, *here(workplace), *there(workplace)]
    workplace.send(signal.SIGKILL)
    wait_for_ends(left)
    assert workplace.has_saved("actor0")
    learner.kill()  # it ends at its next line, as ever
    workplace.start(*write_hosts(workplace, "node1 1\n"))
    workplace.wait_for_line(".*taking back the server that a killed start script has left at localhost:.*")
    workplace.wait_for(lambda: workplace.output.count("actor0 is here") == 1, "the actor")
    end(workplace)


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_network_that_goes_without_a_word_leaves_nothing_there(workplace: Workplace, sshd: Sshd, side: str) -> None:
    """A frozen ssh, or a frozen session of sshd, takes nothing and sends nothing, and no side gets an end."""
    # Mutations: leave the time of silence out of remote_side.py; leave ServerAliveInterval out of hosts.py.
    actor = begin(workplace)
    (ssh,) = [child for child in here(workplace)[0].children() if child.name() == "ssh"]
    frozen = [ssh] if side == "here" else [one for one in sshd.sessions() if one.name() == "sshd"]
    for process in frozen:
        process.suspend()
    try:
        wait_for_ends([actor], _SILENCE_S)
        if side == "there":
            workplace.wait_for_line(
                r".*Waiting for the ssh connection to node1 \(0 sec\): .*not responding.*", _SILENCE_S
            )
    finally:
        for process in frozen:
            with contextlib.suppress(psutil.Error):
                process.resume()
    wait_for_another(workplace, actor)
    end(workplace)


def test_a_host_that_is_away_is_waited_for(workplace: Workplace, sshd: Sshd) -> None:
    # Mutation: end at the first connection that fails.
    actor = begin(workplace)
    sshd.stop()
    wait_for_ends([actor])
    workplace.wait_for_line(r".*Waiting for the ssh connection to node1 \(\d\d sec\): .*refused", 60)
    sshd.start()
    wait_for_another(workplace, actor)
    end(workplace)


@pytest.mark.usefixtures("sshd")
def test_what_does_not_stop_there_is_killed(workplace: Workplace) -> None:
    (workplace.folder / "actor0.deaf").touch()
    workplace.environment["RAINBOW_STOP_SECONDS"] = "2"
    actor = begin(workplace)
    workplace.press_ctrl_c()
    assert workplace.exit_code(60) == 1
    assert "actor 0 on node1 did not stop in 2 s and is killed" in workplace.output
    wait_for_ends([actor])
    workplace.assert_nothing_left()


def test_in_lockstep_a_run_over_ssh_comes_to_the_same_bytes(tmp_path: Path, processes: Processes) -> None:
    """The real programs, with two actors here, and with one on each of two hosts, whose connections are cut once."""
    # Mutation: let a former actor go on through its tunnel, beside the one that has taken its place.
    server = Sshd(tmp_path / "sshd", f'SetEnv RAINBOW_VENV="{sys.prefix}"')
    server.start()
    (tmp_path / "hosts.txt").write_text("node1 1\nnode2 1\n")
    environment = clean_environment() | {"RAINBOW_VENV": sys.prefix, "PATH": server.path}
    small = [*CARTPOLE, *"--agent reinforce --preset cpu --disable-cuda --hidden-size 8 --learner-threads 1".split()]
    small += ["--T-max", "24000", "--log-interval", "2000", "--windows", "none"]
    results = []
    try:
        for name, given in (("here", ["--nb-actor", "2"]), ("there", ["--hosts", str(tmp_path / "hosts.txt")])):
            own = ["--port-redis", str(free_port()), "--path-to-results", str(tmp_path / name)]
            words = [ROOT / "start_learning_atari.sh", *small, *given, *own]
            run = processes.start(*words, program="bash", environment=environment, together=True)
            if name == "there":
                run.wait_for("[learner] [", 2, 300)
                server.kill_sessions()
                run.wait_for("Waiting for the ssh connection to node", 2)
            assert run.finish(500) == 0, run.output[-5000:]
            (weights,) = re.findall(r"Finished at T = \d+, weights ([0-9a-f]{16})\n", run.output)
            results.append((weights, (tmp_path / name / "CartPole-v1.csv").read_bytes()))
    finally:
        server.close()
    assert results[0] == results[1]
