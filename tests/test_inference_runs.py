"""Whole runs whose actors ask inference servers: the same bytes in lockstep, and nothing lost when servers go."""

import re
import signal
import socket
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import psutil
import pytest

from tests.deadline import wait_until
from tests.processes import Processes, run
from tests.small import CARTPOLE, FAMILIES, FREE, SHORT_CHAIN, TINY
from tests.system import LEARNER, SERVERS, Result, System, unlogged

pytestmark = pytest.mark.redis
SERVER, OTHER = SERVERS
LENGTH = (
    "--learn-start 400 --T-max 2000 --weight-synchro-frequency 40 --evaluation-interval 500 --log-interval 100 "
    "--nb-env-per-actor 2"
).split()
RUNS = {"rainbow_iqn": SHORT_CHAIN} | {name: words for name, words in FAMILIES.items() if name != "sac-lstm"}
RUNS["cartpole"] = [*CARTPOLE, *TINY, "--learner-threads", "1", "--memory-capacity", "4000"]
ASKED = ["--inference", "server"]


def words_of(family: str) -> list[str]:
    return [*RUNS[family], *LENGTH]


@cache
def local(port: int, name: str, family: str) -> Result:
    """Return the result of a run whose actors compute themselves."""
    with System(port, f"{name}-local", Path(mkdtemp()), words_of(family), actors=2) as system:
        return system.finish()


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in RUNS if name != "cartpole"])
def test_lockstep_gives_the_bytes_of_local_inference(
    redis_port: int, run_name: str, tmp_path: Path, family: str
) -> None:
    """A server and an actor are killed besides; the actors that lose the server end, and are started again.

    Mutations: ask ahead in lockstep; a policy's own random numbers in the place of those that were saved.
    """
    with System(redis_port, run_name, tmp_path, [*words_of(family), *ASKED], actors=2) as system:
        system.start(SERVER)
        for steps, asked, next_one in ((500, SERVER, OTHER), (1000, OTHER, SERVER)):
            system.wait_for(LEARNER, f"T = {steps} /")
            system.processes[asked].kill()
            for actor in ("0", "1"):
                assert system.processes[actor].finish(60) == 3
                lines = re.findall("(?m)^launch_actor.py: .*", system.printed(actor))
                assert re.search(r"inference server \d is lost .*; in lockstep this actor ends", lines[-1]), lines
            for who in ("1", next_one, "0"):
                system.start(who)
        system.wait_for(LEARNER, "T = 1400 /")
        system.restart("0", signal.SIGKILL)
        result = system.finish()
    assert result == local(redis_port, run_name, family)


@pytest.mark.slow
def test_a_learner_that_serves_itself_gives_the_same_bytes(redis_port: int, run_name: str, tmp_path: Path) -> None:
    options = [*words_of("cartpole"), "--inference", "learner"]
    with System(redis_port, run_name, tmp_path, options, actors=2) as system:
        assert system.finish() == local(redis_port, run_name, "cartpole")


@pytest.mark.slow
def test_a_server_that_is_frozen_in_lockstep_is_waited_for(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """Mutation: wait as short as without lockstep, in which an actor would end."""
    with System(redis_port, run_name, tmp_path, [*words_of("cartpole"), *ASKED], actors=2) as system:
        system.start(SERVER)
        system.wait_for(LEARNER, "T = 1200 /")
        system.processes[SERVER].send(signal.SIGSTOP)
        told = system.printed(LEARNER).count("to play round")
        wait_until(lambda: system.printed(LEARNER).count("to play round") > told, "the learner to wait for actors", 60)
        system.processes[SERVER].send(signal.SIGCONT)
        assert system.finish() == local(redis_port, run_name, "cartpole")


@pytest.mark.slow
def test_servers_that_are_killed_or_frozen_lose_nothing(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """Actors go on through all of it, and none is started again.

    Mutation: a client that keeps to the server that it has.
    """
    options = [*FAMILIES["impala-lstm"], *LENGTH, *FREE, *ASKED, "--T-max", "50000000", "--nb-env-per-actor", "3"]
    with System(redis_port, run_name, tmp_path, options, actors=2) as system:
        for who in (SERVER, OTHER):
            system.start(who)
        system.wait_for(LEARNER, "T = 1000 /")
        system.wait_for(SERVER, "computes for the actors")
        system.processes[SERVER].kill()
        system.wait_for(LEARNER, "T = 8000 /")
        system.processes[OTHER].send(signal.SIGSTOP)  # both actors ask it, as there is no other
        system.start(SERVER)
        system.wait_for("0", "Inference server 1 is lost")
        system.wait_for("1", "Inference server 1 is lost")
        system.processes[OTHER].send(signal.SIGCONT)
        system.restart(OTHER, signal.SIGTERM)
        system.wait_for(SERVER, "computes for the actors", 2)
        system.restart(SERVER, signal.SIGKILL)
        system.wait_for(SERVER, "computes for the actors", 3)  # one that has not met the learner would wait for it
        system.learner.terminate()
        assert all(process.finish(120) == 0 for process in system.processes.values()), system.last_words()
        lost = re.findall(r"(?m)^Inference server (\d) is lost", system.printed("0") + system.printed("1"))
        assert {*lost} == {"0", "1"}
        assert unlogged(redis_port, run_name, tmp_path) == set()


def test_a_port_that_is_taken_is_a_mistake_of_the_learners_command(redis_port: int, tmp_path: Path) -> None:
    # Mutation: leave it to the server that the learner starts, which would fail again and again.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = (
            f"launch_learner.py --inference learner --inference-host 127.0.0.1 --inference-port {port} --run-name t"
        )
        place = ["--port-redis", str(redis_port), "--path-to-results", str(tmp_path)]
        code, _, errors = run(*command.split(), *CARTPOLE, *place, seconds=100)
    assert code == 2
    assert errors == (
        f"launch_learner.py: error: --inference-port: cannot listen on 127.0.0.1:{port} (Address already in use)\n"
    )


@pytest.mark.slow
def test_actors_that_ask_servers_load_no_torch(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """They wait for a server that is started last, and say so; an evaluation actor is one of them."""
    options = [*CARTPOLE, *TINY, *FREE, *ASKED, "--agent", "impala", "--T-max", "50000000", "--learn-start", "100"]
    log = tmp_path / "CartPole-v1_evaluation.csv"
    with System(redis_port, run_name, tmp_path, options) as system, Processes() as others:
        system.processes["0"].kill()  # it has what tests import
        given = (["--id-actor", "0"], ["--id-eval-actor", "0"])
        actors = [others.start("launch_actor.py", *which, *system.options, fresh=True) for which in given]
        for actor in actors:
            actor.wait_for(" sec); start one with launch_inference.py")
            assert not any("libtorch" in part.path for part in psutil.Process(actor.pid).memory_maps())
        system.start(SERVER)
        for actor in actors:
            actor.wait_for("plays CartPole-v1 on inference servers")
        wait_until(lambda: log.exists() and len(log.read_text().splitlines()) > 10, system.last_words, 100)
        system.learner.terminate()
        assert system.learner.finish(120) == 0, system.last_words()
