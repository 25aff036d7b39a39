"""Runs a launcher with the chain among the environments: python -m tests.chain.launch launch_learner.py [options]."""

import runpy
import sys

from saber.environment import ENVIRONMENTS
from tests.chain.environment import ChainEnvironment

ENVIRONMENTS["chain"] = lambda _settings, seed: ChainEnvironment(seed)

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
