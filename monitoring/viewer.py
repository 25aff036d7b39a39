"""Hands views from the thread that acts to the one that reports, each when the latter has asked for one.

No view is worth an actor: one that cannot be made leaves a line, and is the last.
"""

from collections.abc import Callable

from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.monitoring.view import View


class Viewer:
    """Holds at most one view.

    The thread that acts calls `give` again and again; the thread that reports calls `ask` and `take`.
    """

    def __init__(self) -> None:
        self._is_wanted = False
        self._failed = False
        self._view: View | None = None

    def ask(self) -> None:
        """Let the next `give` make a view."""
        self._is_wanted = not self._failed

    def give(self, make: Callable[[], View]) -> None:
        """Make a view if one is wanted; costs next to nothing otherwise."""
        if self._is_wanted:
            self._is_wanted = False
            try:
                self._view = make()
            except Exception as error:  # noqa: BLE001 - the agents' authors write what it calls
                self._failed = True
                why = f"no view can be made ({name_error(error)})"
                print(f"Not to be watched in dashboard.py any more: {why}", flush=True)

    def take(self) -> View | None:
        """Return the view that was made, once; None if there is none."""
        view, self._view = self._view, None
        return view
