"""Runs a launcher in a hurry, with a mutation, and a folder for a learner's notes.

python -m tests.chaos.launch notes/ nothing launch_learner.py [options]
"""

import runpy
import sys
from pathlib import Path

from tests.chain import changes
from tests.chaos import mutations, notes

if __name__ == "__main__":
    folder, mutation, sys.argv = sys.argv[1], sys.argv[2], sys.argv[3:]
    changes.hurried()
    if sys.argv[0] == "launch_learner.py":
        notes.write_down(Path(folder))
    mutations.apply(mutation)
    runpy.run_path(sys.argv[0], run_name="__main__")
