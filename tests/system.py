"""A whole system for the tests: a learner and its actors as processes, and what they leave behind."""

import random
import re
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import redis
import torch

from rainbow_iqn_apex.memory.messages import Episode, decode_message
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.processes import Process, Processes, clean_environment

LEARNER, EVALUATION = "learner", "evaluation"
EVALUATORS = [f"evaluator {number}" for number in range(3)]  # evaluation actors
SERVERS = [f"server {number}" for number in range(2)]  # of inference
PROGRAMS = {LEARNER: ["launch_learner.py"], EVALUATION: ["test_multiple_seed.py"]}  # and actors, by their numbers
PROGRAMS |= {who: ["launch_actor.py", "--id-eval-actor", who.split()[1]] for who in EVALUATORS}
PROGRAMS |= {who: ["launch_inference.py", "--id-inference", who.split()[1]] for who in SERVERS}


class Result(NamedTuple):
    """What must not depend on anybody's speed."""

    weights: str  # their hash, as the learner prints it at its end
    scores: bytes  # the training log
    values: list[str]  # the learner's estimates, as printed
    best: list[bytes]  # T_learner and the parameters of the best snapshot, if there were episodes enough for one


class Run:
    """Starts the programs of one run: the learner, actors by their numbers, an evaluation; a context manager.

    They know the chain, and `change` names a change of `tests.chain.changes` to each. `environment` has more variables
    for the learner and for every actor; with `port` 0 these name the server. `fresh` is that of `Processes.start`.
    """

    _actors = 0  # for whom the options are; 0: those that the options name
    _keeps_output = False  # in one file for all that is written under a name, errors too
    _launch: Sequence[str] = ("tests.chain.launch",)

    def __init__(
        self,
        port: int,
        name: str,
        folder: Path,
        options: list[str],
        *,
        actors: int | None = None,
        change: str = "nothing",
        environment: dict[str, dict[str, str]] | None = None,
        fresh: bool = False,
    ) -> None:
        self.folder = folder
        self._actors = self._actors if actors is None else actors
        self.options = [*options, *(["--nb-actor", str(self._actors)] if self._actors else [])]
        self.options += ["--port-redis", str(port)] if port else []
        self.options += ["--run-name", name, "--path-to-results", str(folder)]
        self.processes: dict[str, Process] = {}
        self._change = change
        self._fresh = fresh
        self._environment = environment or {}
        self._all = Processes()

    def start(self, who: str, *more: str, change: str = "") -> Process:
        """Start a program under its name, in the place of the one before it."""
        self.processes[who] = self.beside(who, *more, change=change)
        return self.processes[who]

    def beside(self, who: str, *more: str, change: str = "") -> Process:
        """Start a program that takes no other's place."""
        program = PROGRAMS.get(who, ["launch_actor.py", "--id-actor", who])
        words = ["-m", *self._launch, change or self._change, *program, *self.options, *more]
        environment = clean_environment() | self._environment.get(LEARNER if who == LEARNER else "actor", {})
        output = self.folder / f"{who}.txt" if self._keeps_output else None
        return self._all.start(
            *words, environment=environment, output=output, together=self._keeps_output, fresh=self._fresh
        )

    def refusal(self, who: str, *more: str, lines: int = 1, change: str = "") -> str:
        """Return the lines of errors with which a program refuses to start; it takes no other's place."""
        code, _, errors = self.beside(who, *more, change=change).end()
        assert (code, errors.count("\n")) == (2, lines), errors
        return errors

    def last_words(self) -> str:
        """Quote the last words of everybody."""
        return self._all.last_words()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._all.close()


class System(Run):
    """A whole run: its block begins with a learner and actors 0 to n - 1, each with a file in the run's folder."""

    _actors = 1
    _keeps_output = True

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        for who in (LEARNER, *map(str, range(self._actors))):
            self.start(who)
        return self

    @property
    def learner(self) -> Process:
        return self.processes[LEARNER]

    def printed(self, who: str) -> str:
        """Return all that was written under a name, by those it has replaced as well."""
        return self.processes[who].output

    def restart(self, who: str, how: signal.Signals, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Stop one process; actors leave with a learner that says goodbye, so then they start again, too."""
        self.processes[who].send(how)
        self.processes[who].finish(120)
        meanwhile()
        for other in self.processes:
            if other == who or (who == LEARNER and how == signal.SIGTERM):
                self.processes[other].terminate()
                self.processes[other].finish(120)
                self.start(other)

    def wait_for(self, who: str, text: str, times: int = 1) -> None:
        """Wait until a text has been written so many times under a name."""
        self.processes[who].wait_for(text, times, 400)

    def finish(self) -> Result:
        """Wait for the learner, send the actors home, and see what came out."""
        assert self.learner.finish(400) == 0, self.last_words()
        for process in self.processes.values():
            process.terminate()  # an actor that has just been restarted waits for a next run
            process.finish(120)
        printed = self.printed(LEARNER)
        (log,) = (path for path in self.folder.glob("*.csv") if not path.stem.endswith("_evaluation"))
        weights = re.findall(r"Finished at T = \d+, weights ([0-9a-f]{16})\n", printed)
        assert len(weights) == 1, printed
        return Result(weights[0], log.read_bytes(), re.findall("Mean value.*", printed), best_weights(self.folder))


def best_weights(folder: Path) -> list[bytes]:
    found = []
    for path in folder.glob("best_model_*.pth"):
        saved = torch.load(path, weights_only=True)
        found.append(str(saved["T_learner"]).encode())
        found += [value.cpu().numpy().tobytes() for value in saved["model_state_dict"].values()]
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
            self._system.processes[self._random.choice(self._who)].freeze(self._random.uniform(0.05, 0.35))
            self._count += 1
