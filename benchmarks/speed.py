"""All benchmarks of speed that compare parts of this project, one after the other."""

import argparse
from collections.abc import Iterator

from benchmarks import environment, networks, replay, system, transport
from benchmarks.harness import Comparison


def measure(args: argparse.Namespace) -> Iterator[Comparison]:
    """Measure what each of them does."""
    for part in (environment, replay, networks, transport, system):
        yield from part.measure(args)
