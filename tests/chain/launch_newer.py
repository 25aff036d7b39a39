"""As `launch`, of a release whose wire version is one higher."""

import runpy
import sys

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.memory import wire

if __name__ == "__main__":
    wire.VERSION += 1
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
