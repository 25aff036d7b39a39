"""Choose among the lines that a start script has printed."""

import re
from collections.abc import Sequence

from rainbow_iqn_apex.common.text import one_line

RESULT = "Result: "  # begins the line of a learner that ends, which the start script prints as its own last
_FAULTS = (r"error: |cannot go on", r"^\[learner\] ", ".")  # what tells best why a run has failed comes first


def fault_in(lines: Sequence[str]) -> str:
    """Return the line that tells best why a run has failed; its last lines tell of the stop of all that is left."""
    return next((found for pattern in _FAULTS if (found := newest_with(pattern, lines))), "it has printed nothing")


def newest_with(pattern: str, lines: Sequence[str]) -> str:
    """Return the newest line that has the pattern, empty if there is none."""
    found = next((line for line in reversed(lines) if re.search(pattern, line)), "")
    return one_line(found) if found.strip() else ""
