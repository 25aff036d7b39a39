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
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.environment_info import commit, machine
from benchmarks.learning_plot import LAST
from benchmarks.learning_report import report
from benchmarks.policies import best_constant_action, random_policy
from saber.training_log import TrainingLog

_LOG_INTERVAL = 1000  # agent steps; all lengths of runs are multiples of it

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
STEPS = 200_000  # agent steps of a run without a GPU, fixed before any was made
GAMES = ("road_runner", "kung_fu_master", "krull", "crazy_climber", "ms_pacman", "space_invaders")


@dataclass(frozen=True)
class Configuration:
    """Options of a run, and its agent steps per game."""

    options: tuple[str, ...]
    steps: dict[str, int]


CONFIGURATIONS = {
    "cpu": Configuration(("--preset", "cpu"), dict.fromkeys(GAMES, STEPS)),
    "cpu-float32": Configuration(("--preset", "cpu", "--precision", "float32"), dict.fromkeys(GAMES, STEPS)),
    # One update per agent step instead of one per four: an actor is slower than a GPU.
    "paper-pong": Configuration(
        ("--preset", "paper", "--replay-frequency", "1", "--learn-start", "20000", "--memory-capacity", "400000"),
        {"pong": 2_000_000},
    ),
}


def run(name: str, game: str, seed: int, port: int) -> dict[str, Any]:
    """Train once, and stop when the agent steps are made; raises RuntimeError if the run ends before."""
    configuration = CONFIGURATIONS[name]
    steps = configuration.steps[game]
    options = ["--game", game, "--seed", str(seed), *configuration.options]
    subprocess.run(["bash", "make_environment.sh"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="learning-") as folder:
        place = ["--path-to-results", folder, "--port-redis", str(port), "--windows", "none"]
        place += ["--log-interval", str(_LOG_INTERVAL)]
        begun = time.monotonic()
        _run_until(steps, ["bash", "start_learning_atari.sh", *options, *place])
        seconds = time.monotonic() - begun
        episodes = [record for record in TrainingLog(Path(folder, f"{game}.csv")).records if record.T_actors <= steps]
    return {
        "configuration": name,
        "game": game,
        "seed": seed,
        "command": " ".join(["bash start_learning_atari.sh", *options]),
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "agent_steps": steps,
        "wall_clock_s": round(seconds, 1),
        "last_episodes": summary([record.score_saber for record in episodes[-LAST:]]),
        "episodes": [[record.T_actors, record.score_saber, record.length] for record in episodes],
    }


def _run_until(steps: int, command: list[str]) -> None:
    """Run the start script until the learner has passed these agent steps; what it says is shown if it fails."""
    said = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        stopping = False
        for line in process.stdout:
            said.append(line)
            passed = re.match(r"\[learner\] \[.*\] T = (\d+) / ", line)
            # One line later, as the episodes of the last round are logged when the next one begins.
            if passed and int(passed[1]) > steps and not stopping:
                process.terminate()
                stopping = True
    if not stopping or process.returncode:
        raise RuntimeError(f"{' '.join(command)} has ended with exit code {process.returncode}:\n{''.join(said[-20:])}")


def baselines(game: str, seed: int) -> dict[str, Any]:
    """Score of the random policy and of the best constant action."""
    action, constant = best_constant_action(game, seed, LAST)
    return {
        "configuration": "baselines",
        "game": game,
        "seed": seed,
        "commit": commit(),
        "random": summary(random_policy(game, seed, LAST)),
        "best_constant_action": summary(constant) | {"action": action},
    }


def summary(scores: Sequence[float]) -> dict[str, float]:
    """Mean of some episodes, and its standard error."""
    return {
        "episodes": len(scores),
        "mean": statistics.mean(scores),
        "standard_error": statistics.stdev(scores) / len(scores) ** 0.5,
    }


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="benchmarks.learning", description=__doc__, formatter_class=_Formatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("run", help="train one configuration on one game")
    training.add_argument("configuration", choices=CONFIGURATIONS)
    training.add_argument("--port", type=int, default=6390, help="for the run's own Redis server [6390]")
    playing = commands.add_parser("baselines", help="measure the random policy and the best constant action")
    commands.add_parser("report", help="compare what was measured")
    for command in (training, playing):
        command.add_argument("--game", required=True)
        command.add_argument("--seed", type=int, default=123)
    given = parser.parse_args()
    if given.command == "report":
        print(report(RESULTS, ROOT / "docs" / "learning.svg"))
        return
    if given.command == "run":
        if given.game not in CONFIGURATIONS[given.configuration].steps:
            parser.error(f"--game: {given.configuration} is for {', '.join(CONFIGURATIONS[given.configuration].steps)}")
        result = run(given.configuration, given.game, given.seed, given.port)
    else:
        result = baselines(given.game, given.seed)
    path = RESULTS / f"{result['configuration']}_{given.game}_{given.seed}.json"
    path.write_text(json.dumps(result) + "\n")
    print(path, {name: value for name, value in result.items() if name != "episodes"}, file=sys.stderr)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    pass


if __name__ == "__main__":
    main()
