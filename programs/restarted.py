"""Whether a supervisor starts this program again, by a command that has worked before.

Then what is missing (a server, memory, room on a disk, a folder) is missing for a while, and is no mistake of the
command: programs end with exit code 1 instead of 2, and do not refuse to start where memory or disk seem too small.
The start script and the recipes of deploy/ set the variable.
"""

import os

HAS_WORKED = "RAINBOW_HAS_WORKED"


def has_worked() -> bool:
    """Return whether this command has worked before."""
    return bool(os.environ.get(HAS_WORKED))
