"""The two newest checkpoints: which are kept, which one a run resumes from, and what of the log they need."""

import os
import random
import resource
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.checkpointer import TwoNewest, newest_whole
from tests.agents.test_snapshot_damage import flip as flip_bytes
from tests.specs import discrete

SETTINGS = "--history-length 2 --hidden-size 3 --quantile-embedding-dim 2 --precision float32".split()


@pytest.fixture(scope="module")
def agent() -> Agent:
    args = options.parse(SETTINGS, "test", "")
    return make_agent(args, discrete((5,), "uint8", 3), torch.device("cpu"), learns=True, seed=1)


def test_parts_of_other_settings_are_no_checkpoint(agent: Agent) -> None:
    # Mutation: leave what is missing as it was made, as the target network of a run that began without one.
    content = {f"{name}_state_dict": part.state_dict() for name, part in agent.parts.items()}
    snapshot.restore(agent, content)
    for name in agent.parts:
        rest = {key: value for key, value in content.items() if key != f"{name}_state_dict"}
        with pytest.raises(UserError, match=f"the snapshot holds nothing of '{name}', which belongs to these settings"):
            snapshot.restore(agent, rest)


def flip(path: Path) -> None:
    flip_bytes(path, path.stat().st_size // 2, 400)


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


Damage = Callable[[Path], None]
DAMAGES: list[Damage] = [flip, zero, truncate, empty]


def steps(folder: Path) -> list[int]:
    return sorted(int(path.stem.split("_")[-1]) for path in folder.glob("last_model_*"))


def save(checkpoints: TwoNewest, agent: Agent, at: int, needs: int) -> dict[int, int]:
    return checkpoints.save(agent, {"T_learner": at, "needs": needs}, {0: needs})


def test_two_are_kept_and_the_log_is_trimmed_for_the_older_one(tmp_path: Path, agent: Agent) -> None:
    checkpoints = TwoNewest(tmp_path, "chain")
    assert newest_whole(tmp_path, "chain") is None
    assert save(checkpoints, agent, 0, 1) == {}, "there is no older one yet"
    assert save(checkpoints, agent, 100, 5) == {0: 1}
    assert save(checkpoints, agent, 200, 9) == {0: 5}
    assert steps(tmp_path) == [100, 200]
    assert save(checkpoints, agent, 200, 12) == {}, "the older one is still that of step 100"
    assert save(checkpoints, agent, 300, 20) == {0: 12}
    assert steps(tmp_path) == [200, 300]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_torn_newest_one_costs_only_itself(
    tmp_path: Path, agent: Agent, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    first = TwoNewest(tmp_path, "chain")
    for at in (100, 200, 300):
        save(first, agent, at, at)
    damage(tmp_path / "last_model_chain_300.pth")
    path, saved = newest_whole(tmp_path, "chain") or (None, {})
    assert (path, saved["T_learner"]) == (tmp_path / "last_model_chain_200.pth", 200)
    (line,) = capsys.readouterr().out.splitlines()
    assert "last_model_chain_300.pth" in line and line.endswith(": going on from the checkpoint before it")
    second = TwoNewest(tmp_path, "chain")
    second.newest = path
    second.needs = {0: 200}
    assert save(second, agent, 400, 400) == {0: 200}
    assert steps(tmp_path) == [200, 400], "the torn one goes, whatever its number"
    for path in tmp_path.iterdir():
        damage(path)
    with pytest.raises(UserError, match=r"^--path-to-results: .*last_model_chain_200\.pth"):
        newest_whole(tmp_path, "chain")


def test_one_that_cannot_be_read_now_is_not_passed_over(tmp_path: Path, agent: Agent) -> None:
    # Mutation: take every error for damage, and the next two checkpoints delete the newest one.
    first = TwoNewest(tmp_path, "chain")
    save(first, agent, 100, 100)
    unreadable = tmp_path / "last_model_chain_200.pth"
    unreadable.symlink_to("/proc/self/mem")
    with pytest.raises(UserError, match=r"last_model_chain_200\.pth .*\(it leads out of .*\)$"):
        newest_whole(tmp_path, "chain")
    unreadable.unlink()
    first.save(agent, {"T_learner": 200, "large": torch.zeros(1 << 24)}, {})
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 24), limits[1]))
    taken = []
    try:
        with suppress(RuntimeError):
            while True:
                taken.append(torch.empty(1 << 24))  # of what the tests before this one have freed
        with pytest.raises(UserError, match=r"last_model_chain_200\.pth .*\(there is not enough memory for it\)$"):
            newest_whole(tmp_path, "chain")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        taken.clear()
    assert (newest_whole(tmp_path, "chain") or ("",))[0] == unreadable


def test_a_torn_one_that_is_written_again_takes_its_own_place(tmp_path: Path, agent: Agent) -> None:
    first = TwoNewest(tmp_path, "chain")
    save(first, agent, 100, 100)
    save(first, agent, 200, 200)
    flip(tmp_path / "last_model_chain_200.pth")
    second = TwoNewest(tmp_path, "chain")
    # Mutation: take any file that was there for the newest checkpoint, and the log is never trimmed.
    second.newest, _ = newest_whole(tmp_path, "chain") or (None, {})
    second.needs = {0: 100}
    assert save(second, agent, 200, 200) == {0: 100}
    assert (newest_whole(tmp_path, "chain") or ("",))[0] == tmp_path / "last_model_chain_200.pth"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_one_damaged_file_never_costs_the_run(tmp_path: Path, agent: Agent, seed: int) -> None:
    # Mutation: let `save` return the needs of the checkpoint that it writes.
    dice = random.Random(seed)
    folder = tmp_path / "results"
    folder.mkdir()
    checkpoints, at, trimmed, written = TwoNewest(folder, "chain"), 0, 0, 0
    for number in range(1, 40):
        at += dice.choice((0, 0, 1, 7))
        trimmed = max(trimmed, save(checkpoints, agent, at, number).get(0, 0))
        written = len(steps(folder))
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        dice.choice(DAMAGES)(copy / f"last_model_chain_{steps(copy)[-1]}.pth")
        if written > 1:
            _, older = newest_whole(copy, "chain") or (None, {})
            assert older["needs"] >= trimmed, "the log lacks what this one needs"
        if dice.random() < 0.3:  # killed, perhaps with a torn newest one
            folder = copy.rename(tmp_path / f"results{number}") if written > 1 and dice.random() < 0.5 else folder
            checkpoints = TwoNewest(folder, "chain")
            checkpoints.newest, saved = newest_whole(folder, "chain") or (None, {})
            checkpoints.needs, at = {0: saved["needs"]}, saved["T_learner"]
        shutil.rmtree(copy, ignore_errors=True)
    assert written == 2 and trimmed > 10
    assert snapshot.last_models(folder, "chain")
