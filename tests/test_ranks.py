"""Several learners of one run over processes: they learn and save together, and none waits for one that is gone."""

import csv
import json
import re
import signal
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.processes import Process, clean_environment
from tests.small import FAMILIES, FREE, SHORT_CHAIN
from tests.start_script import free_port
from tests.system import LEARNER, Result, System

pytestmark = pytest.mark.redis
RUNS = {"rainbow_iqn": SHORT_CHAIN, **FAMILIES}
SMALL = "--T-max 1600 --memory-capacity 4000".split()
GONE = "another learner of this run has ended or does not answer"
LEARNERS = (LEARNER, f"{LEARNER} 1")  # the one that leads, and the other


class Ranks(System):
    """A run with two learners, as torchrun starts them: each is a process with a number in its environment.

    Its block begins without them if nobody is to be `started`.
    """

    def __init__(
        self, port: int, name: str, folder: Path, options: list[str], *, actors: int = 2, started: bool = True
    ) -> None:
        super().__init__(port, name, folder, options, actors=actors)
        self._started = started
        self._words = ["-m", *self._launch, self._change, "launch_learner.py", *self.options]

    def __enter__(self) -> "Ranks":
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._started:
            self.start_learners()
            for actor in range(self._actors):
                self.start(str(actor))
        return self

    @property
    def learners(self) -> list[Process]:
        """All learners; the first one leads."""
        return [self.processes[who] for who in LEARNERS]

    def start_learners(self, *more: str) -> None:
        """Start all learners, the last one with more options."""
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
        for rank, who in enumerate(LEARNERS):
            environment = clean_environment() | meeting | {"RANK": str(rank), "WORLD_SIZE": str(len(LEARNERS))}
            self.processes[who] = self._all.start(
                *self._words, *(more if rank else ()),
                environment=environment, output=self.folder / f"{who}.txt", together=True,
            )  # fmt: skip

    def start_torchrun(self) -> Process:
        """Start all learners by torchrun."""
        return self._all.start(
            "--nproc-per-node", len(LEARNERS), "--master-addr", "127.0.0.1", "--master-port", free_port(), *self._words,
            program=str(Path(sys.executable).with_name("torchrun")),
            environment=clean_environment() | {"GLOO_SOCKET_IFNAME": "lo"},
            output=self.folder / "torchrun.txt", together=True,
        )  # fmt: skip


def words_of(family: str) -> list[str]:
    return [*RUNS[family], *SMALL]


def errors_of(process: Process) -> list[str]:
    """Return the lines with which a learner has ended."""
    return re.findall(r"(?m)^launch_learner.py: (?:error: )?(.*)$", process.output)


def actors_of(result: Result) -> set[int]:
    """Return the actors whose episodes are in the training log."""
    return {int(row["actor"]) for row in csv.DictReader(result.scores.decode().splitlines())}


@cache
def undisturbed(port: int, name: str, family: str) -> Result:
    """Return the result of a run that nothing happens to."""
    with Ranks(port, f"{name}-undisturbed", Path(mkdtemp()), words_of(family)) as system:
        return system.finish()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ppo", "rainbow_iqn", "impala", "impala-mix", "r2d2", "sac", "vmpo"])
def test_the_same_seed_gives_the_same_bytes(redis_port: int, run_name: str, tmp_path: Path, family: str) -> None:
    """All learners have the same weights at each checkpoint, too, or the run would have ended."""
    results = []
    for turn in ("first", "second"):
        with Ranks(redis_port, f"{run_name}-{turn}", tmp_path / turn, words_of(family), actors=4) as system:
            results.append(system.finish())
    assert results[0] == results[1]
    assert results[0].scores.count(b"\n") > 20
    assert actors_of(results[0]) == {0, 1, 2, 3}, "the log has the episodes of all learners' actors"
    if family == "rainbow_iqn":  # whose chunks are padded at the ends of episodes
        [history] = (tmp_path / "second").rglob("*_metrics.jsonl")
        newest = json.loads(history.read_text().splitlines()[-1])
        assert newest["values"]["buffer/rows"] >= 1500, "of all learners"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "how"),
    [
        ("rainbow_iqn", "SIGTERM"),
        ("rainbow_iqn", "SIGKILL"),
        ("rainbow_iqn", "SIGSTOP"),
        ("impala", "SIGTERM"),
        ("ppo", "SIGKILL"),
    ],
)
def test_learners_that_were_stopped_or_lost_one_go_on_exactly(
    redis_port: int, run_name: str, tmp_path: Path, family: str, how: str
) -> None:
    with Ranks(redis_port, run_name, tmp_path, words_of(family)) as system:
        system.wait_for(LEARNER, "T = 800 /")
        if how == "SIGTERM":
            for learner in system.learners:
                learner.terminate()
            assert [learner.finish(120) for learner in system.learners] == [0, 0]
            assert "Stopped at T = " in system.printed(LEARNER)
            for actor in ("0", "1"):
                system.processes[actor].finish(120)
                system.start(actor)
        else:
            lead, other = system.learners
            other.send(signal.Signals[how])
            assert lead.finish(60) == 1
            assert len(lines := errors_of(lead)) == 1, lines
            assert GONE in lines[0]
            other.send(signal.SIGKILL)
            other.finish(60)
        system.start_learners()
        result = system.finish()
    assert result == undisturbed(redis_port, run_name, family)


@pytest.mark.slow
def test_learners_without_lockstep_play_until_t_max(redis_port: int, run_name: str, tmp_path: Path) -> None:
    with Ranks(redis_port, run_name, tmp_path, [*words_of("impala"), *FREE]) as system:
        result = system.finish()
    assert actors_of(result) == {0, 1}


@pytest.mark.parametrize("more", [["--lr-IQN", "0.5"], ["--seed", "7"]], ids=" ".join)
def test_learners_with_different_settings_are_refused(
    redis_port: int, run_name: str, tmp_path: Path, more: list[str]
) -> None:
    with Ranks(redis_port, run_name, tmp_path, words_of("rainbow_iqn"), started=False) as system:
        system.start_learners(*more)
        assert [learner.finish(120) for learner in system.learners] == [2, 2]
        for learner in system.learners:
            (line,) = errors_of(learner)
            assert line.startswith(f"{more[0]}: is ")
            assert line.endswith("start all learners with the same settings")


@pytest.mark.slow
def test_torchrun_starts_learners_that_save_at_a_signal_and_another_number_is_refused(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    """The signal goes to torchrun, which hands it on; a run of two learners is not gone on with by one."""
    with Ranks(redis_port, run_name, tmp_path, words_of("rainbow_iqn"), started=False) as system:
        torchrun = system.start_torchrun()
        for actor in ("0", "1"):
            system.start(actor)
        torchrun.wait_for("T = 800 /", seconds=200)
        torchrun.terminate()
        torchrun.finish(120)
        assert re.search(r"Stopped at T = \d+, weights", torchrun.output), torchrun.output
        assert list(tmp_path.glob("last_model_*.pth"))
        alone = system.start(LEARNER)
        assert alone.finish(120) == 2
        assert "is of a run with 2 learners, and here are 1" in errors_of(alone)[-1]
        for actor in ("0", "1"):
            system.processes[actor].finish(120)
            system.start(actor)
        again = system.start_torchrun()
        assert again.finish(300) == 0, again.output
        assert re.search(r"Finished at T = \d+, weights", again.output)
