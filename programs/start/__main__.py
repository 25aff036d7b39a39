"""Run the start script: python -m programs.start SCRIPT [OPTION ...]; SCRIPT is how the user has called it."""

import sys

from programs.start.stop_request import StopRequest

if __name__ == "__main__":
    stop = StopRequest()
    stop.listen()  # before the imports that follow: Ctrl-C is no reason for a traceback
    from programs.start.program import start

    sys.exit(start(sys.argv[1], sys.argv[2:], stop))
