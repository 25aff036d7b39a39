"""What other people's code changes of its process is undone."""

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.common.plugins import _umask, kept_settings
from tests.processes import ROOT, clean_environment, run

_ALL = signal.valid_signals()
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], object]]] = {  # what to read, and what changes it
    "folder": (os.getcwd, lambda: os.chdir("/")),
    "umask": (_umask, lambda: os.umask(0o177)),
    "handler": (lambda: signal.getsignal(signal.SIGTERM), lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)),
    "own handler": (lambda: signal.getsignal(signal.SIGUSR2), lambda: signal.signal(signal.SIGUSR2, lambda *_: None)),
    "mask": (
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _ALL),
    ),
    "wakeup": (lambda: signal.set_wakeup_fd(-1), lambda: signal.set_wakeup_fd(-1)),
    "errors": (np.geterr, lambda: np.seterr(all="raise")),
    "printing": (np.get_printoptions, lambda: np.set_printoptions(precision=1, threshold=3)),
    "dtype": (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
    "gradients": (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
    "anomaly": (torch.is_anomaly_enabled, lambda: torch.autograd.set_detect_anomaly(True)),
    "device": (lambda: torch.zeros(1).device.type, lambda: torch.set_default_device("meta")),
    "cost of a device": (torch._C._len_torch_function_stack, lambda: torch.set_default_device("meta")),
    "deterministic": (torch.are_deterministic_algorithms_enabled, lambda: torch.use_deterministic_algorithms(True)),
    "cudnn": (lambda: torch.backends.cudnn.deterministic, lambda: setattr(torch.backends.cudnn, "deterministic", True)),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(7)),
}


@pytest.fixture
def wakeup() -> Iterator[int]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    yield writing
    signal.set_wakeup_fd(before, warn_on_full_buffer=False)
    os.close(reading)
    os.close(writing)


@pytest.mark.usefixtures("wakeup")
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_process_has_set_stays(name: str) -> None:
    # Mutations: leave out each line of `_torch`, `_NUMPY`, `kept_settings` and `_Signals`.
    read, change = CHANGES[name]
    if name == "wakeup":
        with kept_settings():
            change()
        assert read() > 0
        return
    with kept_settings():  # a frame around it, so that a failure here spoils no other test
        before = read()
        with pytest.raises(KeyError), kept_settings():
            change()
            assert read() != before
            raise KeyError
        assert read() == before


def test_the_folder_may_stay_where_an_environment_plays_on(tmp_path: Path) -> None:
    with kept_settings():
        with kept_settings(folder=False):
            os.chdir(tmp_path)
        assert Path.cwd() == tmp_path


def test_a_handler_that_c_code_has_replaced_is_set_again() -> None:
    # Mutation: compare with what Python knows, as is enough for a handler that Python code has set.
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append(1))
    try:
        with kept_settings():
            ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(1))  # SIG_IGN
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)
        assert got == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_settings_of_a_library_that_the_code_itself_imports_are_those_that_it_begins_with(tmp_path: Path) -> None:
    # Mutation: keep the settings of libraries that are there before alone.
    tmp_path.joinpath("setting.py").write_text(
        "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\n"
        "torch.use_deterministic_algorithms(True)\ntorch.set_default_device('meta')\n"
    )
    tmp_path.joinpath("look.py").write_text(
        "import sys\nfrom rainbow_iqn_apex.common import plugins\n"
        "assert 'torch' not in sys.modules\nplugins.load('--env', 'setting:torch')\nimport torch\n"
        "x = torch.zeros(1)\nprint(x.dtype, x.device, torch.is_grad_enabled(), torch.get_deterministic_debug_mode())\n"
    )
    environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
    code, out, errors = run(str(tmp_path / "look.py"), cwd=tmp_path, environment=environment)
    assert (code, out) == (0, "torch.float32 cpu True 0\n"), errors
