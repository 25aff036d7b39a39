"""As `launch`, but every update of IMPALA takes as long as some hundred of the actors' steps."""

import runpy
import sys
import time

from torch import Tensor

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.interface import Update
from rainbow_iqn_apex.memory.batch import Batch

if __name__ == "__main__":
    update = Impala.update

    def slowly(self: Impala, batch: Batch, progress: float | Tensor) -> Update:
        time.sleep(0.05)
        return update(self, batch, progress)

    Impala.update = slowly  # type: ignore[method-assign]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
