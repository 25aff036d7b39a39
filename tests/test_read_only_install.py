"""An installation that its user may only read, and a user without an entry in passwd and without a home folder."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.fast import compiled
from tests.processes import ROOT, Processes, run
from tests.start_script import free_port

_USER = 54321
_CHANGE = ["--reuid", str(_USER), "--regid", str(_USER), "--clear-groups"]
# A checkout below /root is one that others may not read. They may with this capability, and still not write.
_READS = [f"--{which}=-all,+dac_read_search" for which in ("inh-caps", "ambient-caps", "bounding-set")]
_DRAW = """
import os, torch
from rainbow_iqn_apex.memory.fast import ring
from rainbow_iqn_apex.memory.fast.binary_tree import BinaryTree
try:
    open(ring.__file__, "a")
except PermissionError:
    tree = BinaryTree(3)
    tree.set(torch.tensor([1]), torch.tensor([2.0]))
    print(os.getuid(), tree.sample(torch.tensor([1.0])).tolist())
"""


@cache
def other_user() -> list[str] | None:
    """Options of setpriv for another user who can read the checkout; None if there is no way to become one."""
    for options in (_CHANGE, [*_CHANGE, *_READS]):
        words = ["setpriv", *options, "env", sys.executable, "-c", "import torch, rainbow_iqn_apex"]
        try:
            if not subprocess.run(words, cwd=ROOT, capture_output=True, check=False).returncode:
                return options
        except OSError:
            return None
    return None


@pytest.fixture
def become(tmp_path: Path) -> list[str]:
    """Words before a program that another user runs, whose folder for temporary files is `tmp_path`."""
    if os.getuid() or (options := other_user()) is None:
        pytest.skip("only root can become another user, who must be able to read the checkout")
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:2]:  # pytest's own are closed to others
        folder.chmod(0o755)
    clean = ["env", "-i", "HOME=/", f"PATH={os.environ['PATH']}", f"TMPDIR={tmp_path}"]
    return [*options, *clean, sys.executable]


def test_a_user_who_can_write_nowhere_else_keeps_compiled_code_in_a_folder_of_their_own(
    become: list[str], tmp_path: Path
) -> None:
    # Mutation: leave it to numba, which ends here with "no locator available".
    found = run(*become, "-c", _DRAW, program="setpriv").succeeded()
    assert found == f"{_USER} [1]\n"
    folder = tmp_path / f"rainbow_iqn_apex-{_USER}"
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (_USER, 0o700)
    assert list(folder.rglob("*.nbi"))


@pytest.mark.slow
def test_a_folder_of_somebody_else_is_not_used(become: list[str], tmp_path: Path) -> None:
    folder = tmp_path / f"rainbow_iqn_apex-{_USER}"
    folder.mkdir()
    folder.chmod(0o777)
    assert run(*become, "-c", _DRAW, program="setpriv").succeeded() == f"{_USER} [1]\n"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fault", ["none", "open to others", "a link", "no temporary folder"])
def test_only_a_private_folder_keeps_code(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: follow links; ask for nothing but a folder. Whoever can write there decides what is unpickled.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none" if fault == "no temporary folder" else tmp_path))
    folder = tmp_path / f"rainbow_iqn_apex-{os.getuid()}"
    if fault == "open to others":
        folder.mkdir()
        folder.chmod(0o770)
    elif fault == "a link":
        (tmp_path / "other").mkdir(mode=0o700)
        folder.symlink_to("other")
    assert compiled._private_folder() == (folder if fault == "none" else None)


@pytest.mark.slow
def test_a_run_by_a_user_without_a_home(become: list[str], tmp_path: Path, processes: Processes) -> None:
    results = tmp_path / "results"
    run_ = "--env gymnasium:CartPole-v1 --T-max 1500 --learn-start 500 --memory-capacity 2000 --hidden-size 16"
    more = f"--windows none --port-redis {free_port()} --path-to-results {results} --disable-cuda --preset cpu"
    start = processes.start(
        *become, "-m", "rainbow_iqn_apex.programs.start", *run_.split(), *more.split(), program="setpriv"
    )
    assert start.end(300).code == 0, start.output
    assert "the learner has ended with exit code 0" in start.output
    words = ["test_multiple_seed.py", "--model", results, "--path-to-results", results, "--evaluation-episodes", 2]
    run(*become, *words, program="setpriv", seconds=120).succeeded()
    assert list((results / "evaluations").glob("*.csv"))
    report = run(*become, "saber_report.py", results, "--output", tmp_path / "report", program="setpriv", seconds=120)
    assert (report.code, report.errors) == (0, ""), report.text
    assert not (ROOT / "~").exists()
