"""Does it learn? Named configurations, run as a user runs them: Redis, learner and actor, from one command.

    python -m benchmarks.learning run cpu --game road_runner --seed 123
    python -m benchmarks.learning baselines --game road_runner
    python -m benchmarks.learning report

`run` writes curve, wall-clock, machine and commit to benchmarks/results/. It stops a run at a step count that was fixed
beforehand, so that whatever depends on the length of the whole run is as a user has it. `baselines` measures the random
policy and the best constant action by the same protocol: the mean score of 20 consecutive episodes under SABER's rules,
where training takes its last 20. `report` compares them, and draws docs/learning.svg.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environment_info import machine
from benchmarks.learning_plot import LAST
from benchmarks.learning_report import Score, report
from benchmarks.learning_tasks import CONFIGURATIONS, TASKS, environment_of, options_of
from benchmarks.policies import best_constant_action, random_policy
from rainbow_iqn_apex import args as options_of_programs
from rainbow_iqn_apex.saber.results.run_record import commit
from rainbow_iqn_apex.saber.results.training_log import TrainingLog

_LOG_INTERVAL = 1000  # agent steps; all lengths of runs are multiples of it
_MOST_EPISODES = 3000  # before those that make a run's score

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def run(name: str, game: str, seed: int, port: int) -> dict[str, Any]:
    """Train once, and stop when the agent steps are made; raises RuntimeError if the run ends before."""
    configuration = CONFIGURATIONS[name]
    steps = configuration.steps[game]
    options = [*options_of(game), "--seed", str(seed), *configuration.options]
    options += ["--T-max", str(steps)] if configuration.ends else []
    parsed = options_of_programs.parse(options, "benchmarks.learning", "")
    about = {
        "configuration": name,
        "game": game,
        "seed": seed,
        "command": " ".join(["bash start_learning_atari.sh", *options]),
        "settings": parsed.settings,
        "date": date.today().isoformat(),
        "commit": commit(),  # now: the checkout may be another one when the run ends
        "machine": machine(),
        "agent_steps": steps,
    }
    subprocess.run(["bash", "make_environment.sh"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        place = ["--path-to-results", folder, "--port-redis", str(port), "--windows", "none"]
        place += ["--log-interval", str(_LOG_INTERVAL)]  # of two options the last one counts
        begun = time.monotonic()
        clock = _run_until(steps, ["bash", "start_learning_atari.sh", *options, *place])
        seconds = time.monotonic() - begun
        episodes = [
            record for record in TrainingLog(Path(folder, f"{parsed.task}.csv")).records if record.T_actors <= steps
        ]
    return about | {
        "wall_clock_s": round(seconds, 1),
        "last_episodes": summary([record.score_saber for record in episodes[-configuration.episodes :]]),
        "episodes": thinned(
            [[record.T_actors, record.score_saber, record.length] for record in episodes], configuration.episodes
        ),
        "clock": clock,
    }


def thinned(episodes: list[list[float]], last: int) -> list[list[float]]:
    """Return the last episodes, and of those before them every so many, for a file of less than 100 KB."""
    before, kept = episodes[:-last], episodes[-last:]
    return before[:: max(1, -(-len(before) // _MOST_EPISODES))] + kept


def _run_until(steps: int, command: list[str]) -> list[tuple[int, float]]:
    """Run the start script until the learner has passed these agent steps; what it says is shown if it fails.

    Returns the seconds at which it passed some numbers of agent steps.
    """
    said, clock, begun = [], [], time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        stopping = False
        for line in process.stdout:
            said.append(line)
            if not (passed := re.match(r"\[learner\] \[.*\] T = (\d+) / ", line)):
                continue
            if int(passed[1]) % (10 * _LOG_INTERVAL) == 0:
                clock.append((int(passed[1]), round(time.monotonic() - begun, 1)))
            # One line later, as the episodes of the last round are logged when the next one begins.
            if int(passed[1]) > steps and not stopping:
                process.terminate()
                stopping = True
    has_ended = stopping or "Finished at T" in "".join(said)
    if not has_ended or process.returncode:
        raise RuntimeError(f"{' '.join(command)} has ended with exit code {process.returncode}:\n{''.join(said[-20:])}")
    return clock


def baselines(game: str) -> dict[str, Any]:
    """Score of the random policy and of the best constant action."""
    seed = 123
    settings = environment_of(game)
    action, constant = best_constant_action(settings, seed, LAST)
    return {
        "configuration": "baselines",
        "game": game,
        "seed": seed,
        "commit": commit(),
        "random": summary(random_policy(settings, seed, LAST)),
        "best_constant_action": summary(constant) | {"action": np.asarray(action).tolist()},
    }


def summary(scores: Sequence[float]) -> Score:
    """Mean of some episodes, and its standard error: None if there is but one."""
    return {
        "episodes": len(scores),
        "mean": statistics.mean(scores),
        "standard_error": statistics.stdev(scores) / len(scores) ** 0.5 if len(scores) > 1 else None,
    }


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("run", help="train one configuration on one game")
    training.add_argument("configuration", choices=CONFIGURATIONS)
    training.add_argument("--seed", type=int, default=123)
    training.add_argument("--port", type=int, default=6390, help="for the run's own Redis server [6390]")
    playing = commands.add_parser("baselines", help="measure the random policy and the best constant action")
    commands.add_parser("report", help="compare what was measured")
    for command in (training, playing):
        command.add_argument("--game", required=True, help=f"of Atari, or {' or '.join(TASKS)}")
    given = parser.parse_args()
    try:
        if given.command == "report":
            print(report(RESULTS, ROOT / "docs"))
        elif given.command == "run":
            if given.game not in (steps := CONFIGURATIONS[given.configuration].steps):
                parser.error(f"--game: {given.configuration} is for {', '.join(steps)}")
            write(run(given.configuration, given.game, given.seed, given.port))
        else:
            try:
                environment_of(given.game)
            except ValueError as error:
                parser.error(f"--game: {error}")
            write(baselines(given.game))
    except (RuntimeError, ValueError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


def write(result: dict[str, Any]) -> None:
    """Write a result into the folder of results, and show what is short of it."""
    path = RESULTS / f"{result['configuration']}_{result['game']}_{result['seed']}.json"
    path.write_text(json.dumps(result) + "\n")
    shown = {name: value for name, value in result.items() if name not in ("settings", "episodes", "clock")}
    print(path, shown, file=sys.stderr)


if __name__ == "__main__":
    main()
