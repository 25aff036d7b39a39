"""Compares pieces of work that are run in turn in one process, so that a machine's ups and downs meet all alike.

    work = {"memcpy": lambda: copy(), "ours": lambda: sample()}
    measured = compare("replay", "1/s", work, per_call=1, repeats=7)
    print(table(measured)); save(measured, path)

Every repeat runs each work for a while and gives one rate; a ratio is taken within a repeat, of rates that are
neighbours in time, and reported with its smallest and largest.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment_info import machine
from rainbow_iqn_apex.saber.results.run_record import commit

Work = Callable[[], object]
Clock = Callable[[], float]  # seconds

SLICE_S = 0.4  # of one work in one repeat


@dataclass(frozen=True)
class Rate:
    """How often a work was done, over the repeats."""

    name: str
    unit: str
    rates: tuple[float, ...]  # per second, one a repeat
    ratios: tuple[float, ...]  # to the first work's rate in the same repeat

    @property
    def median(self) -> float:
        """Of the rates."""
        return statistics.median(self.rates)

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class Comparison:
    """Works compared with the first of them, which is what the machine can do at best."""

    name: str
    rates: tuple[Rate, ...]
    wanted: dict[str, float]  # least ratio to the first, by the work's name

    def ratio(self, name: str) -> float:
        """Median ratio of a work to the first."""
        return next(rate.ratio for rate in self.rates if rate.name == name)


def compare(
    name: str, unit: str, works: dict[str, Work], *, per_call: float = 1, repeats: int = 5,
    wanted: dict[str, float] | None = None, slice_s: float = SLICE_S, clock: Clock = time.perf_counter,
) -> Comparison:  # fmt: skip
    """Measure each work in turn, `repeats` times; `per_call` is what one call does, in `unit`s of `clock`."""
    for work in works.values():
        work()  # what is made or compiled once
    measured = [{name: _rate(work, slice_s, clock) * per_call for name, work in works.items()} for _ in range(repeats)]
    first = next(iter(works))
    rates = tuple(
        Rate(work, unit, tuple(m[work] for m in measured), tuple(m[work] / m[first] for m in measured))
        for work in works
    )
    return Comparison(name, rates, wanted or {})


def _rate(work: Work, slice_s: float, clock: Clock) -> float:
    """Calls a second: of the median call, as a shared machine stalls now and then. The slice is one of `clock`."""
    took: list[float] = []
    end = clock() + slice_s
    while len(took) < 3 or clock() < end:
        start = clock()
        work()
        took.append(clock() - start)
    return 1 / statistics.median(took)


def table(comparison: Comparison) -> str:
    """Markdown: rate, time of one call, ratio with its spread, and the wanted ratio."""
    repeats = len(comparison.rates[0].rates)
    lines = [f"| {comparison.name} | rate | ratio to the first (smallest to largest of {repeats}) | wanted |"]
    lines.append("|---|---|---|---|")
    for rate in comparison.rates:
        wanted = f"{comparison.wanted[rate.name]:.3g}" if rate.name in comparison.wanted else ""
        spread = f"{rate.ratio:.3g} ({min(rate.ratios):.3g} to {max(rate.ratios):.3g})"
        lines.append(f"| {rate.name} | {rate.median:,.4g} {rate.unit} | {spread} | {wanted} |")
    return "\n".join(lines)


def save(comparisons: list[Comparison], path: Path) -> None:
    """Write the comparisons with machine and commit."""
    found: dict[str, Any] = {"machine": machine(), "commit": commit()}
    found["comparisons"] = [asdict(comparison) for comparison in comparisons]
    path.write_text(json.dumps(found, indent=1) + "\n")


Measure = Callable[[argparse.Namespace], Iterable[Comparison]]


def run(
    measure: Measure,
    description: str,
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
) -> None:
    """The command line of a benchmark: measures, prints tables and writes JSON."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--repeats", type=_positive, default=7, help="rounds over all works")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    args = parser.parse_args()
    if args.json and not args.json.parent.is_dir():
        parser.error(f"--json: there is no folder {args.json.parent}")
    comparisons: list[Comparison] = []
    try:
        for comparison in measure(args):
            print(table(comparison), end="\n\n", flush=True)
            comparisons.append(comparison)
    except KeyboardInterrupt:
        sys.exit("stopped: what was measured stands above")
    if args.json:
        save(comparisons, args.json)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be above 0, is {number}")
    return number
