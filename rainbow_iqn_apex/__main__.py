"""List the programs: python -m rainbow_iqn_apex."""

import sys
from importlib import import_module

from rainbow_iqn_apex.options.command_line import COMMANDS

_MODULES = {"start_learning_atari": "programs.start"}  # of a script that is none itself


def main() -> None:
    """Print each program's script, its command and the first line of its documentation."""
    if sys.argv[1:]:
        print("python -m rainbow_iqn_apex: lists the programs, and takes no argument; run one of them", file=sys.stderr)
        sys.exit(2)
    print("Each program is a script of a checkout and a command of an installed package, and takes --help:\n")
    for script, command in COMMANDS.items():
        name = script.partition(".")[0]
        text = import_module(f"{__package__}.{_MODULES.get(name, name)}").__doc__ or ""
        print(f"{script:24} {command:15} {text.partition(chr(10))[0]}".rstrip())


if __name__ == "__main__":
    main()
