"""All benchmarks of speed, one after the other: `python -m benchmarks`, twenty minutes."""

import argparse
from collections.abc import Iterable

from benchmarks import environment, families, networks, replay, system, transport
from benchmarks.harness import Comparison, run


def measure(args: argparse.Namespace) -> Iterable[Comparison]:
    """Everything that `python -m benchmarks.<name>` measures."""
    for part in (environment, replay, networks, families, transport, system):
        yield from part.measure(args)


if __name__ == "__main__":
    run(measure, "All benchmarks of speed.")
