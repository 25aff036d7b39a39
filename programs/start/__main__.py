"""Run the start script: python -m rainbow_iqn_apex.programs.start SCRIPT [OPTION ...]; SCRIPT is how it was called."""

import sys

from rainbow_iqn_apex.programs.start.stop_request import StopRequest

if __name__ == "__main__":
    stop = StopRequest()
    stop.listen()  # before the imports that follow: Ctrl-C is no reason for a traceback
    from rainbow_iqn_apex.programs.start.program import start

    sys.exit(start(sys.argv[1], sys.argv[2:], stop))
