"""As `launch`, but the first learner of a folder is killed just before it would write that its run has finished."""

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient

_progress = LearnerClient.progress


def _die_at_the_end(self: LearnerClient, status: str, *rest: Any, **named: Any) -> None:
    died = Path(sys.argv[sys.argv.index("--path-to-results") + 1], "died")
    if status == "finished" and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    _progress(self, status, *rest, **named)


if __name__ == "__main__":
    LearnerClient.progress = _die_at_the_end  # type: ignore[method-assign]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
