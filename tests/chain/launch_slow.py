"""As `launch`, but every update of IMPALA takes as long as some hundred of the actors' steps."""

import runpy
import sys
import time
from typing import Any

import tests.chain.environment  # noqa: F401 - adds it
from agents.impala.agent import Impala

if __name__ == "__main__":
    update = Impala.update

    def slowly(agent: Impala, *given: Any) -> Any:
        time.sleep(0.05)
        return update(agent, *given)

    Impala.update = slowly  # type: ignore[method-assign]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
