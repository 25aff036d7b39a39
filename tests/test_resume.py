"""Lockstep: the same seed gives the same run, whatever is killed or stopped on the way."""

import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from rainbow_iqn_apex.programs import snapshot
from tests.agents.test_checkpoints import Damage, flip, truncate
from tests.deadline import wait_until
from tests.small import BOXES, FAMILIES, GOALS, SHORT_CHAIN
from tests.system import LEARNER, System

LENGTH = "--nb-env-per-actor 3 --evaluation-interval 1000 --log-interval 1000"
OPTIONS = [*SHORT_CHAIN, *f"--learn-start 900 --T-max 3000 {LENGTH}".split()]


RUNS = {
    "rainbow_iqn": OPTIONS,
    **{family: [*options, *OPTIONS[len(SHORT_CHAIN) :], "--T-max", "12000"] for family, options in FAMILIES.items()},
    **{family: [*options, *f"{LENGTH} --T-max 12000".split()] for family, options in (BOXES | GOALS).items()},
}


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.parametrize("family", RUNS)
def test_kills_and_stops_leave_no_trace_in_the_result(
    redis_port: int, run_name: str, tmp_path: Path, family: str
) -> None:
    results = {}
    for case, kills in {"undisturbed": 0, "disturbed": 6}.items():
        dice = random.Random(1)
        with System(redis_port, f"{run_name}_{case}", tmp_path / case, RUNS[family], actors=2) as system:
            for kill in range(kills):
                time.sleep(dice.uniform(2, 4))
                if system.learner.exit_code is None:
                    who = ("0", LEARNER, "1")[kill % 3]
                    system.restart(who, signal.SIGKILL if kill < 3 else signal.SIGTERM)
            results[case] = system.finish()
    assert results["disturbed"].weights == results["undisturbed"].weights
    assert results["disturbed"].scores == results["undisturbed"].scores
    lines = results["disturbed"].scores.decode().splitlines()[1:]
    keys = [tuple(line.split(",")[2:5]) for line in lines]
    assert len(set(keys)) == len(keys), "no episode twice"
    for env in {key[:2] for key in keys}:
        numbers = [int(key[2]) for key in keys if key[:2] == env]
        assert numbers == list(range(len(numbers))), "and none missing"
    assert results["disturbed"].best == results["undisturbed"].best


# The replay turns over on the way, so that the log is trimmed.
SMALL_REPLAY = "--memory-capacity 1000 --T-max 2100 --evaluation-interval 200 --keep-checkpoints 5".split()
TORN: list[tuple[int, signal.Signals, Damage]] = [(1000, signal.SIGKILL, flip), (1500, signal.SIGTERM, truncate)]


@pytest.mark.redis
@pytest.mark.slow
def test_a_run_goes_on_exactly_from_the_checkpoint_before_a_torn_one(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutation: trim the log to what the newest checkpoint needs.
    results, kept = {}, {}
    for case, torn in {"undisturbed": [], "disturbed": TORN}.items():
        options = [*OPTIONS, *SMALL_REPLAY]
        with System(redis_port, f"{run_name}_{case}", tmp_path / case, options, actors=2) as system:
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
