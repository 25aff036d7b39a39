"""What an evaluation prints while it plays: a line per episode, or a bar on a terminal."""

import shutil
import sys
import threading
import time
from typing import Self

from rainbow_iqn_apex.environments.scores import EpisodeRecord

_REDRAWN_S = 1.0  # an episode may last for hours, and the clock shows that the program still runs


def make_progress(total: int, *, atari: bool) -> "Bar | Lines":
    """Return a bar on a terminal, else lines, for an evaluation of `total` episodes."""
    return Bar(total) if sys.stdout.isatty() else Lines(atari=atari)


class Lines:
    """One line per episode in the order of their numbers, so that the output is the same however they are played.

    Scores at 30 and at 5 minutes are of Atari alone.
    """

    def __init__(self, *, atari: bool) -> None:
        self._atari = atari
        self._waiting: dict[int, EpisodeRecord] = {}
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for episode in sorted(self._waiting):
            self._print(self._waiting.pop(episode))

    def add(self, record: EpisodeRecord) -> None:
        """Print an episode's line as soon as the lines of all episodes before it are printed."""
        self._waiting[record.episode] = record
        while self._next in self._waiting:
            self._print(self._waiting.pop(self._next))
            self._next += 1

    def _print(self, record: EpisodeRecord) -> None:
        marks = (
            f" at 30 minutes {record.score_30min:.12g}, at 5 minutes {record.score_5min:.12g}," if self._atari else ""
        )
        score = f"score {record.score_saber:.12g},{marks}"
        print(f"episode {record.episode}: {score} {record.length} steps, {record.end}", flush=True)


class Bar:
    """A bar in the last line of a terminal: [####....] 12/100 episodes, mean score 345.6, 0:01:23."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._scores: list[float] = []
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="progress bar", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        print(flush=True)

    def add(self, record: EpisodeRecord) -> None:
        """Count an episode; the bar grows when it is next drawn."""
        self._scores.append(record.score_saber)

    def _redraw(self) -> None:
        over = False
        while not over:
            over = self._over.wait(_REDRAWN_S)  # drawn once more, with the last episode
            print("\r" + self.text(shutil.get_terminal_size().columns), end="", flush=True)

    def text(self, columns: int) -> str:
        """Return the bar, as wide as a terminal of this width without its last column."""
        done, seconds = len(self._scores), int(time.monotonic() - self._began)
        mean = f", mean score {sum(self._scores) / done:,.1f}" if done else ""
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        words = f" {done}/{self._total} episodes{mean}, {clock}"
        if len(words) >= columns:
            words = f" {done}/{self._total}, {clock}"
        width = min(40, columns - len(words) - 3)
        bar = f"[{'#' * (width * done // self._total):.<{width}}]" if width > 0 else ""
        return f"{bar}{words}"[: columns - 1].ljust(columns - 1)
