"""Run the start script without making an environment: python -m rainbow_iqn_apex.programs.start [OPTION ...]."""

import os
import sys
from collections.abc import Sequence

from rainbow_iqn_apex.programs.process import StopRequest


def main() -> None:
    """Run the start script without a checkout, as the command apex-train."""
    _start(sys.argv[:1], sys.argv[1:])


def _start(script: Sequence[str], words: Sequence[str]) -> None:
    stop = StopRequest()
    stop.listen()  # before the imports that follow: Ctrl-C is no reason for a traceback
    from rainbow_iqn_apex.options.command_line import CALLED_AS
    from rainbow_iqn_apex.programs.start.program import start

    if called_as := os.environ.pop(CALLED_AS, ""):
        script = ["bash", called_as]
    sys.exit(start(script, words, stop))


if __name__ == "__main__":
    _start(["python", "-m", "rainbow_iqn_apex.programs.start"], sys.argv[1:])
