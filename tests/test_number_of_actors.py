"""The number of actors changes: where a run is resumed, and without lockstep while it goes on."""

import csv
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from memory.limiter import Crew
from tests.deadline import finish
from tests.system import Result, System
from tests.test_chain import SETTINGS

OPTIONS = (
    f"{' '.join(SETTINGS)} --nb-env-per-actor 2 --learn-start 600 --log-interval 50 --evaluation-interval 1000 "
    "--learner-threads 1"
).split()
PARTS = ((900, 2), (1300, 3), (1600, 1))  # agent steps that a part of the run ends at, and its actors


def play_in_parts(port: int, name: str, folder: Path, killed: int | None) -> list[Result]:
    """Play parts of a run; where more actors play, one is killed after so many lines of its log."""
    results = []
    for steps, actors in PARTS:
        for output in folder.glob("*.txt"):
            output.unlink()
        system = System(port, name, folder, [*OPTIONS, "--T-max", str(steps)], actors=actors)
        try:
            if killed is not None and actors == 3:
                system.wait_for("0", "T = ", killed)
                system.restart("0", signal.SIGKILL)
            results.append(system.finish())
        finally:
            system.kill()
    return results


@pytest.mark.redis
@pytest.mark.slow
def test_lockstep_is_exact_over_changes_of_the_number(redis_port: int, run_name: str, tmp_path: Path) -> None:
    whole = play_in_parts(redis_port, f"{run_name}_0", tmp_path / "0", None)
    killed = play_in_parts(redis_port, f"{run_name}_1", tmp_path / "1", 3)
    assert [result.weights for result in killed] == [result.weights for result in whole]
    assert [result.scores for result in killed] == [result.scores for result in whole]
    assert len({result.weights for result in whole}) == len(PARTS)
    episodes = list(csv.DictReader((tmp_path / "0" / "chain.csv").read_text().splitlines()))
    last = dict.fromkeys("012", 0)
    for episode in episodes:
        last[episode["actor"]] = max(last[episode["actor"]], int(episode["T_actors"]))
    assert 1100 < last["2"] <= 1300 + 200, "the third played in the second part alone, but for two rounds"
    assert 1100 < last["1"] <= 1300 + 200
    assert last["0"] > 1400
    numbers = {(episode["actor"], episode["env"], episode["episode"]) for episode in episodes}
    assert len(numbers) == len(episodes), "no episode twice"


@pytest.mark.redis
@pytest.mark.slow
def test_rounds_that_a_killed_learner_has_not_saved_count_for_those_who_played_them(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutation: the number changes at the round of the checkpoint.
    options = [*OPTIONS, "--T-max", "2400", "--evaluation-interval", "700"]
    system = System(redis_port, run_name, tmp_path, options, actors=2)
    try:
        system.wait_for("learner", "T = 1300 /")
        for process in system.processes.values():
            process.kill()
            process.wait()
    finally:
        system.kill()
    saved = newest_checkpoint(tmp_path)
    for output in tmp_path.glob("*.txt"):
        output.unlink()
    system = System(redis_port, run_name, tmp_path, options, actors=1)
    try:
        system.finish()
    finally:
        system.kill()
    after = newest_checkpoint(tmp_path)
    both, staying, alone = (Crew(*crew) for crew in after["crews"])
    assert (both.nb_actor, staying.nb_actor, alone.nb_actor) == (2, 1, 1)
    assert staying.first_round > saved["round"] + 1, "the learner was killed rounds after its checkpoint"
    assert 1 <= alone.first_round - staying.first_round <= 3, "rounds are published one ahead"
    rows = [sequence for actor, sequence in after["replay"]["ids"].tolist() if actor == 1]
    assert max(rows) > saved["counted"][1] + 1, "what the one that left has played until then is learned from"


def newest_checkpoint(folder: Path) -> dict[str, Any]:
    path = max(folder.glob("last_model_*.pth"), key=lambda path: int(path.stem.split("_")[-1]))
    saved: dict[str, Any] = torch.load(path, weights_only=True)
    return saved


FREE = f"{' '.join(SETTINGS)} --learn-start 600 --T-max 40000 --log-interval 100 --learner-threads 1".split()


@pytest.mark.redis
@pytest.mark.slow
def test_without_lockstep_actors_come_and_go(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """Actor 1 never comes, actor 6 comes unexpected, actor 0 is killed: the learner goes on with whom it has."""
    options = [*FREE, "--synchronize-actors-with-learner", "False"]
    system = System(redis_port, run_name, tmp_path / "run", options, actors=2)
    try:
        system.processes["1"].kill()
        system.processes.pop("1").wait()
        system.wait_for("learner", "T = ", 2)
        system.processes["6"] = system.start("6", "--nb-actor", "7")
        system.wait_for("learner", "Actor 6 joins")
        system.processes["0"].kill()
        system.processes["0"].wait()
        lines = system.printed("learner").count("T = ")
        system.wait_for("6", "T = ", 5)
        system.wait_for("learner", "T = ", lines + 5)
        system.processes["learner"].send_signal(signal.SIGTERM)
        assert finish(system.processes["learner"], 120) == 0, system.said()
        assert finish(system.processes["6"], 120) == 0, system.said()
    finally:
        system.kill()
    episodes = list(csv.DictReader((tmp_path / "run" / "chain.csv").read_text().splitlines()))
    assert {episode["actor"] for episode in episodes} >= {"0", "6"}
    again = System(redis_port, run_name, tmp_path / "run", [*options, "--force"], actors=1)
    try:
        again.wait_for("learner", "Going on with 1 actors, in the place of 2")
        again.wait_for("learner", "T = ", lines + 10)
    finally:
        again.kill()
