"""Report training runs as the SABER benchmark asks: `saber.html`, one page that opens offline, and `saber.json`.

python saber_report.py results/ more_results/pong.csv --output report/
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    """Read the command line and write the report; exit code 1 if it cannot be written, 2 for a wrong command."""
    parser = argparse.ArgumentParser(description=str(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "runs", type=Path, nargs="+", help="results folders, with all that is below them, or <game>.csv files"
    )
    parser.add_argument("--output", type=Path, default=Path("results"), help="folder to write to [results]")
    given = parser.parse_args()

    from command_line import fail  # after --help, which shall not wait for these
    from memory.errors import UserError
    from saber.report.program import write_report

    try:
        for line in write_report(given.runs, given.output):
            print(line)
    except UserError as error:
        fail("saber_report.py", error)
    except OSError as error:
        print(f"saber_report.py: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
