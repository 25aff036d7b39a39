"""Runs a launcher with the chain among the environments: python -m tests.chain.launch launch_learner.py [options]."""

import runpy
import sys

import tests.chain.environment  # noqa: F401 - adds it

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
