"""The sink of `--record-evaluations`: two videos in the results folder, and what they show.

`<game>_best_evaluation.webm` and `<game>_newest_evaluation.webm` are replaced as a whole. `<game>_films.json` has
what they show: {"run": run id, "best": {...}, "newest": {...}} with the fields of `monitoring.video.FilmInfo`.
"""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common.files import MOST_RECORD_BYTES, read_regular, write_file
from rainbow_iqn_apex.common.schema import parse_record
from rainbow_iqn_apex.monitoring.sinks.sink import Moment, RunInfo
from rainbow_iqn_apex.monitoring.video import FILM_SLOTS, Film, FilmInfo, FilmSlot, write_video


class FilmFiles:
    """Replaces the videos by those of a moment."""

    is_live = False

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._shown = read_shown(run.folder, run.game).of_run(run.run_id)
        self._waiting: dict[FilmSlot, Film] = {}  # not written yet

    def take(self, moment: Moment) -> None:
        """Write the films of a moment, with those that could not be written before; raises OSError if that fails."""
        self._waiting |= moment.films
        if not moment.films:  # not at each moment: a full disk is noticed only when a film is encoded
            return
        for slot, film in [*self._waiting.items()]:
            write_video(video_path(self._run.folder, self._run.game, slot), film.pictures, film.info.rate)
            self._shown[slot] = film.info
            content = {"run": self._run.run_id} | {known: asdict(info) for known, info in self._shown.items()}
            write_file(_shown_path(self._run.folder, self._run.game), json.dumps(content).encode())
            del self._waiting[slot]

    def close(self) -> None:
        """Do nothing: every video is written at once."""


def video_path(folder: Path, game: str, slot: FilmSlot) -> Path:
    """Return where the video of the best or the newest episode is."""
    return folder / f"{game}_{slot}_evaluation.webm"


def _shown_path(folder: Path, game: str) -> Path:
    return folder / f"{game}_films.json"


class Shown(NamedTuple):
    """Holds what the videos of a folder show."""

    run_id: str
    films: dict[FilmSlot, FilmInfo]

    def of_run(self, run_id: str) -> dict[FilmSlot, FilmInfo]:
        """Return what they show of a run; nothing if they are another's."""
        return self.films.copy() if self.run_id == run_id else {}


def read_shown(folder: Path, game: str, within: Path | None = None) -> Shown:
    """Return what the videos in a folder show; nothing if there are none, or the file that has it is damaged."""
    films: dict[FilmSlot, FilmInfo] = {}
    run_id = ""
    with suppress(OSError, ValueError, RecursionError, TypeError, LookupError):
        content = json.loads(read_regular(_shown_path(folder, game), within or folder, MOST_RECORD_BYTES))
        run_id = str(content["run"])
        for slot in FILM_SLOTS:
            with suppress(ValueError, LookupError):
                films[slot] = parse_record(content[slot], FilmInfo)
    return Shown(run_id, films)
