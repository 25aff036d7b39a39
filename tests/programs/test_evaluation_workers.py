"""The processes of an evaluation: how they are told to stop, and what happens when one of them dies."""

import multiprocessing
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.programs.evaluation import workers
from rainbow_iqn_apex.programs.python_interface import evaluate
from tests import specs
from tests.deadline import wait_until
from tests.processes import ROOT, clean_environment
from tests.small import CARTPOLE, TINY, save_untrained


def test_files_of_another_evaluation_are_refused_before_any_game_is_played(tmp_path: Path) -> None:
    # Mutation: look at each game's files when its turn comes.
    env = "gymnasium:CartPole-v1,CartPole-v0"
    path = save_untrained(tmp_path / "cart.pth", ["--env", env, "--history-length", "1", *TINY], specs.CARTPOLE)
    other = tmp_path / "evaluations" / "CartPole-v0_cart_seed123.csv"
    other.parent.mkdir()
    other.touch()
    with pytest.raises(UserError, match=r"CartPole-v0_cart_seed123.csv: how it was made is not known"):
        evaluate(path, env=env, evaluation_episodes=1, evaluation_workers=1, path_to_results=tmp_path)
    assert list(other.parent.glob("*.csv")) == [other]


@pytest.mark.slow
def test_a_death_ends_the_processes_of_the_evaluation_and_no_others_of_a_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutations: kill all children of this process; after a death, do not report what has ended.
    path = save_untrained(tmp_path / "cart.pth", [*CARTPOLE, *TINY], specs.CARTPOLE)
    scores = tmp_path / "evaluations" / "CartPole-v1_cart_seed123.csv"
    own = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    own.start()
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = {"env": CARTPOLE[1], "evaluation_episodes": 100_000, "evaluation_workers": 2}
            evaluation = pool.submit(evaluate, path, path_to_results=tmp_path, disable_cuda=True, **asked)
            wait_until(lambda: scores.exists() and scores.read_bytes().count(b"\n") > 3, "three episodes", 200)
            next(child for child in multiprocessing.active_children() if child.pid != own.pid).kill()
            with pytest.raises(
                RunError,
                match="a process of the evaluation was killed by SIGKILL, perhaps for want of memory: try fewer",
            ):
                evaluation.result()
        assert multiprocessing.active_children() == [own]
        printed = capsys.readouterr().out
        assert scores.read_bytes().count(b"\n") > 3 and "stopped: " in printed and "episodes: " in printed
    finally:
        own.kill()
        own.join()


class OddError(Exception):
    """An environment's own, which cannot be made from its text alone."""

    def __init__(self, level: str, place: int) -> None:
        super().__init__(f"no {level} at {place}")


@pytest.mark.parametrize("error", [OddError("level", 3), LookupError("no level at 3")], ids=lambda each: repr(each))
def test_what_somebody_s_environment_raises_reaches_the_evaluation(error: Exception) -> None:
    # Mutation: send each exception as it is: the evaluation cannot read this one, and waits for the process for ever.
    def play(_: workers.Task) -> workers.Played:
        raise error

    told = workers._play(cast(workers.EpisodePlayer, SimpleNamespace(play=play)), workers.Task(0, 1))
    found = pickle.loads(pickle.dumps(told))  # noqa: S301 - what was made here
    own = isinstance(error, LookupError)
    assert isinstance(found, LookupError if own else RunError) and "no level at 3" in str(found)
    assert "in play" in found.__notes__[0]


SCRIPT = """
import sys
from rainbow_iqn_apex import evaluate
evaluate(sys.argv[1], path_to_results=sys.argv[2], evaluation_episodes=2, evaluation_workers=2, disable_cuda=True)
"""
WITHOUT_SHARED_MEMORY = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$0" "$@"')


@pytest.mark.parametrize(
    ("before", "script", "error"),
    [
        ((), "-", "UserError: --evaluation-workers: a script read from standard input"),
        (WITHOUT_SHARED_MEMORY, "guarded", ""),
        pytest.param(
            (), "plain", "RunError: a process of the evaluation has ended with exit code 1", marks=pytest.mark.slow
        ),
    ],
)
def test_processes_that_cannot_begin_are_no_want_of_memory(
    before: tuple[str, ...], script: str, error: str, tmp_path: Path
) -> None:
    # Mutations: no look at the main module; at the exit codes of the processes; share memory with them.
    if before and subprocess.run([*before, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not hide /dev/shm")
    path = save_untrained(tmp_path / "cart.pth", [*CARTPOLE, *TINY], specs.CARTPOLE)
    (tmp_path / "plain").write_text(SCRIPT)
    (tmp_path / "guarded").write_text(SCRIPT.replace("evaluate(", "if __name__ == '__main__': evaluate(", 1))
    given = script if script == "-" else str(tmp_path / script)
    ended = subprocess.run(
        [*before, sys.executable, given, path, tmp_path / "results"],
        input=SCRIPT,
        capture_output=True,
        text=True,
        env=clean_environment() | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    if not error:
        assert ended.returncode == 0, ended.stderr
        return
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1 and "want of memory" not in last
    assert error in last and ("--evaluation-workers 1" in last) == error.startswith("UserError"), ended.stderr
