"""What an agent's `--preset cpu` learns by the clock: runs of equal minutes on both cores, then an evaluation.

    python -m benchmarks clock run impala --game qbert --minutes 5 30 --frames 10e6
    python -m benchmarks clock report --plot docs/half_hour.svg

`run` starts what a user starts, one actor or as many as the preset has, stops it after so many minutes or frames, and
plays episodes with the last weights: policies draw their actions, values take the best, almost always. Then it goes on
with the same run to the next of them: what evaluations take is no time of the run, what its next start takes is. It
writes both scores, the curve, steps, machine and commit to benchmarks/results/. `report` prints one table of them,
beside random play; with `--plot` it draws the default agent's half hours.
"""

import argparse
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.learning import RESULTS, cell, describe, summary, write
from benchmarks.plots import draw_half_hours, number, save
from benchmarks.processes import Passed, watch_start_script
from rainbow_iqn_apex import args as options_of_programs
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.common.checkout import ROOT
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.options.command_line import path
from rainbow_iqn_apex.saber.games import check_game
from rainbow_iqn_apex.saber.results.evaluation_log import read_evaluation
from rainbow_iqn_apex.saber.results.task import read_scores
from rainbow_iqn_apex.saber.results.training_log import read_records

_PREFIX = "clock-"
_LOG_INTERVAL = 2500  # agent steps, a few seconds: a run stops at a line of its log
_LAST = 100  # training episodes of a score, exploration included
_PARTS = 30  # of a run's steps, of whose episodes the curve has the means


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the commands and their options."""
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="train one agent on one game, and evaluate it")
    running.add_argument("agent", choices=AGENTS)
    running.add_argument("--game", required=True, help="of Atari")
    running.add_argument("--minutes", type=float, nargs="+", default=[], help="of training [30, without --frames]")
    running.add_argument(
        "--frames", type=float, nargs="+", default=[], help="of training; each is evaluated when it is reached"
    )
    running.add_argument(
        "--variant", metavar="NAME=OPTIONS", default="", help="further options, and what a run with them is called"
    )
    running.add_argument("--episodes", type=int, default=100, help="of the evaluation [%(default)s]")
    running.add_argument("--seed", type=int, default=123)
    running.add_argument("--logs", type=path, metavar="FOLDER", help="a new one, for logs that saber_report.py reads")
    running.add_argument("--port", type=int, default=6390, help="for the run's own Redis server [%(default)s]")
    reporting = commands.add_parser("report", help="print the table of all that were measured")
    reporting.add_argument("--plot", type=path, help="an SVG file, for curves of the default agent's half hours")


def measure(args: argparse.Namespace) -> tuple[()]:
    """Run the command; raises UserError for a game that there is not."""
    if args.command == "report":
        runs = [json.loads(path.read_text()) for path in RESULTS.glob(f"{_PREFIX}*.json")]
        random = {run["game"]: json.loads(_baselines(run["game"]).read_text())["random"]["mean"] for run in runs}
        print("\n".join(_table(runs, random)))
        if args.plot:
            halves = [run for run in sorted(runs, key=_order) if run["configuration"] == f"{_PREFIX}30-rainbow_iqn"]
            save(lambda: draw_half_hours(halves, random, read_scores()), args.plot)
    elif wrong := check_game(args.game):
        raise UserError(f"--game: {wrong}")
    elif not _baselines(args.game).exists():
        raise UserError(
            f"--game: measure random play first: python -m benchmarks learning baselines --game {args.game}"
        )
    elif not all(0 < most < math.inf for most in [*args.minutes, *args.frames]):
        raise UserError("--minutes, --frames: expected numbers above 0")
    elif args.variant and not re.fullmatch(r"[a-z0-9_]+=.+", args.variant):
        raise UserError("--variant: expected NAME=OPTIONS, NAME of a-z, 0-9 and _")
    elif args.logs and args.logs.exists():
        raise UserError(f"--logs: expected a folder to be made, and {args.logs} is there")
    else:
        for result in _run(args):
            write(result)
    return ()


def _run(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train for so long, evaluate what was learned, and go on; raises RunError if a program fails."""
    words = ["--game", args.game, "--seed", str(args.seed), "--preset", "cpu", "--agent", args.agent]
    variant, _, options = args.variant.partition("=")
    words += shlex.split(options)
    settings = options_of_programs.parse(words, "benchmarks clock", "").settings
    command = " ".join(["bash start_learning_atari.sh", *words])
    described = describe("", args.game, args.seed, command, settings)
    if args.logs:
        args.logs.mkdir(parents=True)  # now: the run may take hours
    subprocess.run(["bash", "make_environment.sh"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="clock-") as folder:
        place = ["--path-to-results", folder, "--port-redis", str(args.port), "--windows", "none"]
        place += ["--log-interval", str(_LOG_INTERVAL)]
        spent = 0.0
        ahead = _marks(args.minutes, args.frames, settings["action_repeat"])
        while ahead:  # a fast machine makes ten million frames within half an hour
            passed = watch_start_script([*words, *place], partial(_is_any_reached, ahead, spent))
            reached = [mark for mark in ahead if passed and mark.is_reached(spent, passed)]
            if not reached:
                raise RunError("--minutes, --frames: the run ends before, at --T-max")
            ahead = [mark for mark in ahead if mark not in reached]
            spent += passed[-1].seconds
            records = read_records(Path(folder, f"{args.game}.csv"))
            if not records:
                raise RunError("no episode has ended; --minutes: give more of them")
            evaluation = _evaluate(args.episodes, Path(folder), drawn="stochastic" in settings)
            for mark in reached:
                yield described | {
                    "configuration": _PREFIX + "-".join(filter(None, (mark.name, variant, args.agent))),
                    "minutes": round(spent / 60, 2),
                    "agent_steps": passed[-1].steps,
                    "training": summary([record.score_saber for record in records[-_LAST:]]),
                    "evaluation": summary(evaluation),
                    "curve": _curve(records),
                }
            if args.logs:
                _keep(Path(folder), args.game, args.logs)


class _Mark(NamedTuple):
    """A moment of a run at which it is evaluated, after so many seconds and agent steps."""

    name: str
    seconds: float = 0.0
    steps: float = 0.0

    def is_reached(self, spent: float, lines: list[Passed]) -> bool:
        """Return whether a run that had `spent` seconds before has come so far."""
        return spent + lines[-1].seconds >= self.seconds and lines[-1].steps >= self.steps


def _is_any_reached(ahead: list[_Mark], spent: float, lines: list[Passed]) -> bool:
    return any(mark.is_reached(spent, lines) for mark in ahead)


def _marks(minutes: list[float], frames: list[float], action_repeat: int) -> list[_Mark]:
    minutes = minutes or ([] if frames else [30.0])
    timed = [_Mark(f"{most:g}", seconds=60 * most) for most in sorted(set(minutes))]
    return timed + [_Mark(f"{most / 1e6:g}M", steps=most / action_repeat) for most in sorted(set(frames))]


def _curve(records: Sequence[EpisodeRecord]) -> list[list[float]]:
    """Return agent steps and mean score of each part of a run in which episodes ended."""
    ordered = sorted(records, key=attrgetter("T_actors"))
    last = ordered[-1].T_actors
    found = groupby(ordered, lambda record: -(-record.T_actors * _PARTS // last))
    return [[part * last // _PARTS, round(fmean(record.score_saber for record in ended), 1)] for part, ended in found]


def _evaluate(episodes: int, folder: Path, *, drawn: bool) -> list[float]:
    """Return the scores of episodes that the last weights of a run play; raises RunError if the program fails."""
    command = [sys.executable, "test_multiple_seed.py", "--model", str(folder), "--path-to-results", str(folder)]
    command += ["--evaluation-episodes", str(episodes), *(["--stochastic", "True"] if drawn else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{' '.join(command)} has ended with exit code {done.returncode}:\n{done.stderr}")
    newest = max(folder.glob("evaluations/*.csv"), key=lambda path: path.stat().st_mtime)
    return [episode.record.score_saber for episode in read_evaluation(newest)]


def _keep(folder: Path, game: str, logs: Path) -> None:
    """Copy what is known of a run and its evaluations, without snapshots."""
    locks = shutil.ignore_patterns(".*")
    shutil.copytree(folder / "evaluations", logs / "evaluations", dirs_exist_ok=True, ignore=locks)
    for suffix in (".csv", ".json"):
        shutil.copy(folder / f"{game}{suffix}", logs)


def _baselines(game: str) -> Path:
    return RESULTS / f"baselines_{game}_123.json"


def _table(runs: list[dict[str, Any]], random: dict[str, float]) -> Iterator[str]:
    """Return a table of runs, a line for each, with what random play scores in each game."""
    yield "| game | agent | seed | minutes | agent steps | evaluation | last training episodes | random |"
    yield "|" + "---|" * 8
    for run in sorted(runs, key=_order):
        scores = [cell(run["evaluation"]), cell(run["training"]), number(random[run["game"]])]
        steps = f"{run['agent_steps']:,}".replace(",", " ")
        agent = ", ".join([run["settings"]["agent"], *run["configuration"].split("-")[2:-1]])
        cells = [run["game"], agent, str(run["seed"]), f"{run['minutes']:.1f}", steps, *scores]
        yield f"| {' | '.join(cells)} |"


def _order(run: dict[str, Any]) -> tuple[Any, ...]:
    return round(run["minutes"]), run["game"], run["settings"]["agent"], run["seed"]
