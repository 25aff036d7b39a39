"""Finds classes and functions outside of this project: by `package.module:name`, or by entry points of packages.

Code of others may change the settings of the process that it runs in: `kept_settings` gives the process its own back.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import CALLED_FROM
from rainbow_iqn_apex.common.signals import STOP_SIGNALS
from rainbow_iqn_apex.common.text import name_error


@cache
def offered(group: str) -> dict[str, str]:
    """Return what installed packages offer in a group of entry points: `package.module:name` by entry point."""
    return {point.name: point.value for point in sorted(entry_points(group=group))}


def module_exists(place: str) -> bool:
    """Return whether `place`, as package.module:name, names a module that can be found; imports its packages."""
    module, colon, name = place.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        return False
    _find_modules_here()
    try:
        with kept_settings():
            return find_spec(module) is not None
    except (Exception, SystemExit):  # noqa: BLE001 - a package's own code failed: `load` names the failure
        return True


def load(option: str, place: str) -> Any:
    """Return the object at `place`, as package.module:name; raises UserError that names the option.

    Modules of the present folder are found, too, after those that are installed; under the start script, which works in
    its own folder, also those of the folder from which it was called.
    """
    module, _, name = place.partition(":")
    _find_modules_here()
    try:
        return getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # any error: it is other people's code
        raise UserError(f"{option}: {place} cannot be imported: {name_error(error)}") from error


def import_module(name: str) -> ModuleType:
    """Import a module of others; what it changes of this process's settings is undone."""
    with kept_settings():
        return importlib.import_module(name)


def searched(place: str) -> str:
    """Return the end of a line about a module that was not found: where it was looked for."""
    module, colon, _ = place.partition(":")
    return f" (module {module!r} is neither installed nor in {' or '.join(_folders())})" if colon else ""


def _find_modules_here() -> None:
    sys.path += [folder for folder in _folders() if folder not in sys.path]


def _folders() -> list[str]:
    """Return the present folder, and the one from which the start script was called if that is another."""
    here = str(Path.cwd())
    return list(dict.fromkeys([here, os.environ.get(CALLED_FROM, here)]))


# --- settings of the process ---

_NUMBERS = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class _Setting(NamedTuple):
    """A setting of the process or of a library."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    first: Any = None  # of a library that is imported in the block; None: not known


@contextmanager
def kept_settings(*, folder: bool = True) -> Iterator[None]:
    """Restore this process's own settings after a block in which other people's code runs.

    These are the file mode mask, signals, what NumPy and PyTorch hold for the whole process, and the working `folder`:
    unless an environment that was made in the block plays on, which may need the folder that it has gone to. Nothing
    here does, as all paths of `Args` are absolute.
    """
    settings = [_UMASK, *_NUMPY, *([_FOLDER] if folder else [])]
    is_new = "torch" not in sys.modules
    kept = [(setting, setting.read()) for setting in (*settings, *([] if is_new else _torch()))]
    signals = _signals() if threading.current_thread() is threading.main_thread() else None
    try:
        yield
    finally:
        if is_new and "torch" in sys.modules:
            kept += [(setting, setting.first) for setting in _torch() if setting.first is not None]
        for setting, value in kept:
            if setting.read() != value:
                setting.write(value)
        if signals:
            _set_signals(signals)


def _umask() -> int:
    mask = os.umask(0o077)  # nothing else returns it
    os.umask(mask)
    return mask


def _folder() -> str:
    with suppress(FileNotFoundError):  # somebody has deleted it
        return str(Path.cwd())
    return ""


def _enter(folder: str) -> None:
    if folder:
        os.chdir(folder)


_UMASK, _FOLDER = _Setting(_umask, os.umask), _Setting(_folder, _enter)
_NUMPY = (
    _Setting(np.geterr, lambda kept: np.seterr(**kept)),
    _Setting(np.get_printoptions, lambda kept: np.set_printoptions(**kept)),
)


@cache
def _torch() -> tuple[_Setting, ...]:
    """Return PyTorch's settings on which results or the learner depend; those of speed alone are an agent's choice."""
    import torch

    cudnn = torch.backends.cudnn
    return (
        _Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        _Setting(torch.is_grad_enabled, torch.set_grad_enabled, True),
        _Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
        _Setting(torch.get_default_device, _set_default_device, torch.device("cpu")),
        _Setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 0),
        _Setting(partial(getattr, cudnn, "deterministic"), partial(setattr, cudnn, "deterministic"), False),
        _Setting(torch.get_num_threads, torch.set_num_threads),
    )


def _set_default_device(device: Any) -> None:
    import torch

    # Where a device is set, also the CPU, each call of PyTorch takes longer.
    torch.set_default_device(None if device == torch.device("cpu") else device)


class _Signals(NamedTuple):
    handlers: dict[signal.Signals, Any]
    wakeup_fd: int  # to which Python writes the numbers of signals
    blocked: set[int]


def _signals() -> _Signals:
    # Nothing else returns it. A signal to any thread in between does not reach the descriptor, but its handler.
    wakeup_fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return _Signals({number: signal.getsignal(number) for number in _NUMBERS}, wakeup_fd, blocked)


def _set_signals(kept: _Signals) -> None:
    """Set handlers, also those that C code may have replaced: Python would not notice."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _NUMBERS)
    for number, handler in kept.handlers.items():
        is_ours = callable(handler) or number in STOP_SIGNALS
        if handler is not None and (is_ours or signal.getsignal(number) is not handler):
            signal.signal(number, handler)
    signal.set_wakeup_fd(kept.wakeup_fd, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, kept.blocked)
