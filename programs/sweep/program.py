"""Run a sweep: keep so many of its runs going at once until all have ended, and show them."""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.table import Table

from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.files import folder_to_write, lock_file, open_own, open_regular, write_file
from rainbow_iqn_apex.common.signals import describe_end
from rainbow_iqn_apex.common.text import counted, one_line
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.monitoring.terminal.screen import Screen, is_possible
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.command_line import Parser, devices, path, port
from rainbow_iqn_apex.programs.process import ENDS_WITH, StopRequest, fault_in, newest_with
from rainbow_iqn_apex.programs.supervision import Command, package_environment, stop_all
from rainbow_iqn_apex.programs.sweep.plan import Run, State, check_environment, logs, planned, port_for

PROGRAM = "sweep.py"
_FIRST_PORT = 6400
_MOST_AT_ONCE = 64
_SCRIPT = "sweep.sbatch"
LOG = "sweep.log"  # of all starts of a run, in its folder
_LOCK = ".sweep.lock"
_TAIL = 16_384  # bytes
_LOOK_EVERY = 10  # pauses of a tenth of a second
_EVERY_S = 60.0  # between lines about how far all are
_ROOM = 8  # rows of the terminal for other lines


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
    with closing(Screen()) if is_possible() else nullcontext() as screen:
        sweep = Sweep(runs, runs_asked, given, screen)
        try:
            sweep.run(stop)
        except Stopped:
            in_order = sweep.stop()
            sweep.say(f"go on from here with: {command_line.compose(PROGRAM, {})} {shlex.join(argv)}")
            return 0 if in_order and not sweep.has_failed else 1
        finally:
            sweep.stop()  # also after an error
        if all(run.is_finished() for run in runs) or (sweep.has_failed and not given.only):
            _report(runs, folder, sweep)
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


def _report(runs: Sequence[Run], folder: Path, sweep: "Sweep") -> None:
    """Make a report of all that Atari's runs have logged; a report that fails is told, and ends nothing."""
    if not (found := logs(runs)):
        return
    command = [sys.executable, "-m", "rainbow_iqn_apex.saber_report", *map(str, found), "--output", f"{folder}/report"]
    done = subprocess.run(command, env=package_environment(), capture_output=True, text=True, check=False)
    lines = (done.stderr if done.returncode else done.stdout).splitlines()
    sweep.say(lines[-1] if lines else f"the report {describe_end(done.returncode)}")


