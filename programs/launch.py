"""How every program begins and ends: the command line first, then the imports that take seconds, then the work."""

import os
import re
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.registry import agent_names
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import DivergedError, RunError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_exit
from rainbow_iqn_apex.environments.registry import ENVIRONMENTS
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.process import checked_output, has_worked, stop_on_signals

Main = Callable[[Args, threading.Event], None]
_LINGERS_S = 20.0  # a library that sends the last of something may need a while


def run_program(main: str, program: str, description: str, load: str = "") -> None:
    """Parse the command line, then import and run `main`, as module:function; Ctrl-C and SIGTERM ask it to stop.

    `load`, written likewise, imports what only some settings need: while that loads, the signals end the process.

    Exit codes: 0 done or stopped in good order, 1 the run cannot go on, 2 the command is wrong, or training
    with its settings has diverged, 3 an actor in lockstep has lost its inference server, and goes on when it is started
    again.
    """
    program = command_line.name_of(program)
    with _ends(program), checked_output(program):
        _run(main, program, description, load)


@contextmanager
def _ends(program: str) -> Iterator[None]:
    """End the process after the block even if an environment or an agent has left a thread that goes on."""
    code: object = 1
    try:
        yield
        code = 0
    except SystemExit as error:
        code = error.code or 0
        raise
    finally:
        with suppress(RuntimeError):  # no room for a thread
            threading.Thread(target=_leave, args=(program, code if isinstance(code, int) else 1), daemon=True).start()


def _leave(program: str, code: int) -> None:
    time.sleep(_LINGERS_S)  # unless Python has ended by then
    left = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    if left:
        print(f"{program}: ends without waiting for these threads: {', '.join(left)}", file=sys.stderr, flush=True)
        from multiprocessing import active_children

        for child in active_children():
            child.terminate()  # as Python does with daemons
        os._exit(code)


def print_completion(program: str, others: Sequence[ArgumentParser] = ()) -> NoReturn:
    """Print a script that completes all options in a shell, and leave; `others` have options besides."""
    from rainbow_iqn_apex.saber.games import games

    values = {
        "game": games(),
        "env": [name + ":" * bool(entry.example) for name, entry in ENVIRONMENTS.items()],
        "agent": agent_names(),
    }
    command_line.print_completion(options.ALL_GROUPS, program, values, others)


def _run(main: str, program: str, description: str, load: str) -> None:
    command_line.answer_version(program)
    try:
        if command_line.asks_for_completion(None):
            print_completion(program)
        arguments = options.parse(None, program, description)
    except UserError as error:  # also a file of settings in a folder that is away for a while
        command_line.fail(program, error, 1 if has_worked() else 2)
    try:
        run: Main = _imported(main)
        if load:
            _imported(load)(arguments)
    except (ImportError, MemoryError, OSError) as error:  # a library, or room for it, is missing
        hint = "" if isinstance(error, ModuleNotFoundError) else " (is a memory limit too small, see ulimit -v?)"
        print(f"{program}: cannot load what it needs: {str(error) or type(error).__name__}{hint}", file=sys.stderr)
        sys.exit(1)
    _work(run, arguments, program)


def _work(run: Main, arguments: Args, program: str) -> None:
    from rainbow_iqn_apex.memory.broker.connection import BrokerError

    try:
        run(arguments, stop_on_signals())
    except UserError as error:
        named = UserError(arguments.name_source(str(error)))
        command_line.fail(program, named, 1 if has_worked() else 2)
    except DivergedError as error:
        command_line.fail(program, UserError(str(error)))  # the same settings would lead there again
    except (RunError, OSError) as error:  # OSError: a full disk, a results folder that was moved away
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, RunError) else 1)
    except BrokerError as error:
        print(f"{program}: the Redis server failed us: {error}", file=sys.stderr)
        sys.exit(1)
    except Stopped:
        pass
    except (MemoryError, RuntimeError) as error:
        if not (found := _lack_of_memory(error)):
            raise
        way = "raise the limit of memory (ulimit -v, or a container's), or choose a smaller --memory-capacity"
        if "CUDA" in found:
            way = "end what else uses this GPU, or choose a smaller --batch-size, or --replay-device cpu"
        print(f"{program}: there is too little memory: {found}; {way}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as error:
        print(f"{program}: {name_exit(error)}", file=sys.stderr)
        sys.exit(1)


def _lack_of_memory(error: MemoryError | RuntimeError) -> str:
    """Return the first line of an error by which Python, NumPy or PyTorch report a lack of memory; empty: another."""
    text = (str(error) or type(error).__name__).splitlines()[0]
    is_lack = isinstance(error, MemoryError) or re.search(r"new thread|allocate memory|out of memory", str(error))
    return text if is_lack else ""


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
