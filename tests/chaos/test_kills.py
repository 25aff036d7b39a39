"""Lockstep: the same seed gives the same bytes in every family, whoever is slow, and whatever is killed or stopped.

Which weights an actor plays a round with, and in which order the learner takes chunks in, is the protocol's to fix. So
the two runs differ as much as they can: in one the learner lags behind at random moments, and saves and plots whenever
it could; in the other the actors do, and everything in `KILLED` happens in a row. What depends on no family, such as a
full disk, happens to the chain's runs alone: `OTHERWISE`.
"""

import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.chaos.disturbances import OTHERWISE, RUN
from tests.chaos.faults import REDIS
from tests.conftest import RedisServer
from tests.servers import SERVERS
from tests.small import BOXES, FAMILIES, GOALS, SHORT_CHAIN
from tests.system import LEARNER, Result, Stalls, System, unlogged

pytestmark = [pytest.mark.redis, pytest.mark.slow]
LENGTH = (
    "--learn-start 400 --T-max 3000 --weight-synchro-frequency 40 --evaluation-interval 500 --log-interval 100 "
    "--nb-env-per-actor 2"
).split()
# What is killed or stopped, by the agent step after which it happens. At T-max the learner dies once more.
KILLED = {
    400: ("0", signal.SIGKILL),
    800: (LEARNER, signal.SIGKILL),
    1200: (REDIS, signal.SIGKILL),
    1600: ("1", signal.SIGTERM),
    2000: (LEARNER, signal.SIGTERM),
    2400: ("1", signal.SIGKILL),
}
# Small networks, a replay that turns over, and a game in which random players live for 170 agent steps.
ATARI = (
    "--game berzerk --disable-cuda --hidden-size 32 --num-tau-samples 4 --num-tau-prime-samples 5 "
    "--num-quantile-samples 3 --quantile-embedding-dim 8 --atoms 11 --batch-size 8 --lr-IQN 1e-3 --lr-Rainbow 1e-3 "
    "--memory-capacity 640 --target-update 200 --learner-threads 1"
).split()
RUNS = {
    "rainbow_iqn": (SHORT_CHAIN, 3),
    "atari": ([*ATARI, *"--learner-threads 2".split()], 2),
    "atari-bfloat16": ([*ATARI, *"--precision bfloat16".split()], 3),
    "atari-rainbow": ([*ATARI, *"--rainbow-only 1 --architecture data-efficient --max-gradient-norm 10".split()], 3),
} | {name: (words, 2) for name, words in (FAMILIES | BOXES | GOALS).items()}


def undisturbed(port: int, name: str, folder: Path, words: list[str], actors: int) -> Result:
    """Let the learner lag behind; interpreters of their own have another order of sets."""
    with (
        System(port, name, folder, words, actors=actors, change="saving_often", fresh=True) as system,
        Stalls(system, [LEARNER], 1),
    ):
        return system.finish()


def disturbed(server: RedisServer, name: str, folder: Path, words: list[str], actors: int) -> Result:
    """Let everything happen, each at some moment after the learner has logged so many steps."""
    dice, happened = random.Random(2), 0
    with (
        System(server.port, name, folder, words, actors=actors, change="disturbed") as system,
        Stalls(system, [str(actor) for actor in range(actors)], 2),
    ):
        for steps, (who, how) in KILLED.items():
            system.learner.wait_until(partial(has_reached, system, steps), f"T = {steps}", 400)
            time.sleep(dice.uniform(0, 0.2))
            if system.learner.exit_code is not None:
                break
            if who == REDIS:
                server.stop(how)
                server.start()
            elif (who, how) == (LEARNER, signal.SIGTERM):
                stop_learner(system, server.port)
            else:
                system.restart(who, how)
            happened += 1
        assert happened >= len(KILLED) - 1, "the run was over too soon"
        assert system.learner.finish(400) == -signal.SIGKILL, system.last_words()
        system.start(LEARNER)
        result = system.finish()
        assert "already" not in system.printed(LEARNER), "it had not finished"
        check_logged(system, server.port)
        return result


def has_reached(system: System, steps: int) -> bool:
    """Return whether a learner of this run has logged so many steps."""
    return any(int(T) >= steps for T in re.findall(r"\] T = (\d+) /", system.printed(LEARNER)))


def stop_learner(system: System, port: int) -> None:
    """Stop the learner in good order, with which all actors leave, and start all again."""
    system.learner.terminate()
    for process in system.processes.values():
        assert process.finish(200) == 0, system.last_words()
    check_logged(system, port)
    for who in system.processes:
        system.start(who)


def check_logged(system: System, port: int) -> None:
    """Whatever actors have written into the log is in the CSV when the learner has left in good order."""
    if "chain" in system.options:  # elsewhere episodes are few, and perhaps all trimmed by now
        assert unlogged(port, "*", system.folder) == set()