class StartScript(Command):
    """The start script of a run, which saves and stops everything when it is asked to stop, or when the sweep ends."""

    def __init__(self, run: Run, state: State, lock: IO[bytes], gpu: int | None) -> None:
        """Start it; `lock` is what `take` has returned. Raises OSError."""
        self.run = run
        own = [f"--path-to-results={run.folder}", f"--port-redis={state.port}", "--windows=none"]
        own += [] if gpu is None else [f"--gpus={gpu}"]
        command = [sys.executable, "-m", "rainbow_iqn_apex.programs.start", *run.words, *own]
        with lock, open_own(run.folder / LOG, "ab") as log:
            self._begins = log.tell()  # what stands before is of other starts
            environment = package_environment() | {ENDS_WITH: str(os.getpid())}
            # The lock lasts as long as the start script.
            super().__init__(run.name, command, log, environment=environment, pass_fds=[lock.fileno()])
            self.start()

    def fault(self) -> str:
        """Return the line that best explains why it has failed."""
        return fault_in(self._last_lines()[-30:])

    def has_finished(self) -> bool:
        """Return whether the learner has printed that it has reached the run's T-max."""
        with suppress(OSError), self._open_log() as file:
            file.seek(self._begins)
            return any(re.match(rb"\[learner\] (\[\S+\] )?Finished at T = ", line) for line in file)
        return False

    def progress(self) -> tuple[int, str]:
        """Return the agent steps that the learner has printed last, and its newest words about the score."""
        lines = self._last_lines()
        steps = re.search(r"T = ([0-9]{1,18}) / ", newest_with(r"^\[learner\] \[.*\] T = ", lines))
        score = newest_with(r"^\[learner\] (Score|Mean) ", lines).removeprefix("[learner] ")
        return int(steps[1]) if steps else 0, score or newest_with(".", lines)

    def _open_log(self) -> IO[bytes]:
        return open_regular(self.run.folder / LOG, self.run.folder)

    def _last_lines(self) -> list[str]:
        with suppress(OSError), self._open_log() as file:
            file.seek(max(self._begins, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode(errors="replace").splitlines()
        return []


def take(run: Run) -> IO[bytes] | None:
    """Return a lock of the run's folder, None if another start script is at work there; raises OSError."""
    run.folder.mkdir(parents=True, exist_ok=True)
    try:
        return lock_file(run.folder / _LOCK)
    except BlockingIOError:
        return None


@dataclass(eq=False)
class Entry:
    """A run that is asked for, and what has become of it."""

    run: Run
    state: str  # waiting, running, finished, failed or elsewhere
    fault: str = ""  # why it has failed
    script: StartScript | None = None  # while it runs
    place: int = 0  # below `at_once`, while it runs

    def progress(self) -> tuple[int, str]:
        """Return its agent steps, and its last words."""
        if self.script:
            return self.script.progress()
        return self.run.args.T_max if self.state == "finished" else 0, self.fault


class Sweep:
    """The runs that are asked for, of all that there are; shown as a table on a terminal, as plain lines elsewhere."""

    def __init__(
        self, every: Sequence[Run], asked: Sequence[Run], given: argparse.Namespace, screen: Screen | None
    ) -> None:
        self._every = every
        self._entries = [Entry(run, "finished" if run.is_finished() else "waiting") for run in asked]
        self._at_once = given.at_once or 1
        self._gpus = given.gpus
        self._port = given.port_redis
        self._screen = screen
        self._due = time.monotonic() + _EVERY_S  # of lines about how far all are

    def run(self, stop: StopRequest) -> None:
        """Run all. Raises Stopped at the user's request."""
        if skipped := len(self._in_state("finished")):
            self.say(f"{skipped} of {len(self._entries)} runs have finished before")
        pauses = 0
        while self._in_state("running", "waiting", "elsewhere"):
            stop.pause()
            for entry in self._in_state("running"):
                if entry.script and not entry.script.runs():
                    self._end(entry, entry.script)
            if pauses % _LOOK_EVERY == 0:
                self._start_more()
                self._show()
            pauses += 1
        self.say(self._summary())

    @property
    def has_failed(self) -> bool:
        """Whether a run has failed."""
        return bool(self._in_state("failed"))

    def _in_state(self, *states: str) -> list[Entry]:
        return [entry for entry in self._entries if entry.state in states]

    def _start_more(self) -> None:
        """Start waiting runs in free places; a run that another sweep has at work is looked at again."""
        for entry in self._in_state("waiting", "elsewhere"):
            taken = {other.place for other in self._in_state("running")}
            places = [place for place in range(self._at_once) if place not in taken]
            if not places:
                return
            try:
                self._start(entry, places[0])
            except (OSError, UserError) as error:
                entry.state = "failed"
                entry.fault = one_line(error)
                self.say(f"{entry.run.name} cannot be started: {entry.fault}")
                return  # a second for what may pass, such as a full disk

    def _start(self, entry: Entry, place: int) -> None:
        run = entry.run
        if (lock := take(run)) is None:
            if entry.state != "elsewhere":
                self.say(f"{run.name}: another sweep.py or its start script is at work in {run.folder}")
            entry.state = "elsewhere"
            return
        with lock:
            if run.is_finished():  # elsewhere, meanwhile
                entry.state = "finished"
                return
            state = State(port_for(run, self._every, self._port), 0)
            run.write(state)
            turn = place if self._at_once > 1 else run.index  # an array's tasks have one run each
            gpu = self._gpus[turn % len(self._gpus)] if self._gpus else None
            entry.script = StartScript(run, state, lock, gpu)
        entry.state = "running"
        entry.place = place
        self.say(f"{run.name} has started; its lines are in {run.folder / LOG}")

    def _end(self, entry: Entry, script: StartScript) -> None:
        run = entry.run
        code = script.exit_code or 0
        entry.script = None
        if code == 0 and script.has_finished():
            run.finish()
            entry.state = "finished"
            self.say(f"{run.name} has finished")
            return
        entry.state = "failed"
        entry.fault = script.fault() if code else "it was stopped before its T-max"
        log = f"all its lines: {run.folder / LOG}"
        self.say(f"{run.name} {describe_end(code, 'has failed')}: {entry.fault} ({log})")

    def stop(self) -> bool:
        """Stop all in order; return whether all have."""
        running = [entry.script for entry in self._entries if entry.script]
        for entry in self._entries:
            entry.script = None
        with suppress(OSError):  # a Ctrl-C ends who reads it, too, as tee does
            if running:
                self.say(f"stopping {', '.join(script.name for script in running)}, which save first")
        for script in stop_all(running):
            if not script.has_stopped_in_order():
                with suppress(OSError):
                    self.say(f"{script.end}: {script.fault()}")
            elif script.has_finished():
                script.run.finish()
        return all(script.has_stopped_in_order() for script in running)

    def say(self, line: str) -> None:
        """Print a line."""
        if self._screen:
            self._screen.above([line])
        else:
            print(printable(line), flush=True)

    def _show(self) -> None:
        """Draw all runs, or print now and then how far they are."""
        if self._screen:
            self._screen.draw(self._picture(max(1, self._screen.console.height - _ROOM)))
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY_S
            self.say(self._summary())
            for entry in self._in_state("running"):
                steps, words = entry.progress()
                self.say(f"{entry.run.name}: T = {steps} / {entry.run.args.T_max}; {words}")

    def _summary(self) -> str:
        """Return how many runs are in which state."""
        counts = Counter(entry.state for entry in self._entries)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        return f"{counted(len(self._entries), 'run')}: {states}"

    def _picture(self, room: int) -> Table:
        """Return a table of the runs; those that run or have failed come first where not all have room."""
        order = ("running", "failed", "elsewhere", "waiting", "finished")
        shown = set(sorted(self._entries, key=lambda entry: order.index(entry.state))[:room])
        table = Table(title=self._summary(), title_justify="left", box=None, expand=True)
        table.add_column("run", no_wrap=True, ratio=3)
        table.add_column("state", no_wrap=True)
        table.add_column("T", justify="right", no_wrap=True)
        table.add_column("last words", no_wrap=True, ratio=4)
        for entry in self._entries:
            if entry in shown:
                (steps, words) = entry.progress()
                most = entry.run.args.T_max
                part = f"{min(1.0, steps / most):.0%} of {most:,}"
                table.add_row(printable(entry.run.name), entry.state, part, printable(words))
        if left := len(self._entries) - len(shown):
            table.add_row(f"and {left} more", "", "", "")
        return table
