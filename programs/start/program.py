"""Run the start script: start all that a run needs, start again what was killed, and stop all.

`Supervisor` has the processes, and the loop that watches them.
"""

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import PolicyLostError, RunError, Stopped, UserError
from rainbow_iqn_apex.common.files import caller_path
from rainbow_iqn_apex.memory.broker.access import PASSWORD, USERNAME
from rainbow_iqn_apex.memory.broker.leases import LEARNER, printable
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.sink_options import tensorboard_folder
from rainbow_iqn_apex.programs import launch
from rainbow_iqn_apex.programs.machine import count_gpus
from rainbow_iqn_apex.programs.process import RESULT, StopRequest, provide_streams
from rainbow_iqn_apex.programs.start import hosts, options, redis_server, windows
from rainbow_iqn_apex.programs.start.redis_server import RedisServer
from rainbow_iqn_apex.programs.start.screen import complain, print_line, say, shown
from rainbow_iqn_apex.programs.start.viewer import QUESTION
from rainbow_iqn_apex.programs.start.windows import Windows, open_window
from rainbow_iqn_apex.programs.supervision import WRONG_COMMAND, Clock, Command, Lines, Process, stop_all

_HELP = Path(__file__).with_name("help.txt")
_PAGES_END_S = 5.0
_LEARNER_STARTS_S = 60.0  # no learner finishes so soon after its start
_LEARNER_ENDS_S = 5.0  # a learner that is stopped ends so soon after its actors
_LEARNER_SAVES_S = 30.0  # one that finishes, most of the time


def start(script: Sequence[str], words: Sequence[str], stop: StopRequest, clock: Clock = time.monotonic) -> int:
    """Start all that a run needs, and train until the user stops it; return the exit code.

    It is the learner's, or 0 stopped in good order, 1 cannot go on, 2 bad command. `script` are the words by which it
    was called, before those of its options. By the clock, a process that fails has worked long enough to start again.
    """
    provide_streams()
    if command_line.asks_for_help(words):  # of apex-train or this module; the script needs no environment for it
        called_as = shlex.join([Path(script[0]).name, *script[1:]])
        print(_HELP.read_text("utf-8").replace("bash start_learning_atari.sh", called_as, 1), end="")
        return 0
    command_line.answer_version(options.PROGRAM, words)
    try:
        if command_line.asks_for_completion(words):
            launch.print_completion(options.PROGRAM, [options.parser()])
        asked = options.read(words, os.environ, count_gpus)
        kind = windows.choose(asked.windows, asked.server.port, os.environ)
        if asked.preset_chosen:
            say(
                f"no GPU: --preset {asked.preset_chosen} trains a small network; docs/measured.md has which games it "
                "learns, and how fast; --preset paper trains the full one"
            )
        if asked.hosts:
            hosts.check(asked.hosts, asked.redis, stop)
            access = asked.server.access  # actors elsewhere reach the server by another URL, but as the same user
            os.environ |= {USERNAME: access.username or "", PASSWORD: access.password or ""}
        return _run(Supervisor(asked, kind, stop, clock), asked, options.continuation(script, words))
    except Stopped:
        say("stopped before anything was started")
        return 0
    except UserError as error:
        command_line.fail(options.PROGRAM, error)


def _run(supervisor: "Supervisor", asked: options.StartOptions, continuation: str) -> int:
    """Run to the end, and stop all that is left then, also after an error."""
    stopped = False
    code = 1
    try:
        supervisor.prepare_redis()
        actors = f"{asked.args.nb_actor} actor(s)"
        results = caller_path(asked.args.path_to_results)
        if asked.hosts:
            actors += f" on {', '.join(host.name for host in asked.hosts)}"
        if asked.args.nb_eval_actors:
            actors += f" and {asked.args.nb_eval_actors} evaluation actor(s)"
        learner = "the learner, an inference server" if asked.serves else "the learner"
        say(f"starting {learner} and {actors}; results go to {results}; Ctrl-C saves and stops everything")
        with shown(asked.server, asked.args.name):
            code = supervisor.train()
    except Stopped:
        stopped = True
    except (RunError, OSError) as error:
        complain(str(error))
    finally:
        in_order = supervisor.stop()
    if stopped and in_order:
        code = 0
        say("all is stopped and saved")
    if supervisor.result:
        say(supervisor.result)
    if supervisor.learner.started and code != WRONG_COMMAND and (stopped or code):
        say(f"go on from here with: {continuation}")
    return code


