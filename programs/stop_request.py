"""Notice the user's request to stop: Ctrl-C, SIGTERM, or a terminal that closes (SIGHUP)."""

import os
import signal
import time

from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.common.signals import STOP_SIGNALS

_PAUSE_S = 0.1
ENDS_WITH = "RAINBOW_ENDS_WITH"  # variable: the number of the process that has started this one, and whose end ends it


class StopRequest:
    """Notes the signals; a second one changes nothing."""

    def __init__(self) -> None:
        self._requested = False
        self._parent = os.environ.get(ENDS_WITH, "")

    def listen(self) -> None:
        """Note the signals from now on, but for those that this process was started to ignore, as by nohup."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        self._requested = True  # and no more: a handler runs between any two operations of the main thread

    def pause(self) -> None:
        """Wait a moment; raises Stopped if a stop was requested, or who has started this process was killed."""
        time.sleep(_PAUSE_S)
        if self._requested or self._parent not in ("", str(os.getppid())):
            raise Stopped
