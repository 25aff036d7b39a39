"""Trains, evaluates and loads policies from Python: what `rainbow_iqn_apex` offers to scripts and notebooks.

Options have the names of the command line with underscores, and the same defaults, but for `evaluation_workers`; what
runs is what the programs run.
"""

import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any

from rainbow_iqn_apex import args
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.options.command_line import CALLED_AS
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.evaluation.loaded_policy import LoadedPolicy
from rainbow_iqn_apex.programs.evaluation.program import run_evaluation
from rainbow_iqn_apex.programs.evaluation.settings import load_model
from rainbow_iqn_apex.programs.machine import parse_for_start
from rainbow_iqn_apex.programs.process import fault_in
from rainbow_iqn_apex.programs.supervision import package_environment

_WRONG_COMMAND = 2


def load_policy(model: str | Path, **options: Any) -> LoadedPolicy:
    """Load the policy of a snapshot, or of the newest one in a folder.

    `options` are those of test_multiple_seed.py. Raises UserError if there is no such snapshot, or if it needs a module
    that `agent` or `env` has to name.
    """
    parsed, saved = load_model(_parse(options | {"model": model}))
    return LoadedPolicy(parsed, saved["model_state_dict"])


def evaluate(model: str | Path, **options: Any) -> list[EpisodeRecord]:
    """Play the episodes of test_multiple_seed.py with a snapshot; returns them, and writes the same files.

    One process plays, unless `evaluation_workers` asks for more: a script that does needs `if __name__ == "__main__":`.
    Raises UserError as `load_policy` does, RunError if the evaluation cannot go on.
    """
    parsed = _parse({"evaluation_workers": 1} | options | {"model": model})
    return [episode.record for episode in run_evaluation(parsed, threading.Event())]


def train(**options: Any) -> Path:
    """Train to the end with the start script, its Redis server and its actors; returns the newest snapshot.

    `options` are those of start_learning_atari.sh. Lines of all processes are printed. The same call goes on with a run
    that was interrupted: Ctrl-C, or a notebook's interrupt, saves and stops all processes, and is raised then.

    Raises:
        UserError: a wrong option, or training has diverged.
        RunError: the run cannot go on.
    """
    own = {"gpus", "hosts", "use_running_redis", "windows"}  # of the start script, which reads them
    given = {name: value for name, value in options.items() if name not in own}
    unjudged = {"force": True} if options.get("hosts") else {}  # as it counts the actors of that file
    parsed = parse_for_start(_words(given | unjudged))
    words = _words({"windows": "none"} | options)
    process = subprocess.Popen(
        [sys.executable, "-m", "rainbow_iqn_apex.programs.start", *words],
        env=package_environment() | {CALLED_AS: "train()"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # one request to stop, by this process alone
    )
    lines = _print_lines(process)
    if process.returncode:
        fault = fault_in(lines)
        if process.returncode == _WRONG_COMMAND:
            raise UserError(fault.partition("error: ")[2] or fault)
        raise RunError(fault)
    return snapshot.choose(parsed.path_to_results, parsed.task)


def _print_lines(process: "subprocess.Popen[str]") -> list[str]:
    """Print what a process writes until it ends, and return its last lines; a KeyboardInterrupt stops it first."""
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=30)
    interrupt = None
    with process:
        while True:
            try:
                for line in process.stdout:
                    last.append(line)
                    print(line, end="", flush=True)
                break
            except KeyboardInterrupt as error:
                interrupt = error
                process.terminate()
    if interrupt:
        raise interrupt
    return list(last)


def _parse(options: dict[str, Any]) -> args.Args:
    return args.parse(_words(options), "rainbow_iqn_apex", "")


def _words(options: dict[str, Any]) -> list[str]:
    given = {name: value for name, value in options.items() if value is not None}
    flags = {"use_running_redis"}  # of the start script, which takes no value for it
    return [
        flag_of(name) if name in flags else f"{flag_of(name)}={_text(value)}"
        for name, value in given.items()
        if name not in flags or value
    ]


def _text(value: Any) -> str:
    """Write a value as a command line does: a float that is whole, such as 1e6, is taken for a number of steps, too."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
