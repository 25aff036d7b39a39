"""The inference server that a learner starts beside itself, with `--inference learner`.

It is a process of its own, so that a batch and an update take no turns: in one process they would share Python's lock.
It begins again when it fails, and ends with its learner.
"""

import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_exit, one_line
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.programs.inference.server import listening
from rainbow_iqn_apex.programs.process import prepare_processor, stop_on_signals
from rainbow_iqn_apex.programs.supervision import Function, RestartPolicy, stop_all

_LOOK_S = 0.5
_END_S = 15.0


def check_own_inference(args: Args) -> None:
    """Raise UserError if the server that the learner shall have could not listen with these settings."""
    if args.inference == "learner":
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
    policy = RestartPolicy(final_codes=(0,), most=math.inf)
    server = Function(
        "The inference server of this learner", _serve, (replace(args, id_actor=-1), os.getpid()), policy=policy
    )
    server.has_worked = True  # what it lacks, such as memory, may be away for a while: there are pauses
    while not left.is_set():
        try:
            server.start()
            while server.runs() and not left.wait(_LOOK_S):
                pass
        except OSError as error:  # no memory for a process, say
            print(f"{server.name} cannot be started: {one_line(error)}", flush=True)
        else:
            if server.may_restart():
                print(f"{server.end}: starting it again", flush=True)
        if not server.runs() and not server.may_restart():
            return  # the run is over
        while not left.is_set() and not server.is_due():
            left.wait(_LOOK_S)
    for process in stop_all([server], _END_S):
        process.kill()


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
