"""Prepares a process for small tensors, before torch is imported."""

import ctypes
import os


def prepare() -> None:
    """Let idle threads of OpenMP sleep soon, and let glibc keep the memory that tensors free.

    Idle threads that spin on take the cores from the actors: a small update of the learner took 113 ms instead of 8.
    Idle threads that sleep at once have to be woken for each operation. Some microseconds of spinning are between the
    two (in GNU's library, which PyTorch uses on Linux).

    Memory that glibc returns to the kernel has to be faulted in again: with that, an update of the `cpu` preset took
    12.6 ms instead of 10.6. Tensors above 32 MiB would be mapped anew whatever the threshold is, so mapping is given
    up: an update of R2D2 took 4.6 s of processor time instead of 3.1, a third of it in the kernel.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # parameters of mallopt(3)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another C library
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**25)
    mallopt(mmap_max, 0)
