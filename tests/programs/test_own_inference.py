"""The inference server that a learner starts beside itself."""

import multiprocessing
import signal
import sys
import threading

import pytest

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.programs.learner import own_inference


def simulate() -> None:
    """Be the process of a simulator."""


def serve_what_simulates(_args: Args, _learner: int) -> None:
    """Open an environment that is simulated in a process of its own."""
    process = multiprocessing.Process(target=simulate)
    process.start()
    process.join()


def serve_what_hears_ctrl_c(_args: Args, _learner: int) -> None:
    """Fail if Ctrl-C would end this process before it has made itself deaf to it."""
    sys.exit(signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_ctrl_c_ends_no_server_that_is_only_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave the signal to Python, which prints a traceback, and the learner starts another server.
    monkeypatch.setattr(own_inference, "_serve", serve_what_hears_ctrl_c)
    assert own_inference._run_once(options.parse([], "", ""), threading.Event()) == 0


def test_its_environment_may_start_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: a daemonic process, which may have no children.
    monkeypatch.setattr(own_inference, "_serve", serve_what_simulates)
    assert own_inference._run_once(options.parse([], "", ""), threading.Event()) == 0
