"""The inference server that a learner starts beside itself, with `--inference learner`.

It is a process of its own, so that a batch and an update take no turns: in one process they would share Python's lock.
It begins again when it fails, and ends with its learner.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.signals import blocked, describe_end
from rainbow_iqn_apex.common.text import name_exit, one_line
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.programs.inference.listening import listening, server_tls
from rainbow_iqn_apex.programs.process import prepare_processor, stop_on_signals

_AGAIN_S = (2.0, 60.0)  # between two starts: twice as long each time, and at most
_WORKS_S = 60.0  # a server that ends later has worked before
_LOOK_S = 0.5
_END_S = 15.0


def check_own_inference(args: Args) -> None:
    """Raise UserError if the server that the learner shall have could not listen with these settings."""
    if args.inference == "learner":
        server_tls(args)
        with listening(args.inference_host, args.inference_port):
            pass


@contextmanager
def own_inference(args: Args) -> Iterator[None]:
    """Keep an inference server running, if the learner shall have one."""
    if args.inference != "learner":
        yield
        return
    left = threading.Event()
    keeper = threading.Thread(target=_keep, args=(args, left), name="inference", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        left.set()
        keeper.join()


def _keep(args: Args, left: threading.Event) -> None:
    pause, most = _AGAIN_S
    while not left.is_set():
        began = time.monotonic()
        try:
            code = _run_once(args, left)
        except OSError as error:  # no memory for a process, say
            print(f"The inference server of this learner cannot be started: {one_line(error)}", flush=True)
        else:
            if not code:
                return  # the run is over, or the learner leaves
            print(f"The inference server of this learner {describe_end(code)}: starting it again", flush=True)
        if time.monotonic() - began >= _WORKS_S:
            pause = _AGAIN_S[0]
        left.wait(pause)
        pause = min(most, 2 * pause)


def _run_once(args: Args, left: threading.Event) -> int:
    """Run a server until it ends or the learner has left; return its exit code, 0 if the run is over."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(replace(args, id_actor=-1), os.getpid()))
    resource_tracker.ensure_running()  # otherwise `start` would start it, which unblocks SIGINT
    with blocked(signal.SIGINT):  # Ctrl-C also reaches the learner, which then ends the server
        process.start()
    while process.is_alive() and not left.wait(_LOOK_S):
        pass
    if left.is_set():
        process.terminate()
        process.join(_END_S)
        process.kill()
        process.join()
        return 0
    return process.exitcode or 0


def _serve(args: Args, learner: int) -> None:
    prepare_processor()
    stop = stop_on_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_with, args=(learner, stop), daemon=True).start()
    from rainbow_iqn_apex.programs.inference.program import run_inference

    try:
        run_inference(args, stop)
    except Stopped:  # by somebody else than its learner, which would not start it again
        raise SystemExit(1) from None
    except (UserError, RunError, BrokerError, OSError) as error:
        print(f"Inference server: {error}", flush=True)
        raise SystemExit(1) from error
    except SystemExit as error:
        print(f"Inference server: {name_exit(error)}", flush=True)
        raise SystemExit(1) from error


def _stop_with(learner: int, stop: threading.Event) -> None:
    """Stop when the learner has gone, also if it was killed."""
    while os.getppid() == learner and not stop.wait(_LOOK_S):
        pass
    stop.set()
