"""Show a run in the browser while it learns: scores, speed, processes, and what the agent sees."""

import sys

from rainbow_iqn_apex.programs.process import checked_output, end_at_once


def main() -> None:
    """Serve the page until Ctrl-C; exit code 2 for a wrong command."""
    end_at_once()  # first: the imports that follow take a second
    from rainbow_iqn_apex.options import command_line
    from rainbow_iqn_apex.programs.dashboard.program import run

    with checked_output(command_line.name_of("dashboard.py")):
        run(sys.argv[1:], __doc__ or "")


if __name__ == "__main__":
    main()
