"""Keep so many runs of a sweep going at once until all have ended."""

from collections.abc import Sequence
from contextlib import suppress

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.signals import describe_end, has_stopped
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.sweep.process import LOG, Process, take
from rainbow_iqn_apex.programs.sweep.runs import Run, State, port_for
from rainbow_iqn_apex.programs.sweep.screen import Row, View, summary

_LOOK_EVERY = 10  # pauses of a tenth of a second


class Sweep:
    """The runs that are asked for, of all that there are."""

    def __init__(
        self, every: Sequence[Run], runs: Sequence[Run], at_once: int, gpus: Sequence[int], port: int, view: View
    ) -> None:
        self._every, self._runs, self._at_once, self._gpus, self._port = every, runs, at_once, gpus, port
        self._view = view
        self._states = {run.name: "finished" if run.is_finished() else "waiting" for run in runs}
        self._words: dict[str, str] = {}  # of runs that have failed
        self._running: dict[int, Process] = {}  # by a number below `at_once`

    def run(self, stop: StopRequest) -> None:
        """Run all. Raises Stopped at the user's request."""
        if skipped := self._count("finished"):
            self._view.say(f"{skipped} of {len(self._runs)} runs have finished before")
        pauses = 0
        while self._running or self._count("waiting", "elsewhere"):
            stop.pause()
            self._settle()
            if pauses % _LOOK_EVERY == 0:
                self._start_more()
                self._view.show([self._row(run) for run in self._runs])
            pauses += 1
        self._view.say(summary([self._row(run) for run in self._runs]))

    @property
    def has_failed(self) -> bool:
        """Whether a run has failed."""
        return bool(self._count("failed"))

    def _count(self, *states: str) -> int:
        return sum(state in states for state in self._states.values())

    def _start_more(self) -> None:
        """Start waiting runs in free places; a run that another sweep has at work is looked at again."""
        for run in self._runs:
            places = [place for place in range(self._at_once) if place not in self._running]
            if not places:
                return
            if self._states[run.name] in ("waiting", "elsewhere"):
                try:
                    self._start(run, places[0])
                except (OSError, UserError) as error:
                    self._states[run.name], self._words[run.name] = "failed", one_line(error)
                    self._view.say(f"{run.name} cannot be started: {one_line(error)}")
                    return  # a second for what may pass, such as a full disk

    def _start(self, run: Run, place: int) -> None:
        if (lock := take(run)) is None:
            if self._states[run.name] != "elsewhere":
                self._view.say(f"{run.name}: another sweep.py or its start script is at work in {run.folder}")
            self._states[run.name] = "elsewhere"
            return
        with lock:
            if run.is_finished():  # elsewhere, meanwhile
                self._states[run.name] = "finished"
                return
            state = State(port_for(run, self._every, self._port), 0)
            run.write(state)
            turn = place if self._at_once > 1 else run.index  # an array's tasks have one run each
            gpu = self._gpus[turn % len(self._gpus)] if self._gpus else None
            self._running[place] = Process(run, state, lock, gpu)
        self._states[run.name] = "running"
        self._view.say(f"{run.name} has started; its lines are in {run.folder / LOG}")

    def _settle(self) -> None:
        for place, process in list(self._running.items()):
            if (code := process.popen.poll()) is not None:
                del self._running[place]
                self._end(process, code)

    def _end(self, process: Process, code: int) -> None:
        run = process.run
        if code == 0 and process.has_finished():
            run.finish()
            self._states[run.name] = "finished"
            self._view.say(f"{run.name} has finished")
            return
        fault = process.fault() if code else "it was stopped before its T-max"
        self._states[run.name], self._words[run.name] = "failed", fault
        self._view.say(f"{run.name} {describe_end(code, 'has failed')}: {fault} (all its lines: {run.folder / LOG})")

    def _row(self, run: Run) -> Row:
        state = self._states[run.name]
        steps, words = run.args.T_max if state == "finished" else 0, self._words.get(run.name, "")
        for process in self._running.values():
            if process.run is run:
                steps, words = process.progress()
        return Row(run.name, state, steps, run.args.T_max, words)

    def stop(self) -> bool:
        """Stop all in order; return whether all have."""
        running = list(self._running.values())
        for process in running:
            process.popen.terminate()
        if running:
            self._tell(f"stopping {', '.join(process.run.name for process in running)}, which save first")
        all_stopped = True
        for process in running:
            code = process.popen.wait()
            self._running = {place: other for place, other in self._running.items() if other is not process}
            if not has_stopped(code):
                all_stopped = False
                self._tell(f"{process.run.name} {describe_end(code)}: {process.fault()}")
            elif process.has_finished():
                process.run.finish()
        return all_stopped

    def _tell(self, line: str) -> None:
        with suppress(OSError):  # a Ctrl-C ends who reads it, too, as tee does
            self._view.say(line)
