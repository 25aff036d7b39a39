"""Trackio: a run of project `rainbow-iqn-apex` in the user's local folder; `trackio show` shows it."""

import trackio

from rainbow_iqn_apex.monitoring.sinks.sink import TAGS, Moment, RunInfo
from rainbow_iqn_apex.monitoring.video import temporary_video

PROJECT = "rainbow-iqn-apex"


class TrackioSink:
    """Logs each moment; a resumed run goes on under its name."""

    is_live = False

    def __init__(self, run: RunInfo) -> None:
        self._info = run
        self._run: trackio.Run | None = None

    def take(self, moment: Moment) -> None:
        """Log the metrics of a moment; the package writes them from a thread of its own."""
        if self._run is None:
            name = f"{self._info.name} {self._info.run_id}"
            settings = self._info.settings
            self._run = trackio.init(PROJECT, name, resume="allow", config=settings, embed=False, auto_log_cpu=False)
        self._run.log(moment.values, step=moment.step)
        for slot, film in moment.kept_films.items():
            with temporary_video(film) as path:
                self._run.log({TAGS[slot]: trackio.Video(path, film.info.caption)}, step=moment.step)

    def close(self) -> None:
        """Write what is left."""
        if self._run:
            self._run.finish()
