"""Trains: ours as a user does, from one command, and Stable-Baselines3 in its own environment. Both give one record.

A run stops at a step count that was fixed beforehand, so that whatever depends on the length of the whole run is as a
user has it. Both systems run for the same agent steps and seeds. `wall_clock_s` is that of the whole run, from the
command to its end: of ours with Redis, learner and actor, of the peer in its one process, with one thread.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.environment_info import machine
from benchmarks.learning_report import Score
from benchmarks.learning_tasks import CONFIGURATIONS, TASKS, options_of
from benchmarks.peer_environment import peer_python, peer_versions
from benchmarks.peer_tasks import PEERS
from benchmarks.processes import Passed, watch_start_script
from rainbow_iqn_apex import args as options_of_programs
from rainbow_iqn_apex.common.checkout import ROOT, commit
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.saber.results.training_log import read_records

_LOG_INTERVAL = 1000  # agent steps; all lengths of runs are multiples of it
_MOST_EPISODES = 3000  # before those that make a run's score


def train(name: str, game: str, seed: int, steps: int, port: int) -> dict[str, Any]:
    """Train our system once, with a Redis server at this port; raises RunError if the run ends before its steps."""
    configuration = CONFIGURATIONS[name]
    options = [*options_of(game), "--seed", str(seed), *configuration.options.split()]
    options += ["--T-max", str(steps)] if configuration.ends else []
    parsed = options_of_programs.parse(options, "benchmarks learning", "")
    described = describe(name, game, seed, " ".join(["bash start_learning_atari.sh", *options]), parsed.settings)
    subprocess.run(["bash", "make_environment.sh"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        place = ["--path-to-results", folder, "--port-redis", str(port), "--windows", "none"]
        place += ["--log-interval", str(_LOG_INTERVAL)]  # of two options the last one counts
        begun = time.monotonic()
        # One line later, as the episodes of the last round are logged when the next one begins.
        passed = watch_start_script([*options, *place], lambda lines: lines[-1].steps > steps)
        seconds = time.monotonic() - begun
        records = [it for it in read_records(Path(folder, f"{parsed.task}.csv")) if it.T_actors <= steps]
    episodes = [[record.T_actors, record.score_saber, record.length] for record in records]
    return described | {"agent_steps": steps} | _outcome(seconds, episodes, configuration.episodes, _clock(passed))


def train_peer(name: str, game: str, seed: int, steps: int) -> dict[str, Any]:
    """Train Stable-Baselines3 once, in the peers' environment; raises RunError if that fails."""
    peer = PEERS[name][game]
    settings = asdict(peer) | {"env": TASKS[game], "steps": steps, "seed": seed}
    command = f"python -m benchmarks learning run {name} --game {game} --seed {seed}"
    described = describe(name, game, seed, command, settings) | {"versions": peer_versions()}
    given = settings | {"env": TASKS[game].partition(":")[2]}
    begun = time.monotonic()
    done = subprocess.run(
        [str(peer_python()), "-P", str(ROOT / "benchmarks" / "sb3_learning.py")],
        input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )  # fmt: skip
    seconds = time.monotonic() - begun
    if done.returncode:
        raise RunError(f"{name} has ended with exit code {done.returncode}; its message is above")
    found = json.loads(done.stdout)
    return described | {"agent_steps": steps} | _outcome(seconds, found["episodes"], peer.episodes, found["clock"])


def describe(name: str, game: str, seed: int, command: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what a result says of its run, but for what was measured."""
    return {
        "configuration": name,
        "game": game,
        "seed": seed,
        "command": command,
        "settings": settings,
        "date": date.today().isoformat(),
        "commit": commit(),  # now: the checkout may be another one when the run ends
        "machine": machine(),
    }


def _outcome(seconds: float, episodes: list[list[float]], last: int, clock: list[Any]) -> dict[str, Any]:
    if not episodes:
        raise RunError("no episode has ended; --steps: give more of them")
    return {
        "wall_clock_s": round(seconds, 1),
        "last_episodes": summary([score for _, score, _ in episodes[-last:]]),
        "episodes": thinned(episodes, last),
        "clock": clock,
    }


def _clock(passed: list[Passed]) -> list[tuple[int, float]]:
    """Return the seconds at which some numbers of agent steps were passed."""
    return [(line.steps, round(line.seconds, 1)) for line in passed if line.steps % (10 * _LOG_INTERVAL) == 0]


def summary(scores: Sequence[float]) -> Score:
    """Return the mean of some episodes, and its standard error: None if there is but one."""
    return {
        "episodes": len(scores),
        "mean": statistics.mean(scores),
        "standard_error": statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else None,
    }


def thinned(episodes: list[list[float]], last: int) -> list[list[float]]:
    """Return the last episodes, and of those before them every so many, for a file of less than 100 KB."""
    before, kept = episodes[:-last], episodes[-last:]
    return before[:: max(1, -(-len(before) // _MOST_EPISODES))] + kept
