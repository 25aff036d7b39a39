"""Run the start script: from its command line to its exit code."""

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.files import caller_path
from rainbow_iqn_apex.memory.broker.access import PASSWORD, USERNAME
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs import launch
from rainbow_iqn_apex.programs.machine import count_gpus
from rainbow_iqn_apex.programs.process import StopRequest, provide_streams
from rainbow_iqn_apex.programs.start import hosts, options, windows
from rainbow_iqn_apex.programs.start.screen import complain, say, shown
from rainbow_iqn_apex.programs.start.supervisor import Supervisor
from rainbow_iqn_apex.programs.supervision import WRONG_COMMAND, Clock

_HELP = Path(__file__).with_name("help.txt")


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


def _run(supervisor: Supervisor, asked: options.StartOptions, continuation: str) -> int:
    """Run to the end, and stop all that is left then, also after an error."""
    stopped, code = False, 1
    try:
        supervisor.prepare_redis()
        actors, results = f"{asked.args.nb_actor} actor(s)", caller_path(asked.args.path_to_results)
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
