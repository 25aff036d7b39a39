"""Hands views from the thread that acts to the one that reports, each when the latter has asked for one."""

from collections.abc import Callable

from monitoring.view import View


class Viewer:
    """Holds at most one view.

    The thread that acts calls `give` again and again; the thread that reports calls `ask` and `take`.
    """

    def __init__(self) -> None:
        self._is_wanted = False
        self._view: View | None = None

    def ask(self) -> None:
        """Let the next `give` make a view."""
        self._is_wanted = True

    def give(self, make: Callable[[], View]) -> None:
        """Make a view if one is wanted; costs next to nothing otherwise."""
        if self._is_wanted:
            self._is_wanted = False
            self._view = make()

    def take(self) -> View | None:
        """Return the view that was made, once; None if there is none."""
        view, self._view = self._view, None
        return view
