"""All benchmarks of speed, one after the other: `python -m benchmarks`, about ten minutes on a quiet machine."""

import argparse

from benchmarks import environment, networks, replay, system, transport
from benchmarks.harness import Comparison, run


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Everything that `python -m benchmarks.<name>` measures."""
    parts = (environment, replay, networks, transport, system)
    return [comparison for part in parts for comparison in part.measure(args)]


if __name__ == "__main__":
    run(measure, "All benchmarks of speed.")
