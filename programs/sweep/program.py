"""Run a sweep: from its command line to its exit code."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.files import folder_to_write, write_file
from rainbow_iqn_apex.common.signals import describe_end
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.command_line import Parser, devices, path, port
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.supervision import package_environment
from rainbow_iqn_apex.programs.sweep.plan import Run, check_environment, logs, planned
from rainbow_iqn_apex.programs.sweep.sweep import Sweep, View, opened

PROGRAM = "sweep.py"
_FIRST_PORT = 6400
_MOST_AT_ONCE = 64
_SCRIPT = "sweep.sbatch"


def run(argv: Sequence[str], description: str, stop: StopRequest) -> int:
    """Run what a command line asks for; return the exit code. Raises UserError for a wrong one."""
    given = parser(description).parse_args(list(argv))
    folder = given.path_to_results or Path("results") / given.file.stem
    runs = planned(given.file, folder)
    if given.gpus and any("gpu_number" in run.args.given - run.args.file_keys.keys() for run in runs):
        raise UserError(f"--gpus: {given.file} gives gpu-number, too; leave out either of them")
    check_environment()
    if given.only:
        runs_asked = [run for run in runs if run.name == given.only]
        if not runs_asked:
            raise UserError(f"--only: {given.file} has no run {given.only!r}; its runs are folders of {folder}")
    else:
        runs_asked = runs
    folder_to_write("--path-to-results", folder)
    if given.slurm:
        return _write_script(runs_asked, folder, given)
    with opened() as view:
        sweep = Sweep(runs, runs_asked, given.at_once or 1, given.gpus, given.port_redis, view)
        try:
            sweep.run(stop)
        except Stopped:
            in_order = sweep.stop()
            view.say(f"go on from here with: {command_line.compose(PROGRAM, {})} {shlex.join(argv)}")
            return 0 if in_order and not sweep.has_failed else 1
        finally:
            sweep.stop()  # also after an error
        if all(run.is_finished() for run in runs) or (sweep.has_failed and not given.only):
            _report(runs, folder, view)
    return 1 if sweep.has_failed else 0


def parser(description: str) -> Parser:
    """Return the parser of the command line."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = Parser(
        prog=command_line.name_of(PROGRAM), description=description, formatter_class=layout, allow_abbrev=False
    )
    parser.add_argument("file", type=path, metavar="FILE", help="what the sweep goes over (YAML)")
    parser.add_argument("--at-once", type=_at_once, metavar="N", help="runs at the same time [1; --slurm: all]")
    parser.add_argument(
        "--path-to-results", type=path, metavar="FOLDER", help="where each run has a folder [results/<name of FILE>]"
    )
    parser.add_argument(
        "--gpus", type=devices, default=(), metavar="LIST", help="CUDA devices, which runs take in turn"
    )
    help_text = f"first port for the runs' Redis servers [{_FIRST_PORT}]"
    parser.add_argument("--port-redis", type=port, default=_FIRST_PORT, metavar="PORT", help=help_text)
    parser.add_argument("--only", default="", metavar="NAME", help="the run of this name alone, for an array of Slurm")
    parser.add_argument("--slurm", action="store_true", help="start nothing, and write what sbatch takes")
    command_line.add_completion_and_version(parser)
    return parser


def _at_once(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(f"expected 1 to {_MOST_AT_ONCE}, got {text!r}")
    return int(text)


def _write_script(runs: Sequence[Run], folder: Path, given: argparse.Namespace) -> int:
    """Write the sweep as an array of Slurm, a run a task; nothing of ours schedules."""
    left = [run for run in runs if not run.is_finished()]
    if not left:
        print(f"all {len(runs)} runs have finished")
        return 0
    more = [f"--gpus={','.join(map(str, given.gpus))}"] if given.gpus else []
    own = [str(given.file), f"--path-to-results={folder}", f"--port-redis={given.port_redis}", *more]
    text = _slurm_script(left, folder, [sys.executable, str(Path(sys.argv[0]).resolve()), *own], given.at_once)
    path = folder / _SCRIPT
    write_file(path, text.encode())
    print(f"{len(left)} of {len(runs)} runs; submit them with: sbatch {shlex.quote(str(path))}")
    return 0


def _slurm_script(runs: Sequence[Run], folder: Path, command: Sequence[str], at_once: int | None) -> str:
    """Return the script that sbatch takes, of these runs; `command` runs one when its name is added.

    The script has the names of the runs, so that it means the same ones when the sweep's file has changed.
    """
    place = str(folder.resolve())
    if not place.isprintable() or '"' in place or "%" in place:
        raise UserError(f"--path-to-results: expected a folder whose name sbatch can take, got {place!r}")
    limit = f"%{at_once}" if at_once else ""
    lines = [
        "#!/usr/bin/env bash",
        "#SBATCH --job-name=sweep",
        f"#SBATCH --array=0-{len(runs) - 1}{limit}",
        f'#SBATCH --output="{place}/slurm_%A_%a.log"',
        "#SBATCH --open-mode=append",
        "#SBATCH --signal=B:TERM@120  # time to save before the job's limit",
        "#SBATCH --requeue  # after a node has failed: the run goes on",
        "runs=(",
        *(f"  {shlex.quote(run.name)}" for run in runs),
        ")",
        f"cd -- {shlex.quote(str(Path.cwd()))}",
        f'exec {shlex.join(command)} --only "${{runs[$SLURM_ARRAY_TASK_ID]}}"',
    ]
    return "\n".join([*lines, ""])


def _report(runs: Sequence[Run], folder: Path, view: View) -> None:
    """Make a report of all that Atari's runs have logged; a report that fails is told, and ends nothing."""
    if not (found := logs(runs)):
        return
    command = [sys.executable, "-m", "rainbow_iqn_apex.saber_report", *map(str, found), "--output", f"{folder}/report"]
    done = subprocess.run(command, env=package_environment(), capture_output=True, text=True, check=False)
    lines = (done.stderr if done.returncode else done.stdout).splitlines()
    view.say(lines[-1] if lines else f"the report {describe_end(done.returncode)}")
