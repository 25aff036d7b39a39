"""Report training runs as the SABER benchmark asks, one agent or several side by side.

python saber_report.py results/ more_results/pong.csv --output report/
python saber_report.py results/ --label "large batch=runs/b" --output report/

Written are saber.html, one page that opens offline, and saber.json; the figures as SVG in saber_figures/; in
saber_tables/ the numbers as CSV, and the tables of scores and of the agents' differences as LaTeX.
"""

import argparse
import signal
import sys
from dataclasses import fields
from pathlib import Path

from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.options.command_line import path
from rainbow_iqn_apex.programs.process import checked_output, end_at_once


def main() -> None:
    """Read the command line and write the report; exit code 1 if it cannot be written, 2 for a wrong command.

    Installed, apex-report does this.
    """
    end_at_once()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C leaves no half-written file
    try:
        with checked_output(Path(sys.argv[0]).name):
            _run()
    except KeyboardInterrupt:
        sys.exit(130)


def _run() -> None:
    parser = argparse.ArgumentParser(description=__doc__ or "", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", type=path, nargs="*", help="results folders, with all that is below them, or <game>.csv files"
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="name of the agent whose runs lie in this folder, which need not be named once more; may be given again "
        "for others [the agent and its preset, with settings that differ]",
    )
    parser.add_argument("--output", type=path, default=Path("results"), help="folder to write to [results]")
    command_line.add_completion_and_version(parser)
    given = parser.parse_args()
    if not given.runs and not given.label:
        parser.error(f"name folders with <game>.csv, or such files, as in: {parser.prog} results/")

    from rainbow_iqn_apex.agents.registry import AGENTS
    from rainbow_iqn_apex.common.errors import UserError
    from rainbow_iqn_apex.options.command_line import fail  # after --help, which shall not wait for these
    from rainbow_iqn_apex.saber.report.inputs import parse_label
    from rainbow_iqn_apex.saber.report.program import write_report

    try:
        options = {name: frozenset(f.name for f in fields(entry.options)) for name, entry in AGENTS.items()}
        for line in write_report(given.runs, given.output, [parse_label(text) for text in given.label], options):
            print(line)
    except UserError as error:
        fail(parser.prog, error)
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
