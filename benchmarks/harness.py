"""Compares pieces of work that are run in turn in one process, so that a machine's ups and downs meet all alike.

    work = {"memcpy": lambda: copy(), "ours": lambda: sample()}
    print(table(compare("replay", "1/s", work, args)))

Every repeat runs each work for a while and gives one rate; a ratio is taken within a repeat, of rates that are
neighbours in time, and reported with its smallest and largest.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from rainbow_iqn_apex.common.checkout import commit
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.options.command_line import path

Work = Callable[[], object]


@dataclass(frozen=True)
class Rate:
    """Holds how often a work was done, over the repeats."""

    name: str
    unit: str
    rates: tuple[float, ...]  # per second, one a repeat
    ratios: tuple[float, ...]  # to the first work's rate in the same repeat

    @property
    def median(self) -> float:
        """Return the median of the rates."""
        return statistics.median(self.rates)

    @property
    def ratio(self) -> float:
        """Return the median of the ratios."""
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class Comparison:
    """Compares works with the first of them, which is what the machine can do at best."""

    name: str
    rates: tuple[Rate, ...]
    wanted: dict[str, float]  # least ratio to the first, by the work's name


def compare(
    name: str,
    unit: str,
    works: dict[str, Work],
    args: argparse.Namespace,
    *,
    per_call: float = 1,
    wanted: dict[str, float] | None = None,
    slice_s: float = 0.4,
) -> Comparison:
    """Measure each work in turn, a slice of time in each repeat; `per_call` is what one call does, in `unit`s."""
    for work in works.values():
        work()  # what is made or compiled once
    slice_s = 0.02 if args.quick else slice_s
    measured = [{name: _rate(work, slice_s) * per_call for name, work in works.items()} for _ in range(args.repeats)]
    return beside_first(name, unit, {work: [m[work] for m in measured] for work in works}, wanted)


def beside_first(
    name: str, unit: str, rates: Mapping[str, Sequence[float]], wanted: dict[str, float] | None = None
) -> Comparison:
    """Compare rates of works, one a repeat, with those of the first work."""
    first = next(iter(rates.values()))
    found = (
        Rate(work, unit, tuple(own), tuple(a / b for a, b in zip(own, first, strict=True)))
        for work, own in rates.items()
    )
    return Comparison(name, tuple(found), wanted or {})


def _rate(work: Work, slice_s: float) -> float:
    """Return calls a second, of the median call: a shared machine stalls now and then."""
    took: list[float] = []
    end = time.perf_counter() + slice_s
    while len(took) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return 1 / statistics.median(took)


def table(comparison: Comparison) -> str:
    """Write Markdown: the rate, its ratio with the spread, and the wanted ratio."""
    repeats = len(comparison.rates[0].rates)
    lines = [f"| {comparison.name} | rate | ratio to the first (smallest to largest of {repeats}) | wanted |"]
    lines.append("|---|---|---|---|")
    for rate in comparison.rates:
        wanted = f"{comparison.wanted[rate.name]:.3g}" if rate.name in comparison.wanted else ""
        spread = f"{rate.ratio:.3g} ({min(rate.ratios):.3g} to {max(rate.ratios):.3g})"
        lines.append(f"| {rate.name} | {rate.median:,.4g} {rate.unit} | {spread} | {wanted} |")
    return "\n".join(lines)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a benchmark that compares."""
    parser.add_argument("--repeats", type=_positive, default=7, help="rounds over all works [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare the file of results."""
    parser.add_argument("--json", type=path, help="file to write")


def make_parser(name: str) -> argparse.ArgumentParser:
    """Make the parser of a benchmark's command line."""
    module = import_module(f"benchmarks.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    getattr(module, "add_options", add_options)(parser)
    return parser


def run(name: str, words: Sequence[str]) -> None:
    """Run a benchmark with the words of its command line.

    Its module has `measure(args)`, which returns comparisons, printed here as tables, and dictionaries of other
    figures; `add_options(parser)`, if its options are not those of here; and a docstring, which --help shows.
    """
    parser = make_parser(name)
    args = parser.parse_args(words)
    path: Path | None = getattr(args, "json", None)
    if path and not path.parent.is_dir():
        parser.error(f"--json: there is no folder {path.parent}")
    try:
        found = _collect(import_module(f"benchmarks.{name}").measure(args))
    except KeyboardInterrupt:
        sys.exit("stopped: what was measured stands above")
    except UserError as error:
        parser.error(str(error))
    except RunError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")


def _collect(parts: Iterable[Comparison | dict[str, Any]]) -> dict[str, Any]:
    """Print the comparisons as they come; return everything with machine and commit."""
    found: dict[str, Any] = {"machine": machine(), "commit": commit()}
    for part in parts:
        if isinstance(part, Comparison):
            print(table(part), end="\n\n", flush=True)
            found.setdefault("comparisons", []).append(asdict(part))
        else:
            found |= part
    return found


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be above 0, is {number}")
    return number


def machine() -> dict[str, str | int]:
    """Return the processor, the cores this process may use, the GPU if there is one, and versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
