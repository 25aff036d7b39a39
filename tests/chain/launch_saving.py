"""As `launch`, but whatever a clock decides is done at every opportunity: snapshots after each round, and plots."""

import runpy
import sys

import agents.learner
import agents.reports
import tests.chain.environment  # noqa: F401 - adds it

if __name__ == "__main__":
    agents.learner._SNAPSHOT_INTERVAL_S = 0.0
    agents.reports._PLOT_INTERVAL_S = 0.0
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
