"""A whole system for the tests: a learner and its actors as processes, and what they leave behind."""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import redis
import torch

from memory.messages import Episode, decode_message
from saber.results.training_log import read_records
from tests.deadline import finish, wait_until

ROOT = Path(__file__).parent.parent
LEARNER = "learner"


class Result(NamedTuple):
    """What must not depend on anybody's speed."""

    weights: str  # their hash, as the learner prints it at its end
    scores: bytes  # the training log
    values: list[str]  # the learner's estimates, as printed
    best: list[bytes]  # T_learner and the parameters of the best snapshot, if there were episodes enough for one


class System:
    """Starts a learner and actors 0 to n - 1; `launch` is the module through which they are launched.

    `environment` has more variables for the learner and for every actor; `port` 0 says that they name the server.
    """

    def __init__(
        self,
        port: int,
        name: str,
        folder: Path,
        options: list[str],
        *,
        actors: int = 1,
        launch: str = "launch",
        environment: dict[str, dict[str, str]] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._launch = [sys.executable, "-m", f"tests.chain.{launch}"]
        self._environment = environment or {}
        self._options = [*options, "--nb-actor", str(actors), *(["--port-redis", str(port)] if port else [])]
        self._options += ["--run-name", name, "--path-to-results", str(folder)]
        self.processes = {who: self.start(who) for who in (LEARNER, *map(str, range(actors)))}

    def start(self, who: str, *more: str) -> subprocess.Popen[bytes]:
        program = ["launch_learner.py"] if who == LEARNER else ["launch_actor.py", "--id-actor", who]
        with self._output(who).open("ab") as output:
            command = [*self._launch, *program, *self._options, *more]
            environment = os.environ | self._environment.get(LEARNER if who == LEARNER else "actor", {})
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)

    def restart(self, who: str, how: signal.Signals, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Stop one process; actors leave with a learner that says goodbye, so then they start again, too."""
        self.processes[who].send_signal(how)
        finish(self.processes[who], 120)
        meanwhile()
        for other in self.processes:
            if other == who or (who == LEARNER and how == signal.SIGTERM):
                self.processes[other].terminate()
                finish(self.processes[other], 120)
                self.processes[other] = self.start(other)

    def wait_for(self, who: str, text: str, times: int = 1) -> None:
        """Wait until a process has printed a text so many times."""

        def has_printed() -> bool:
            assert self.processes[who].poll() is None, f"{text!r} never came:\n{self.said()}"
            return self.printed(who).count(text) >= times

        wait_until(has_printed, lambda: f"{text!r}:\n{self.said()}", 400, every=0.05)

    def finish(self) -> Result:
        """Wait for the learner, send the actors home, and see what came out."""
        wait_until(
            lambda: self.processes[LEARNER].poll() is not None, lambda: f"the learner to finish:\n{self.said()}", 400
        )
        assert self.processes[LEARNER].returncode == 0, self.said()
        for process in self.processes.values():
            process.terminate()  # an actor that has just been restarted waits for a next run
            finish(process, 120)
        said = self._output(LEARNER).read_text()
        (log,) = self.folder.glob("*.csv")
        weights = re.findall(r"Finished at T = \d+, weights ([0-9a-f]{16})\n", said)
        assert len(weights) == 1, said
        return Result(weights[0], log.read_bytes(), re.findall("Mean value.*", said), best_weights(self.folder))

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def said(self) -> str:
        """The last words of everybody."""
        return "\n".join(f"{who}: {self._output(who).read_text()[-1000:]}" for who in self.processes)

    def printed(self, who: str) -> str:
        """All that a process has printed."""
        return self._output(who).read_text()

    def _output(self, who: str) -> Path:
        return self.folder / f"{who}.txt"


def best_weights(folder: Path) -> list[bytes]:
    found = []
    for path in folder.glob("best_model_*.pth"):
        saved = torch.load(path, weights_only=True)
        found.append(str(saved["T_learner"]).encode())
        found += [value.numpy().tobytes() for value in saved["model_state_dict"].values()]
    return found


def unlogged(port: int, run_name: str, folder: Path) -> set[tuple[int, int, int]]:
    """Actor, environment and number of each episode that is in a run's log in Redis, and in no CSV of the folder."""
    with redis.Redis(port=port) as client:
        logs = [client.xrange(key) for key in client.scan_iter(match=f"riqx:{{{run_name}}}:*:log:*")]
    messages = [decode_message(fields[b"m"], 1 << 24) for log in logs for _, fields in log]
    told = [message.record for message in messages if isinstance(message, Episode)]
    assert told, "no actor has told of an episode"
    records = [record for path in folder.glob("*.csv") for record in read_records(path)]
    return {(int(told["actor"]), int(told["env"]), int(told["episode"])) for told in told} - {
        (record.actor, record.env, record.episode) for record in records
    }


class Stalls(threading.Thread):
    """Freezes processes of a system, one at a time at random, for moments; use as a context manager."""

    def __init__(self, system: System, who: list[str], seed: int) -> None:
        super().__init__(name=f"stalls {who}")
        self._system = system
        self._who = who
        self._random = random.Random(seed)
        self._done = threading.Event()
        self._count = 0

    def __enter__(self) -> "Stalls":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self.join()
        assert any(error) or not self._who or self._count >= 3, "hardly anybody was frozen"

    def run(self) -> None:
        while self._who and not self._done.wait(self._random.uniform(0.1, 0.3)):
            if not any(self._system.folder.glob("*.csv")):
                continue  # the learner is still starting
            process = self._system.processes[self._random.choice(self._who)]
            process.send_signal(signal.SIGSTOP)
            time.sleep(self._random.uniform(0.05, 0.35))
            process.send_signal(signal.SIGCONT)
            self._count += 1
