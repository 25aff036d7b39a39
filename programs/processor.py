"""Settings of a process for small tensors, to be made before torch is imported."""

import ctypes
import os


def prepare() -> None:
    """Let idle threads of OpenMP sleep soon, and let glibc keep the memory that tensors free.

    Threads that spin on take the cores from the actors beside them: a small update of the learner was measured to take
    113 ms instead of 8. Asleep at once, they have to be woken for each operation. Some microseconds of spinning
    (GNU's library, PyTorch's on Linux) are between the two.

    Memory that glibc returns to the kernel has to be faulted in again: an update of the `cpu` preset was measured to
    take 12.6 ms instead of 10.6.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    trim_threshold, mmap_threshold = -1, -3  # parameters of mallopt(3)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another C library
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**25)
