"""What this process uses of its machine."""

import os
import sys
import time
from pathlib import Path
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes


class ProcessUse:
    """Measures memory and processor time of this process, the latter since the last measurement."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), time.process_time())

    def measure(self) -> dict[str, float]:
        """Return the metrics of this moment."""
        now = (time.monotonic(), time.process_time())
        elapsed, used = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        values = {"process/memory": float(resident_bytes()), "process/cpu": used / elapsed if elapsed else 0.0}
        cuda: Any = sys.modules.get("torch.cuda")  # not imported for this, and perhaps just being imported
        if getattr(cuda, "is_initialized", bool)():
            values["process/gpu_memory"] = float(sum(map(cuda.memory_reserved, range(cuda.device_count()))))
        return values


def resident_bytes() -> int:
    """Return the bytes of memory that this process holds; 0 where the system does not count them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:  # no Linux
        return 0
