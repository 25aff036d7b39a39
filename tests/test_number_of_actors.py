"""The number of actors changes: where a run is resumed, and without lockstep while it goes on."""

import csv
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs import snapshot
from tests.small import FAMILIES, FREE, SHORT_CHAIN
from tests.system import LEARNER, Result, System

pytestmark = [pytest.mark.redis, pytest.mark.slow]

OPTIONS = [*SHORT_CHAIN, *"--nb-env-per-actor 2 --evaluation-interval 1000".split()]
PARTS = ((900, 2), (1300, 3), (1600, 1))  # agent steps that a part of the run ends at, and its actors


def play_in_parts(port: int, name: str, folder: Path, killed: int | None) -> list[Result]:
    """Play parts of a run; where more actors play, one is killed after so many lines of its log."""
    # Mutation: `Replay.forget` drops all that it remembers, though the last round is read again after the next one.
    results, held = [], [set[tuple[int, ...]]()]
    for steps, actors in PARTS:
        for output in folder.glob("*.txt"):
            output.unlink()
        with System(port, name, folder, [*OPTIONS, "--T-max", str(steps)], actors=actors) as system:
            if killed is not None and actors == 3:
                system.wait_for("0", "] T = ", killed)
                system.restart("0", signal.SIGKILL)
            results.append(system.finish())
            changes = re.findall("Changed since the run's last start: .*", system.printed(LEARNER))
            assert len(changes) == (len(results) > 1) and all(f"is {steps}" in line for line in changes)
        held.append({tuple(name) for name in newest_checkpoint(folder)["replay"]["ids"].tolist()})
        assert held[-2] < held[-1], "a part keeps what the one before has ended with"
    return results


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
    third = next(episode for episode in episodes if episode["actor"] == "2")
    played = int(third["T_actors"]) - int(third["length"]) * 3 * 2  # by all, before its first step
    assert int(third["episode"]) == played, "the same however much the learner had told when it came"
    numbers = {(episode["actor"], episode["env"], episode["episode"]) for episode in episodes}
    assert len(numbers) == len(episodes), "no episode twice"


def test_rounds_that_a_killed_learner_has_not_saved_count_for_those_who_played_them(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutation: the number changes at the round of the checkpoint.
    options = [*OPTIONS, "--T-max", "2400", "--evaluation-interval", "700"]
    with System(redis_port, run_name, tmp_path, options, actors=2) as system:
        system.wait_for(LEARNER, "T = 1300 /")
    saved = newest_checkpoint(tmp_path)
    for output in tmp_path.glob("*.txt"):
        output.unlink()
    with System(redis_port, run_name, tmp_path, options, actors=1) as system:
        system.finish()
    after = newest_checkpoint(tmp_path)
    both, staying, alone = (Crew(*crew) for crew in after["crews"])
    assert (both.nb_actor, staying.nb_actor, alone.nb_actor) == (2, 1, 1)
    assert staying.first_round > saved["round"] + 1, "the learner was killed rounds after its checkpoint"
    assert 1 <= alone.first_round - staying.first_round <= 3, "rounds are published one ahead"
    rows = [sequence for actor, sequence in after["replay"]["ids"].tolist() if actor == 1]
    assert max(rows) > saved["counted"][1] + 1, "what the one that left has played until then is learned from"


def test_a_round_of_an_on_policy_agent_has_its_rows_whatever_the_number(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutation: divide the steps that a round of the actors before had.
    for steps, actors in ((700, 2), (900, 3), (1100, 1)):
        for output in tmp_path.glob("*.txt"):
            output.unlink()
        options = [*FAMILIES["ppo"], "--T-max", str(steps)]
        with System(redis_port, run_name, tmp_path, options, actors=actors) as system:
            system.finish()
    crews = [Crew(*crew) for crew in newest_checkpoint(tmp_path)["crews"]]
    assert {crew.nb_actor for crew in crews} == {1, 2, 3} and {crew.env_steps for crew in crews} == {20}


def newest_checkpoint(folder: Path) -> dict[str, Any]:
    return snapshot.load(snapshot.last_models(folder, "chain")[0], "test")


def test_without_lockstep_actors_come_and_go(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """Actor 1 never comes, actor 6 comes unexpected, actor 0 is killed: the learner goes on with whom it has."""
    options = [*SHORT_CHAIN, *FREE, *"--T-max 40000 --log-interval 100".split()]
    with System(redis_port, run_name, tmp_path / "run", options, actors=2) as system:
        system.processes.pop("1").kill()
        system.wait_for(LEARNER, "] T = ", 2)
        system.start("6", "--nb-actor", "7")
        system.wait_for(LEARNER, "Actor 6 joins")
        system.processes["0"].kill()
        lines = system.printed(LEARNER).count("] T = ")
        system.wait_for("6", "] T = ", 5)
        system.wait_for(LEARNER, "] T = ", lines + 5)
        system.learner.terminate()
        assert system.learner.finish(120) == 0, system.last_words()
        assert system.processes["6"].finish(120) == 0, system.last_words()
    episodes = list(csv.DictReader((tmp_path / "run" / "chain.csv").read_text().splitlines()))
    assert {episode["actor"] for episode in episodes} >= {"0", "6"}
    with System(redis_port, run_name, tmp_path / "run", [*options, "--force"], actors=1) as again:
        again.wait_for(LEARNER, "Going on with 1 actors, in the place of 2")
        again.wait_for(LEARNER, "] T = ", lines + 10)
