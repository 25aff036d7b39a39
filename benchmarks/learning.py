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
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from benchmarks.harness import machine
from benchmarks.peer_environment import peer_python, peer_versions
from benchmarks.plots import LAST, draw, number, save
from benchmarks.processes import Passed, watch_start_script
from benchmarks.tasks import CONFIGURATIONS, PEERS, TASKS, environment_of, options_of
from rainbow_iqn_apex import args as options_of_programs
from rainbow_iqn_apex.common.checkout import ROOT, commit
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete
from rainbow_iqn_apex.memory.rows import Array, StepType
from rainbow_iqn_apex.saber.results.training_log import read_records

RESULTS = ROOT / "benchmarks" / "results"
_LOG_INTERVAL = 1000  # agent steps; all lengths of runs are multiples of it
_MOST_EPISODES = 3000  # before those that make a run's score
_MIXED = "clear-"  # in names of configurations: mixed replay
_PLAIN = "-plain-"  # in names of configurations: no sticky actions
_TRIALS = 5  # episodes per action from which the best one is chosen; its score comes from others
_CONSTANTS = 64  # actions that are tried at the most
_LEVELS = (-1.0, 0.0, 1.0)  # of all numbers of a Box at once

Score = dict[str, Any]  # episodes, mean, standard_error (None of a single episode)
Action: TypeAlias = int | Array


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
    name = args.configuration
    game = args.game
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
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
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
    before = episodes[:-last]
    return before[:: max(1, -(-len(before) // _MOST_EPISODES))] + episodes[-last:]


def report(results: Path, docs: Path) -> str:
    """Return a table of all runs in a folder, with Welch's t against the baselines of the same task.

    Draws learning.svg into `docs`, of the Atari games: episodes of a few steps would be thousands of dots. Runs with
    mixed replay are in the table alone; those without sticky actions have no baselines.
    """
    measured = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    found = [result for result in measured if "last_episodes" in result]
    runs = [run for run in found if not run["configuration"].startswith(_MIXED)]
    baselines = {result["game"]: result for result in measured if "best_constant_action" in result}
    if lacking := sorted({run["game"] for run in runs} - baselines.keys()):
        raise ValueError(f"there are no baselines of {', '.join(lacking)}: measure them first")
    drawn = [run for run in runs if run["game"] not in TASKS]
    save(lambda: draw(drawn, baselines), docs / "learning.svg")
    lines = [
        "| run | seed | agent steps | minutes | commit | last episodes | random | t | best constant action | t |",
        "|" + "---|" * 10,
    ]
    lines += [_line(run, None if _PLAIN in run["configuration"] else baselines.get(run["game"])) for run in found]
    return "\n".join([*lines, *comparison(runs)])


def _line(result: dict[str, Any], baseline: dict[str, Any] | None) -> str:
    score = result["last_episodes"]
    cells = [
        f"{result['game']}, {result['configuration']}",
        str(result["seed"]),
        f"{result['agent_steps']:,}".replace(",", " "),
        f"{result['wall_clock_s'] / 60:.1f}",
        result["commit"],
        cell(score),
    ]
    for name in ("random", "best_constant_action"):
        cells += [number(baseline[name]["mean"]), f"{welch(score, baseline[name]):.1f}"] if baseline else ["", ""]
    return f"| {' | '.join(cells)} |"


def comparison(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of ours beside Stable-Baselines3, over the seeds that both have run; empty if there are none.

    The difference has Welch's interval of 95 %, of the last episodes of all those seeds. Speeds are of whole runs.
    """
    found = {(run["configuration"], run["game"], run["seed"]): run for run in runs}
    lines = []
    for name, tasks in PEERS.items():
        for game, peer in tasks.items():
            seeds = [seed for of, task, seed in found if (of, task) == (name, game)]
            seeds = sorted(seed for seed in seeds if (peer.ours, game, seed) in found)
            if peer.ours and seeds:
                pairs = [(found[peer.ours, game, seed], found[name, game, seed]) for seed in seeds]
                lines.append(_compared(game, peer.ours, name, pairs))
    head = "| task | ours | peer | seeds | ours, last episodes | peer's | difference, 95 % | steps/s, ratio |"
    return ["", head, "|" + "---|" * 8, *lines] if lines else []


def _compared(game: str, ours: str, peer: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    last = CONFIGURATIONS[ours].episodes
    scores = [[score for run in runs for _, score, _ in run["episodes"][-last:]] for runs in zip(*pairs, strict=True)]
    low, high = stats.ttest_ind(*scores, equal_var=False).confidence_interval(0.95)
    speeds = [[run["agent_steps"] / run["wall_clock_s"] for run in runs] for runs in zip(*pairs, strict=True)]
    ratios = [mine / other for mine, other in zip(*speeds, strict=True)]
    cells = [game, ours, peer, ", ".join(str(run["seed"]) for run, _ in pairs)]
    cells += [f"{len(of)}: {number(statistics.mean(of))}" for of in scores]
    cells.append(f"{number(statistics.mean(scores[0]) - statistics.mean(scores[1]))} ({low:.0f} to {high:.0f})")
    rates = " against ".join(f"{statistics.mean(of):.0f}" for of in speeds)
    cells.append(f"{rates}, {statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return f"| {' | '.join(cells)} |"


def cell(score: Score) -> str:
    """Return how many episodes have a score, its mean and the standard error."""
    error = score["standard_error"]
    return f"{score['episodes']}: {number(score['mean'])} ± {number(math.nan if error is None else error)}"


def welch(score: Score, other: Score) -> float:
    """Return the difference of two means in Welch standard errors; not a number if one is of a single episode.

    Of scores that never vary it is infinite, or not a number where they are equal.
    """
    if score["standard_error"] is None or other["standard_error"] is None:
        return math.nan
    difference = score["mean"] - other["mean"]
    error = math.hypot(score["standard_error"], other["standard_error"])
    if not error:
        return math.copysign(math.inf, difference) if difference else math.nan
    return float(difference / error)


def play(
    settings: EnvironmentSettings, seed: int, episodes: int, choose: Callable[[ActionSpec], Action]
) -> list[float]:
    """Return the scores of consecutive episodes, of Atari under SABER's rules; `choose` gets what the actions are."""
    environment = make_environment(settings, seed)
    scores = []
    for _ in range(episodes):
        row = environment.reset()
        score = 0.0
        while row.step_type != StepType.LAST:
            row = environment.step(choose(environment.spec.action))
            score += float(row.reward)
        scores.append(score)
    environment.close()
    return scores


def random_action(action: ActionSpec, generator: np.random.Generator) -> Action:
    """Draw an action uniformly."""
    if isinstance(action, Discrete):
        return int(generator.integers(action.count))
    if isinstance(action, Box):
        return generator.uniform(-1, 1, action.size).astype(np.float32)
    return generator.integers(action.counts)


def random_policy(settings: EnvironmentSettings, seed: int, episodes: int) -> list[float]:
    """Return scores under uniformly random actions."""
    generator = np.random.default_rng(seed)
    return play(settings, seed, episodes, lambda action: random_action(action, generator))


def constant_actions(action: ActionSpec) -> list[Action]:
    """Return the actions of which the best constant one is chosen.

    These are all choices, and of a Box the lowest, middle and highest numbers. Raises ValueError for too many choices.
    """
    if isinstance(action, Discrete):
        return list(range(action.count))
    if isinstance(action, Box):
        return [np.full(action.size, level, np.float32) for level in _LEVELS]
    if np.prod(action.counts, dtype=float) > _CONSTANTS:
        raise ValueError(f"more than {_CONSTANTS} combinations of choices: {action}")
    return [np.array(choices) for choices in product(*map(range, action.counts))]


def best_constant_action(settings: EnvironmentSettings, seed: int, episodes: int) -> tuple[Action, list[float]]:
    """Return the action that scores most when it is always taken, and its scores in new episodes."""
    with closing(make_environment(settings, seed)) as environment:
        actions = constant_actions(environment.spec.action)
    trials = [statistics.mean(play(settings, seed, _TRIALS, _always(action))) for action in actions]
    best = actions[trials.index(max(trials))]
    return best, play(settings, seed + 1, episodes, _always(best))


def _always(action: Action) -> Callable[[ActionSpec], Action]:
    return lambda _: action