@pytest.mark.parametrize("family", RUNS)
def test_neither_speed_nor_kills_leave_a_trace(
    redis_port: int, own_server: RedisServer, run_name: str, tmp_path: Path, family: str
) -> None:
    # Mutations: an actor whose successor forgets its recurrent state; a learner that saves no state of its generator;
    # no `take_rest`; a log script that takes commits in after the end; no last round; a checkpoint that counts as
    # finished before the actors and the CSV have all; an expiry that the actors' clock decides.
    options, actors = RUNS[family]
    words = [*options, *LENGTH]
    with ThreadPoolExecutor(1) as beside:
        quiet_run = beside.submit(undisturbed, redis_port, run_name, tmp_path / "undisturbed", words, actors)
        result = disturbed(own_server, run_name, tmp_path / "disturbed", words, actors)
        quiet = quiet_run.result()
    check_equal(result, quiet)
    assert quiet.scores.count(b"\n") > 3, "episodes ended"
    assert len(quiet.values) >= 2, "values were reported"
    check_numbers(result.scores.decode())


def check_equal(one: Result, other: Result) -> None:
    """Compare all but values, which a learner that resumes may print again."""
    assert one.scores.decode().splitlines() == other.scores.decode().splitlines()
    assert one._replace(values=[]) == other._replace(values=[])


def check_numbers(log: str) -> None:
    """Each environment's episodes are there once, and none is missing."""
    keys = [tuple(line.split(",")[2:5]) for line in log.splitlines()[1:]]
    for env in {key[:2] for key in keys}:
        numbers = [int(key[2]) for key in keys if key[:2] == env]
        assert numbers == list(range(len(numbers)))


def test_one_actor(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """Both are slow in turn, and nothing is killed; another seed makes another run."""
    words = [*SHORT_CHAIN, *LENGTH, *"--batch-size 16 --T-max 1600 --nb-env-per-actor 1".split()]
    slow = System(redis_port, f"{run_name}_0", tmp_path / "0", words)
    other = System(redis_port, f"{run_name}_1", tmp_path / "1", [*words, "--seed", "2"])
    with ThreadPoolExecutor(1) as beside, slow, other, Stalls(slow, ["0"], 1):
        quiet_run = beside.submit(undisturbed, redis_port, f"{run_name}_2", tmp_path / "2", words, 1)
        results = [slow.finish(), quiet_run.result()]
        different = other.finish()
    assert results[0] == results[1]
    assert results[0].best, "the best weights were kept"
    assert results[0].scores.count(b"\n") > 3 and len(results[0].values) >= 2
    assert results[0].weights != different.weights and results[0].scores != different.scores


# --- what else may happen ---

# The replay turns over on the way, so that the log is trimmed.
CHAIN = [
    *SHORT_CHAIN,
    *"--learn-start 900 --nb-env-per-actor 3 --log-interval 100 --memory-capacity 1000 --T-max 3000".split(),
    *"--evaluation-interval 200 --keep-checkpoints 5".split(),
]


@pytest.fixture(scope="module")
def quiet_chain(redis_port: int, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, list[bytes]]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    with System(redis_port, "undisturbed", folder, CHAIN, actors=2) as system:
        result, kept = system.finish(), kept_weights(folder)
    assert set(kept) == {f"model_chain_{steps}.pth" for steps in (1200, 1800, 2400, 3000)}
    return result, kept


@pytest.mark.parametrize("redis_program", list(SERVERS.values()), ids=list(SERVERS), indirect=True)
@pytest.mark.parametrize("name", OTHERWISE)
def test_nothing_else_leaves_a_trace(
    quiet_chain: tuple[Result, dict[str, list[bytes]]], own_server: RedisServer, tmp_path: Path, name: str
) -> None:
    # Mutations: trim the log to what the newest checkpoint needs; a restarted server's weights are not published anew.
    happen, change = OTHERWISE[name]
    with System(own_server.port, RUN, tmp_path / "run", CHAIN, actors=2, change=change) as system:
        happen(system, own_server)
        result = system.finish()
    check_equal(result, quiet_chain[0])
    assert kept_weights(tmp_path / "run") == quiet_chain[1]


def kept_weights(folder: Path) -> dict[str, list[bytes]]:
    """Parameters of the snapshots with weights alone."""
    return {
        path.name: [
            value.numpy().tobytes() for value in torch.load(path, weights_only=True)["model_state_dict"].values()
        ]
        for path in folder.glob("model_*.pth")
    }


# --- the end ---


def test_a_learner_that_is_stopped_at_its_end_has_not_finished(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: a learner that looks at T-max alone when it resumes.
    words = [*SHORT_CHAIN, *"--T-max 2000 --log-interval 100".split()]
    with System(redis_port, run_name, tmp_path, words) as first:
        first.wait_for(LEARNER, "] T = ")
        first.learner.terminate()
        assert [process.finish(200) for process in first.processes.values()] == [0, 0]
        stopped = re.search(r"Stopped at T = (\d+), weights ([0-9a-f]+)", first.printed(LEARNER))
        assert stopped
    for times in (1, 2):
        with System(redis_port, run_name, tmp_path, [*words, "--T-max", stopped[1]]) as system:
            result = system.finish()
        assert result.weights == stopped[2], "nothing is left to learn"
        *_, last = result.scores.decode().splitlines()
        assert (int(last.split(",")[0]) - 1) % 100 > 94, "the last round was played to its end"
        assert system.printed(LEARNER).count("Finished at T") == times
    assert "already" in system.printed(LEARNER)
