"""Lockstep: the same seed gives the same bytes in every family, whoever is slow, and whatever is killed or stopped.

Which weights an actor plays a round with, and in which order the learner takes chunks in, is the protocol's to fix. So
the two runs differ as much as they can: in one the learner lags behind at random moments, and saves and plots whenever
it could; in the other the actors do, and everything in `KILLED` happens in a row.
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

from rainbow_iqn_apex.programs import snapshot
from tests.agents.test_checkpoints import Damage, flip, truncate
from tests.chaos.faults import REDIS
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.small import BOXES, FAMILIES, GOALS, SHORT_CHAIN
from tests.system import LEARNER, Result, Stalls, System

LENGTH = (
    "--learn-start 400 --T-max 3000 --weight-synchro-frequency 40 --evaluation-interval 500 --log-interval 100 "
    "--nb-env-per-actor 2"
).split()
# What is killed or stopped, by the agent step after which it happens.
KILLED = {
    400: ("0", signal.SIGKILL),
    800: (LEARNER, signal.SIGKILL),
    1200: (REDIS, signal.SIGKILL),
    1600: ("1", signal.SIGTERM),
    2000: (LEARNER, signal.SIGTERM),
    2400: ("1", signal.SIGKILL),
}
RUNS = {"rainbow_iqn": (SHORT_CHAIN, 3)} | {name: (words, 2) for name, words in (FAMILIES | BOXES | GOALS).items()}


def undisturbed(port: int, name: str, folder: Path, words: list[str], actors: int) -> Result:
    with (
        System(port, name, folder, words, actors=actors, change="saving_often") as system,
        Stalls(system, [LEARNER], 1),
    ):
        return system.finish()


def disturbed(server: RedisServer, name: str, folder: Path, words: list[str], actors: int) -> Result:
    """Let everything happen, each at some moment after the learner has logged so many steps."""
    dice, happened = random.Random(2), 0
    with (
        System(server.port, name, folder, words, actors=actors, change="hurried") as system,
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
            else:
                system.restart(who, how)
            happened += 1
        assert happened >= len(KILLED) - 1, "the run was over too soon"
        return system.finish()


def has_reached(system: System, steps: int) -> bool:
    """Return whether a learner of this run has logged so many steps."""
    return any(int(T) >= steps for T in re.findall(r"\] T = (\d+) /", system.printed(LEARNER)))


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("family", RUNS)
def test_neither_speed_nor_kills_leave_a_trace(
    redis_port: int, own_server: RedisServer, run_name: str, tmp_path: Path, family: str
) -> None:
    # Mutations: an actor whose successor forgets its recurrent state; a learner that saves no state of its generator.
    options, actors = RUNS[family]
    words = [*options, *LENGTH]
    with ThreadPoolExecutor(1) as beside:
        quiet_run = beside.submit(undisturbed, redis_port, run_name, tmp_path / "undisturbed", words, actors)
        result = disturbed(own_server, run_name, tmp_path / "disturbed", words, actors)
        quiet = quiet_run.result()
    assert result.scores.decode().splitlines() == quiet.scores.decode().splitlines()
    assert (result.weights, result.best) == (quiet.weights, quiet.best)
    assert quiet.scores.count(b"\n") > 3, "episodes ended"
    assert len(quiet.values) >= 2, "values were reported"
    check_numbers(result.scores.decode())


def check_numbers(log: str) -> None:
    """Each environment's episodes are there once, and none is missing."""
    keys = [tuple(line.split(",")[2:5]) for line in log.splitlines()[1:]]
    for env in {key[:2] for key in keys}:
        numbers = [int(key[2]) for key in keys if key[:2] == env]
        assert numbers == list(range(len(numbers)))


# --- a checkpoint that is torn ---

# The replay turns over on the way, so that the log is trimmed.
SMALL_REPLAY = (
    "--learn-start 900 --nb-env-per-actor 3 --log-interval 1000 --memory-capacity 1000 --T-max 2100 "
    "--evaluation-interval 200 --keep-checkpoints 5"
).split()
TORN: list[tuple[int, signal.Signals, Damage]] = [(1000, signal.SIGKILL, flip), (1500, signal.SIGTERM, truncate)]


@pytest.mark.redis
@pytest.mark.slow
def test_a_run_goes_on_exactly_from_the_checkpoint_before_a_torn_one(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutation: trim the log to what the newest checkpoint needs.
    results, kept = {}, {}
    for case, torn in {"undisturbed": [], "disturbed": TORN}.items():
        options = [*SHORT_CHAIN, *SMALL_REPLAY]
        with System(redis_port, f"{run_name}_{case}", tmp_path / case, options, actors=2, change="hurried") as system:
            for steps, how, damage in torn:
                wait_for_older_checkpoint(system, steps)
                system.restart(LEARNER, how, partial(damage_newest, system, damage))
            results[case], kept[case] = system.finish(), kept_weights(system.folder)
            assert system.printed(LEARNER).count(": going on from the checkpoint before it\n") == len(torn)
    assert results["disturbed"].weights == results["undisturbed"].weights
    assert results["disturbed"].scores == results["undisturbed"].scores
    assert results["disturbed"].best == results["undisturbed"].best
    assert kept["disturbed"] == kept["undisturbed"]
    assert set(kept["disturbed"]) == {f"model_chain_{steps}.pth" for steps in (1260, 1680, 2100)}


def damage_newest(system: System, damage: Damage) -> None:
    damage(checkpoints(system)[0])


def checkpoints(system: System) -> list[Path]:
    """The newest first."""
    return snapshot.last_models(system.folder, "chain")


def wait_for_older_checkpoint(system: System, steps: int) -> None:
    """Wait until there are two of different steps, the older one beyond `steps`, while the learner gets on."""

    def are_there() -> bool:
        assert system.learner.exit_code is None, system.last_words()
        return any(int(path.stem.split("_")[-1]) >= steps for path in checkpoints(system)[1:])

    wait_until(are_there, system.last_words, 100, progress=lambda: system.printed(LEARNER))


def kept_weights(folder: Path) -> dict[str, list[bytes]]:
    """Parameters of the snapshots with weights alone."""
    return {
        path.name: [
            value.numpy().tobytes() for value in torch.load(path, weights_only=True)["model_state_dict"].values()
        ]
        for path in folder.glob("model_*.pth")
    }