def lines_of(name: str, takes: Callable[[bytes], bool] = lambda _: False) -> Lines:
    """Return what becomes of a process's lines: they come to this terminal with its name."""
    return Lines(lambda line: print_line(f"[{name}] ".encode() + line), takes)


class Supervisor:
    """The processes of a run."""

    def __init__(
        self, asked: options.StartOptions, windows: Windows | None, stop: StopRequest, clock: Clock = time.monotonic
    ) -> None:
        """Open windows for the processes, if there are any; restarts depend on the `clock`."""
        self._asked = asked
        self._windows = windows
        self._stop = stop
        self._clock = clock
        self._redis: RedisServer | None = None
        self._was_stopped = self._has_finished = False  # the learner, by its own words
        self.result = ""  # the score of a learner that has ended, its plot, and the command that evaluates it
        self.learner = self._process("learner", asked.command(LEARNER), self._note_end)
        self._actors = [self._process(asked.actor_name(i), asked.command(i)) for i in range(asked.args.nb_actor)]
        self._evaluation_actors = [
            self._process(f"evaluation actor {i}", asked.evaluation_command(i))
            for i in range(asked.args.nb_eval_actors)
        ]
        self._inference_servers = [
            self._process(f"inference server {i}", asked.inference_command()) for i in range(asked.serves)
        ]
        self._all = [self.learner, *self._inference_servers, *self._actors, *self._evaluation_actors]
        self._given_up: set[Process] = set()
        self._page_servers = page_servers(asked.args)

    def _process(self, name: str, command: list[str], takes: Callable[[bytes], bool] = lambda _: False) -> Command:
        lines = lines_of(name, takes)
        if self._windows:
            lines = Lines(lines.show, takes, partial(open_window, self._windows.open, stop=self._stop), QUESTION)
        return Command(name, command, lines, again=options.lasting(command), clock=self._clock)

    def prepare_redis(self) -> None:
        """Start a Redis server, or see that the one to be used answers."""
        server = self._asked.server
        results = self._asked.args.path_to_results
        if redis_server.uses_running(server, self._asked.use_running_redis):
            if redis_server.check_running(server) and self._asked.hosts:
                raise UserError(hosts.ONE_SERVER)
            return
        redis_server.take_back(server.host, server.port, results, self._asked.args.name, self._stop)
        redis_server.check_port(server.host, server.port, redis_server.ask(server.host, server.port), results)
        self._redis = RedisServer(server.host, server.port, results, self._stop, self._clock)
        self._redis.start()

    def train(self) -> int:
        """Run until the learner ends for good, or no actor is left to learn from; return the exit code of that."""
        for process in self._all:
            process.start()
        if self._windows:
            say(f"{', '.join(process.name for process in self._all)}: {self._windows.place}")
        for server in self._page_servers:
            server.start()
        while self.learner.runs() or self._restarts(self.learner, self._learner_goes_on()):
            if self._redis:
                self._redis.keep_alive()
            for group in (self._inference_servers, self._actors, self._evaluation_actors):
                for process in group:
                    self._look_after(process, group)
            for server in self._page_servers:
                self._look_after_pages(server)
            if failed := self._failed_for_good():
                complain(f"the run cannot go on without {failed.name}; its last words: {failed.last_words}")
                return failed.exit_code or 1
            self._stop.pause()
        say(f"the {self.learner.end}")
        return self.learner.exit_code or 0

    def _learner_goes_on(self) -> bool:
        """Return whether the learner must be started again: it has failed, or was stopped, but not by this script."""
        return self.learner.may_restart() or (self.learner.exit_code == 0 and self._was_stopped)

    def _note_end(self, line: bytes) -> bool:
        """Note whether the learner was stopped, or has finished, and its result, which is printed at the end.

        One that has finished stops its own inference server, which prints that it stops.
        """
        if line.startswith(RESULT.encode()):
            self.result = printable(line.decode(errors="replace").strip())
            return True
        if found := re.match(rb"(?:\[\S+\] )?(Stopping: |Stopped at T = |Finished at T = )", line):
            self._has_finished |= found[1].startswith(b"Finished")
            self._was_stopped = not self._has_finished
        return False

    def _failed_for_good(self) -> Command | None:
        """Return a process that has failed for good if the run cannot go on: all have ended, or would wait for it."""
        failed = [process for process in self._all if process in self._given_up and process.exit_code]
        if server := next((process for process in self._inference_servers if process in failed), None):
            return server
        actor = next((process for process in self._actors if process in failed), None)
        is_over = self._given_up.issuperset(self._actors) or self._asked.args.synchronize_actors_with_learner
        return actor if is_over else None

    def _look_after(self, process: Command, group: list[Command]) -> None:
        """Start again a process that was killed or sent home; if not, print how many of its kind are left."""
        if process.runs():
            return
        has_lost_its_server = process in self._actors and process.exit_code == PolicyLostError.exit_code
        if self._restarts(process, process.may_restart() or self._was_sent_home(process) or has_lost_its_server):
            self._given_up.discard(process)
        elif process not in self._given_up:
            self._given_up.add(process)
            left = f"{len(group) - len(self._given_up.intersection(group))} of {len(group)} still run"
            say(f"{process.end}; {left}")

    def _look_after_pages(self, server: Command) -> None:
        """Start a server of pages again as the other processes; the run goes on without one that fails again."""
        if not (server.runs() or server in self._given_up or self._restarts(server, server.may_restart())):
            self._given_up.add(server)
            say(f"{server.end}, and the run goes on")

    def _was_sent_home(self, process: Command) -> bool:
        """Return whether a process has ended in good order though the learner goes on.

        The learner before this one may have sent it home. Or another than this script has stopped it, or it has met
        another run of that name, which this learner has replaced.
        """
        now = self._clock()
        begins = now - self.learner.started < _LEARNER_STARTS_S
        return process.exit_code == 0 and now - process.ended >= (_LEARNER_ENDS_S if begins else _LEARNER_SAVES_S)

    def _restarts(self, process: Command, makes_sense: bool) -> bool:
        """Start a process again once its pause is over, if that makes sense; return whether it does."""
        if makes_sense and process.is_due():
            say(f"{process.end} and is started again")
            if process is self.learner:
                self._was_stopped = self._has_finished = False
            process.start()
        return makes_sense

    def stop(self) -> bool:
        """Stop the processes, then Redis, since they save into it; return whether all have stopped in good order."""
        patience_s = self._asked.stop_seconds
        running = [process for process in self._all if process.runs()]
        if running:
            say(f"stopping {', '.join(process.name for process in running)} (up to {patience_s} s to save)")
        servers = [process for process in running if process in self._inference_servers]
        others = [process for process in running if process not in servers]
        for process in chain(stop_all(others, patience_s), stop_all(servers, patience_s)):  # others end a step by them
            if process.runs():
                complain(f"{process.name} did not stop in {patience_s} s and is killed")
                process.kill()
            if not process.has_stopped_in_order():
                complain(process.end)
        for server in stop_all([server for server in self._page_servers if server.runs()], _PAGES_END_S):
            server.kill()
        if self._redis:
            self._redis.stop(patience_s)
        return all(process.has_stopped_in_order() for process in running)


def page_servers(args: Args) -> list[Command]:
    """Return the servers of pages: the dashboard; and TensorBoard, if it is asked for. Their addresses are printed."""
    given = [name for name in ("host_redis", "port_redis", "redis_url") if name in args.given]
    options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in given]
    run = [f"--path-to-results={args.path_to_results}", f"--run-name={args.name}"]
    command = [*command_line.run_by("dashboard.py"), *run, *options]
    servers = [Command("dashboard", command, _address_lines("dashboard", "the dashboard", r"Dashboard: (\S+)"))]
    if args.tensorboard:
        # It takes port 6006, or one of those that follow.
        folder = str(tensorboard_folder(args.path_to_results, args.task))
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--samples_per_plugin", "images=1000"]
        lines = _address_lines("TensorBoard", "TensorBoard", r"TensorBoard \S+ at (http\S+)")
        servers.append(Command("TensorBoard", command, lines))
    return servers


def _address_lines(name: str, called: str, address: str) -> Lines:
    def print_address(line: bytes) -> bool:
        found = re.search(address, line.decode(errors="replace"))
        if found:
            say(f"{called} shows this run at {found[1]}")
        return bool(found) or not line.strip()

    return lines_of(name, print_address)
