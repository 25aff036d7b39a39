"""One stop: a program of a small run is started, met at some moment, told to stop, and watched until it has ended."""

import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.processes import Process, Processes, wait_for_ends
from tests.small import CARTPOLE, FREE, TINY

LEARNER, ACTOR, EVALUATION, REPORT = "launch_learner.py", "launch_actor.py", "test_multiple_seed.py", "saber_report.py"
SETTINGS = [
    *CARTPOLE,
    *TINY,
    *"--learn-start 600 --memory-capacity 20000 --replay-frequency 4 --weight-synchro-frequency 100".split(),
    *"--evaluation-interval 1000 --log-interval 200 --learner-threads 1".split(),
]
UNTIED = (*FREE, "--force")
EVALUATE = ["--evaluation-episodes", "100000", "--evaluation-workers", "2"]
END_S = 30.0
TOLD = (  # what a program is doing after such a line
    ("waits for Redis", r"Waiting for the Redis server"),
    ("ends", r"Finished|Stopped|actor 0 leaves"),
    ("saves", r"Stopping"),
    ("evaluates", r"^episode "),
    ("trains or plays", r"T = \d+ /"),
    ("begins", r"Learner of run|Actor 0 plays|CartPole-v1: \d+ episodes"),
    ("waits for a lease", r"Waiting for the lease"),
    ("waits", r"Waiting for"),
    ("builds", r"Budget|Resuming"),
)


class Scene(NamedTuple):
    """What is going on when the signal comes."""

    name: str
    stopped: str  # the program that is stopped
    others: tuple[str, ...] = ()  # that run beside it
    ready: str = ""  # the signal comes after this line of the stopped program; without one, while that loads
    latest_s: float = 4.0  # after that line, at most; without one, of the program's own processor time
    frozen: bool = False  # Redis answers no more at the signal
    killed: bool = False  # the stopped program is a successor of one that was killed
    more: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = (0,)


LOADS = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
SCENES = (
    Scene("learner loads", LEARNER, (ACTOR,), exit_codes=(0, *LOADS)),
    Scene("learner loads, Redis frozen", LEARNER, frozen=True, exit_codes=(0, 1, *LOADS)),
    Scene("learner without actors", LEARNER, (), "Budget", 12.0),
    Scene("learner begins", LEARNER, (ACTOR,), "Budget"),
    Scene("learner trains", LEARNER, (ACTOR,), r"T = \d+ /"),
    Scene("learner trains, no lockstep", LEARNER, (ACTOR,), r"T = \d+ /", more=UNTIED),
    Scene("learner after a killed one", LEARNER, (ACTOR,), "lease|Budget", killed=True),
    Scene("learner after one, no lockstep", LEARNER, (ACTOR,), "lease|Budget", killed=True, more=UNTIED),
    Scene("learner trains, Redis frozen", LEARNER, (ACTOR,), r"T = \d+ /", frozen=True, exit_codes=(0, 1)),
    Scene("learner waits, Redis frozen", LEARNER, (), "Budget", 12.0, frozen=True, exit_codes=(0, 1)),
    Scene("actor loads", ACTOR, (LEARNER,), exit_codes=(0, *LOADS)),
    Scene("actor without a learner", ACTOR, (), "Waiting for"),
    Scene("actor begins", ACTOR, (LEARNER,), "plays"),
    Scene("actor plays", ACTOR, (LEARNER,), r"T = \d+ /"),
    Scene("actor plays, no lockstep", ACTOR, (LEARNER,), r"T = \d+ /", more=UNTIED),
    Scene("actor after a killed one", ACTOR, (LEARNER,), "lease|plays", killed=True),
    Scene("actor plays, Redis frozen", ACTOR, (LEARNER,), r"T = \d+ /", frozen=True, exit_codes=(0, 1)),
    Scene("evaluation loads", EVALUATION, exit_codes=(0, *LOADS)),
    Scene("evaluation begins", EVALUATION, (), "plays"),
    Scene("evaluation", EVALUATION, (), "^episode 0", 2.0),
    Scene("report", REPORT, latest_s=0.8, exit_codes=(0, 130, -signal.SIGTERM, -signal.SIGHUP)),
)


