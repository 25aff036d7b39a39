"""As `launch`, but whatever a clock decides is done at every opportunity: snapshots after each round, and plots."""

import runpy
import sys

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.programs.learner import results_folder, saving

if __name__ == "__main__":
    saving._SNAPSHOT_INTERVAL_S = 0.0
    results_folder._PLOT_INTERVAL_S = 0.0
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
