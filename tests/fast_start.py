"""The start script, for whose restarts time passes thirty times as fast: python -m tests.fast_start [OPTION ...]."""

import sys
import time

from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start.program import start

if __name__ == "__main__":
    stop = StopRequest()
    stop.listen()
    sys.exit(start(["python", "-m", "tests.fast_start"], sys.argv[1:], stop, lambda: 30 * time.monotonic()))
