"""Does it learn? Named configurations, run as a user runs them: Redis, learner and actor, from one command.

    python -m benchmarks learning run cpu --game road_runner --seed 123
    python -m benchmarks learning run sb3-ppo --game pendulum --seed 123
    python -m benchmarks learning baselines --game road_runner
    python -m benchmarks learning report

`run` writes curve, wall-clock, machine and commit to benchmarks/results/. `baselines` measures the random policy and
the best constant action by the same protocol: the mean score of 20 consecutive episodes under SABER's rules, where
training takes its last 20. `report` compares them, ours with Stable-Baselines3 (sb3-...), too, and draws
docs/learning.svg.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_plot import LAST
from benchmarks.learning_report import report
from benchmarks.learning_runs import summary, train, train_peer
from benchmarks.learning_tasks import CONFIGURATIONS, TASKS, environment_of
from benchmarks.peer_tasks import PEERS
from benchmarks.policies import best_constant_action, random_policy
from rainbow_iqn_apex.common.checkout import ROOT, commit
from rainbow_iqn_apex.common.errors import RunError, UserError

RESULTS = ROOT / "benchmarks" / "results"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their options."""
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("run", help="train one configuration on one game")
    training.add_argument("configuration", choices=CONFIGURATIONS | PEERS)
    training.add_argument("--seed", type=int, default=123)
    training.add_argument("--port", type=int, default=6390, help="for the run's own Redis server [%(default)s]")
    training.add_argument("--steps", type=int, help="other agent steps, to see that it runs; then nothing is written")
    playing = commands.add_parser("baselines", help="measure the random policy and the best constant action")
    commands.add_parser("report", help="compare what was measured")
    for command in (training, playing):
        command.add_argument("--game", required=True, help=f"of Atari, or {' or '.join(TASKS)}")


def measure(args: argparse.Namespace) -> tuple[()]:
    """Run the command; raises UserError for a game that it is not for."""
    if args.command == "run":
        _run(args)
    elif args.command == "baselines":
        write(_baselines(args.game))
    else:
        try:
            print(report(RESULTS, ROOT / "docs"))
        except ValueError as error:
            raise RunError(str(error)) from None
    return ()


def _run(args: argparse.Namespace) -> None:
    name, game = args.configuration, args.game
    tasks = {task: peer.steps for task, peer in PEERS[name].items()} if name in PEERS else CONFIGURATIONS[name].steps
    if game not in tasks:
        raise UserError(f"--game: {name} is for {', '.join(tasks)}")
    steps = args.steps or tasks[game]
    if name in PEERS:
        result = train_peer(name, game, args.seed, steps)
    else:
        result = train(name, game, args.seed, steps, args.port)
    if args.steps:
        print(result["last_episodes"], f"{result['wall_clock_s']} s")
    else:
        write(result)


def _baselines(game: str) -> dict[str, Any]:
    """Measure the scores of the random policy and of the best constant action."""
    seed = 123
    try:
        settings = environment_of(game)
    except ValueError as error:
        raise UserError(f"--game: {error}") from None
    action, constant = best_constant_action(settings, seed, LAST)
    return {
        "configuration": "baselines",
        "game": game,
        "seed": seed,
        "commit": commit(),
        "random": summary(random_policy(settings, seed, LAST)),
        "best_constant_action": summary(constant) | {"action": np.asarray(action).tolist()},
    }


def write(result: dict[str, Any]) -> None:
    """Write a result into the folder of results, and show what is short of it."""
    path: Path = RESULTS / f"{result['configuration']}_{result['game']}_{result['seed']}.json"
    path.write_text(json.dumps(result) + "\n")
    shown = {name: value for name, value in result.items() if name not in ("settings", "episodes", "clock", "curve")}
    print(path, shown, file=sys.stderr)
