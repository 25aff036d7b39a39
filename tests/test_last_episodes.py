"""Whatever actors were told is in the log is in the CSV when the learner has left in good order."""

import random
import re
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.small import FREE, SHORT_CHAIN
from tests.system import LEARNER, System, unlogged

OPTIONS = [*SHORT_CHAIN, *"--T-max 2000 --log-interval 100".split()]


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("more", [[], FREE], ids=["lockstep", "free"])
def test_the_last_episodes_are_logged(redis_port: int, run_name: str, tmp_path: Path, more: list[str]) -> None:
    # Mutations: a log script that takes commits in after the end; no `take_rest`; no last round.
    dice = random.Random(3)
    with System(redis_port, f"{run_name}_0", tmp_path / "0", [*OPTIONS, *more], actors=2) as system:
        for lines in (1, 8):
            system.wait_for(LEARNER, "] T = ", lines)
            time.sleep(dice.uniform(0, 0.2))
            system.learner.terminate()
            for process in system.processes.values():
                assert process.finish(200) == 0, system.last_words()  # the actors leave by themselves
            assert unlogged(redis_port, f"{run_name}_0", tmp_path / "0") == set()
            for who in system.processes:
                system.start(who)
        stopped = system.finish()
    assert unlogged(redis_port, f"{run_name}_0", tmp_path / "0") == set()
    if more:
        return
    with System(redis_port, f"{run_name}_1", tmp_path / "1", OPTIONS, actors=2) as system:
        assert system.finish() == stopped, "and of the stops there is no trace"


@pytest.mark.redis
@pytest.mark.slow
def test_a_learner_that_is_stopped_at_its_end_has_not_finished(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: a learner that looks at T-max alone when it resumes.
    with System(redis_port, run_name, tmp_path, OPTIONS) as first:
        first.wait_for(LEARNER, "] T = ")
        first.learner.terminate()
        assert [process.finish(200) for process in first.processes.values()] == [0, 0]
        stopped = re.search(r"Stopped at T = (\d+), weights ([0-9a-f]+)", first.printed(LEARNER))
        assert stopped
    for times in (1, 2):
        with System(redis_port, run_name, tmp_path, [*OPTIONS, "--T-max", stopped[1]]) as system:
            result = system.finish()
        assert result.weights == stopped[2], "nothing is left to learn"
        *_, last = result.scores.decode().splitlines()
        assert (int(last.split(",")[0]) - 1) % 100 > 94, "the last round was played to its end"
        assert system.printed(LEARNER).count("Finished at T") == times
    assert "already" in system.printed(LEARNER)


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("more", [[], FREE], ids=["lockstep", "free"])
def test_a_learner_that_dies_at_its_end_has_not_finished(
    redis_port: int, run_name: str, tmp_path: Path, more: list[str]
) -> None:
    # Mutation: the last checkpoint says that the run has finished before the actors and the CSV have been told all.
    with System(redis_port, run_name, tmp_path, [*OPTIONS, *more], actors=2, change="dying") as system:
        assert system.learner.finish(200) == -signal.SIGKILL, system.last_words()
        system.start(LEARNER)
        system.finish()
    assert unlogged(redis_port, run_name, tmp_path) == set()
    assert "already" not in system.printed(LEARNER)


@pytest.mark.redis
@pytest.mark.slow
def test_a_finished_run_that_goes_on_keeps_its_last_round(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: `Replay.forget` drops all that it remembers, though the last round is read again after the next one.
    kept = []
    for steps in ("1500", "2000"):
        for output in tmp_path.glob("*.txt"):
            output.unlink()
        with System(redis_port, run_name, tmp_path, [*OPTIONS, "--T-max", steps], actors=2) as system:
            system.finish()
        newest = max(tmp_path.glob("last_model_*.pth"), key=lambda path: int(path.stem.split("_")[-1]))
        kept.append({tuple(row) for row in torch.load(newest, weights_only=True)["replay"]["ids"].tolist()})
    assert kept[0] < kept[1]
