"""Agents, their networks and mathematics, and the actor and learner loops."""

import ctypes
import os

# Idle OpenMP threads must soon sleep: spinning on, they take the cores from the actors beside them, and a small update
# of the learner was measured to take 113 ms instead of 8; asleep at once, they have to be woken for each operation.
# These are some microseconds of spinning (GNU's library, PyTorch's on Linux). It is read when torch is first imported.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def _keep_freed_memory() -> None:
    """Let glibc keep what tensors free: it would return it to the kernel, and fault every page in again.

    An update of the `cpu` preset was measured to take 10.6 ms instead of 12.6.
    """
    trim_threshold, mmap_threshold = -1, -3  # parameters of mallopt(3)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another C library
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**25)


_keep_freed_memory()
