"""Evaluation actors beside whole runs: their scores are logged, and nothing else tells that they were there."""

import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from rainbow_iqn_apex.environments.scores import VersionedRecord
from rainbow_iqn_apex.saber.results.training_log import EVALUATION_HEADER
from tests.chain.environment import RETURNS
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.small import FREE, SHORT_CHAIN
from tests.system import EVALUATORS, LEARNER, Run, System

pytestmark = [pytest.mark.redis, pytest.mark.slow]
OPTIONS = [*SHORT_CHAIN, *"--T-max 2000 --log-interval 100".split()]
ALL_RETURNS = {score for scores in RETURNS.values() for score in scores}


def logged(folder: Path) -> list[VersionedRecord]:
    whole = (folder / "chain_evaluation.csv").read_text("ascii").rpartition("\n")[0]  # the last may be half written
    header, *lines = whole.splitlines()
    assert header == EVALUATION_HEADER
    return [VersionedRecord(*map(_value, line.split(","))) for line in lines]


def _value(text: str) -> Any:
    return text if "_" in text else int(text)


def check(records: list[VersionedRecord], count: int, T_max: int) -> None:
    """Every record can be one of the chain, none is there twice, and each evaluation actor counts upwards."""
    assert {record.actor for record in records} == set(range(count))
    assert max(Counter((record.actor, record.env, record.episode) for record in records).values()) == 1
    for actor in range(count):
        numbers = [record.episode for record in records if record.actor == actor]
        assert numbers == sorted(numbers)
    assert {record.score_saber for record in records} <= ALL_RETURNS
    assert {record.end for record in records} == {"game_over"}
    assert all(record.T_actors <= T_max + 100 and record.T_learner <= T_max for record in records)


def test_a_run_in_lockstep_is_the_same_with_and_without_them(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: evaluation actors under the keys of actors.
    playing, frozen, _ = EVALUATORS
    with (
        System(redis_port, f"{run_name}_0", tmp_path / "0", OPTIONS) as alone,
        System(redis_port, f"{run_name}_1", tmp_path / "1", OPTIONS) as system,
    ):
        system.start(playing)
        system.start(frozen).wait_for("plays chain")
        system.processes[frozen].send(signal.SIGSTOP)
        assert system.learner.finish(400) == 0, system.last_words()
        assert system.processes[playing].finish() == 0
        assert "The learner has finished: evaluation actor 0 leaves" in system.printed(playing)
        system.processes[frozen].send(signal.SIGCONT)
        assert system.finish() == alone.finish()
    assert not (tmp_path / "0" / "chain_evaluation.csv").exists()
    check(records := [record for record in logged(tmp_path / "1") if record.actor == 0], 1, 2000)
    assert len({record.version for record in records}) > 3, "it pulls new weights"
    assert '"evaluation"' in (tmp_path / "1" / "Reward_chain.html").read_text()


def test_they_survive_whatever_is_killed(own_server: RedisServer, run_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    options = [*OPTIONS, *"--T-max 10000000".split()]
    first, second, _ = EVALUATORS
    with System(own_server.port, run_name, folder, options, actors=2) as system:
        system.start(first)
        system.start(second)
        wait_until(lambda: (folder / "chain_evaluation.csv").exists(), system.last_words, 100)
        for who in (LEARNER, first, second, LEARNER):
            system.restart(who, signal.SIGKILL)
            grow(system)
        own_server.stop(signal.SIGKILL)
        own_server.start()
        grow(system)
        system.processes[first].press_ctrl_c()
        assert system.processes[first].finish() == 0, system.last_words()
        assert "stops, and leaves out the episode under way" in system.printed(first)
        system.start(first)
        for process in system.processes.values():  # the learner first
            process.terminate()
            assert process.finish(120) == 0, system.last_words()
        assert not any("Traceback" in system.printed(who) for who in system.processes)
    logged_steps = map(int, re.findall(r"\] T = (\d+) ", system.printed(LEARNER)))
    check(logged(folder), 2, max(logged_steps) + 100)  # of one interval more
    with redis.Redis(port=own_server.port) as client:
        logs: Any = client.keys("riqx:*:evaluation:log:*")
        assert [client.xlen(log) for log in logs] == [0, 0], "what is on the disk is not kept in Redis"
        assert client.keys("riqx:*:film:*") == [] == list(folder.glob("*film*")), "nobody has asked for films"


def grow(system: System) -> None:
    """Wait until each evaluation actor has got further."""
    before = newest(system)
    wait_until(
        lambda: all(now > then for now, then in zip(newest(system), before, strict=True)), system.last_words, 100
    )


def newest(system: System) -> list[int]:
    records = logged(system.folder)
    return [max((r.episode for r in records if r.actor == actor), default=-1) for actor in range(2)]


def test_a_second_one_of_a_number_is_refused(redis_port: int, run_name: str, tmp_path: Path) -> None:
    first, second, _ = EVALUATORS
    with Run(redis_port, run_name, tmp_path, [*OPTIONS, *FREE, "--force"]) as run:
        run.start(LEARNER).wait_for("Learner of run")
        run.start(first).wait_for("Evaluation actor 0 plays chain")
        run.start(second).wait_for("Evaluation actor 1 plays chain")
        errors = run.refusal(first)
        assert "evaluation actor 0 of run" in errors and "give each evaluation actor its own --id-eval-actor" in errors
        scores = tmp_path / "chain_evaluation.csv"
        run.processes[LEARNER].wait_until(scores.exists, "scores, though no actor plays")
        run.processes[LEARNER].press_ctrl_c()
        assert [process.finish() for process in run.processes.values()] == [0, 0, 0]
        assert "The learner has stopped: evaluation actor 1 leaves" in run.processes[second].output
