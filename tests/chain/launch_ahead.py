"""As `launch`, but the clock of an actor is an hour ahead of the learner's and of the Redis server's."""

import runpy
import sys
import time

import tests.chain.environment  # noqa: F401 - adds it

if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[0] == "launch_actor.py":
        exact = time.time
        time.time = lambda: exact() + 3600
    runpy.run_path(sys.argv[0], run_name="__main__")