class Stop(NamedTuple):
    """How a program met a signal."""

    scene: str
    phase: str
    signal: str
    exit_code: int
    seconds: float  # from the signal to the end
    output: str


class Stage:
    """A run's folder and Redis server, and the programs that were started there; a context manager."""

    def __init__(self, folder: Path, model: Path) -> None:
        folder.mkdir()
        self.results = folder / "results"
        self.server = RedisServer(folder)
        self._model = model
        self._processes = Processes()

    def start(self, program: str, more: tuple[str, ...], *, fresh: bool = False) -> Process:
        options = [*SETTINGS, "--port-redis", str(self.server.port), "--path-to-results", str(self.results), *more]
        if program == ACTOR:
            options += ["--id-actor", "0"]
        if program == EVALUATION:
            options = [*CARTPOLE, "--disable-cuda", "--model", str(self._model), *EVALUATE]
            options += ["--path-to-results", str(self.results)]
        if program == REPORT:
            options = [str(self._model.parent), "--output", str(self.results)]
        return self._processes.start(program, *options, together=True, fresh=fresh)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()
        self.server.close()


def stop_once(stage: Stage, scene: Scene, dice: random.Random) -> Stop:
    """Play a scene up to a random moment, and stop its program there."""
    stage.server.start()
    if scene.killed:
        _play_and_kill(stage, scene)
    others = {program: stage.start(program, scene.more) for program in scene.others}
    process = stage.start(scene.stopped, scene.more, fresh=not scene.ready)
    number = dice.choice([signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    if scene.ready:
        _wait(lambda: re.search(scene.ready, process.output, re.MULTILINE), process)
        time.sleep(dice.uniform(0, scene.latest_s))
    else:  # Python itself answers a Ctrl-C with a traceback until it reads a program's first line
        used = dice.uniform(0.2 if number is signal.SIGINT else 0, scene.latest_s)
        _wait(lambda: _processor_time(process) > used, process, seconds=4 * scene.latest_s)
    if scene.frozen:
        stage.server.pause()
    phase = _phase(process.output)
    assert process.exit_code is None, f"it has ended by itself: {process.output}"
    children = process.children()
    process.send_to_group(number)
    start = time.monotonic()
    code = process.finish(END_S)
    stop = Stop(scene.name, phase, number.name, code, time.monotonic() - start, process.output)
    wait_for_ends(children)
    stage.server.go_on()
    for other in others.values():
        if scene.stopped == ACTOR or "Stopped at T" not in stop.output or "plays" not in other.output:
            other.terminate()  # else an actor leaves with the learner that has led its run
        other.finish()
    return stop


def _play_and_kill(stage: Stage, scene: Scene) -> None:
    """Let a predecessor of the stopped program come so far that its successor has something to go on with."""
    processes = {program: stage.start(program, scene.more) for program in (*scene.others, scene.stopped)}
    for process in processes.values():
        _wait(partial(_has_come_far, process), process)
    processes.pop(scene.stopped).kill()
    for process in processes.values():
        process.kill()


def _has_come_far(process: Process) -> bool:
    return "T = 800 /" in process.output


def _phase(said: str) -> str:
    told = [name for line in said.splitlines() for name, words in TOLD if re.search(words, line)]
    return told[-1] if told else "imports"


def _processor_time(process: Process) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


def _wait(true: Callable[[], object], process: Process, seconds: float = 120) -> None:
    """Wait until it is so, until the process has ended or for some seconds: the signal is worth sending in any case."""
    with suppress(AssertionError):
        wait_until(lambda: process.exit_code is not None or true(), "the moment", seconds, every=0.01)
