"""Runs a launcher with the chain among the environments, and with a change of `tests.chain.changes`.

python -m tests.chain.launch nothing launch_learner.py [options]
"""

import runpy
import sys

from tests.chain import changes

if __name__ == "__main__":
    change, sys.argv = sys.argv[1], sys.argv[2:]
    getattr(changes, change)()
    runpy.run_path(sys.argv[0], run_name="__main__")
