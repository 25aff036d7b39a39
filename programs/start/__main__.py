"""Run the start script: python -m rainbow_iqn_apex.programs.start SCRIPT [OPTION ...]; SCRIPT is how it was called."""

import sys
from collections.abc import Sequence

from rainbow_iqn_apex.programs.stop_request import StopRequest


def main() -> None:
    """Run the start script without a checkout, as the command apex-train."""
    _start(sys.argv[:1], sys.argv[1:])


def _start(script: Sequence[str], words: Sequence[str]) -> None:
    stop = StopRequest()
    stop.listen()  # before the imports that follow: Ctrl-C is no reason for a traceback
    from rainbow_iqn_apex.programs.start.program import start

    sys.exit(start(script, words, stop))


if __name__ == "__main__":
    _start(["bash", sys.argv[1]], sys.argv[2:])
