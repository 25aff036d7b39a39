"""Lockstep: the same seed gives the same run, whatever is killed or stopped on the way."""

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agents import snapshot
from tests.test_chain import ROOT, SETTINGS

MORE = "--nb-actor 2 --nb-env-per-actor 3 --learn-start 900 --T-max 3000 --evaluation-interval 250".split()


class System:
    """A learner and two actors as processes."""

    def __init__(self, port: int, name: str, folder: Path) -> None:
        self._options = [
            *SETTINGS,
            *MORE,
            "--port-redis",
            str(port),
            "--run-name",
            name,
            "--path-to-results",
            str(folder),
        ]
        self.processes = {who: self._start(who) for who in ("learner", "0", "1")}

    def _start(self, who: str) -> subprocess.Popen[bytes]:
        program = ["launch_learner.py"] if who == "learner" else ["launch_actor.py", "--id-actor", who]
        return subprocess.Popen([sys.executable, "-m", "tests.chain.launch", *program, *self._options], cwd=ROOT)

    def restart(self, who: str, how: signal.Signals) -> None:
        """Stop one process; actors leave with a learner that says goodbye, so then they start again, too."""
        self.processes[who].send_signal(how)
        self.processes[who].wait(30)
        for other in self.processes:
            if other == who or (who == "learner" and how == signal.SIGTERM):
                self.processes[other].terminate()
                self.processes[other].wait(30)
                self.processes[other] = self._start(other)

    def finish(self) -> None:
        assert self.processes["learner"].wait(120) == 0
        for process in self.processes.values():
            process.terminate()  # an actor that has just been restarted waits for a next run
            process.wait(30)

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def result(folder: Path) -> tuple[str, str]:
    """Hashes of the final weights and of the training log."""
    path = snapshot.find_last_model(folder, "chain")
    assert path is not None
    weights = hashlib.sha256()
    for tensor in snapshot.load(path, "test")["model_state_dict"].values():
        weights.update(tensor.numpy().tobytes())
    return weights.hexdigest(), hashlib.sha256((folder / "chain.csv").read_bytes()).hexdigest()


@pytest.mark.redis
@pytest.mark.slow
def test_kills_and_stops_leave_no_trace_in_the_result(redis_port: int, run_name: str, tmp_path: Path) -> None:
    results = {}
    for case, kills in {"undisturbed": 0, "disturbed": 6}.items():
        system = System(redis_port, f"{run_name}_{case}", tmp_path / case)
        dice = random.Random(1)
        try:
            for kill in range(kills):
                time.sleep(dice.uniform(2, 4))
                if system.processes["learner"].poll() is None:
                    who = ("0", "learner", "1")[kill % 3]
                    system.restart(who, signal.SIGKILL if kill < 3 else signal.SIGTERM)
            system.finish()
        finally:
            system.kill()
        results[case] = result(tmp_path / case)
    assert results["disturbed"] == results["undisturbed"]
    lines = (tmp_path / "disturbed" / "chain.csv").read_text().splitlines()[1:]
    keys = [tuple(line.split(",")[2:5]) for line in lines]
    assert len(set(keys)) == len(keys), "no episode twice"
    for env in {key[:2] for key in keys}:
        numbers = [int(key[2]) for key in keys if key[:2] == env]
        assert numbers == list(range(len(numbers))), "and none missing"
