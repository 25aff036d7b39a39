"""Videos of evaluations: whether an environment can be recorded, and which episodes' videos are kept."""

import tempfile
from bisect import bisect_left, insort
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.monitoring.video import write_video
from rainbow_iqn_apex.programs.common import temporary_environment
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluatedEpisode

EVALUATIONS = "--record-evaluations"
_Rank: TypeAlias = tuple[float, int]  # of an episode: smaller is better
PLACES = ("best", "median", "worst")  # of the episodes whose videos are kept
_NEAR_MEDIAN = 8  # videos: of a hundred episodes the median's is among them in four cases of five


def try_to_record(args: Args, option: str, folder: Path) -> None:
    """Record one picture in a folder, to fail now if anything for videos is missing; raises UserError."""
    with temporary_environment(args, args.seed, recorded_by=option) as environment:
        environment.reset()
        if not (pictures := environment.pictures() if hasattr(environment, "pictures") else []):
            raise UserError(f"{option}: {args.env} draws no pictures")
        if not hasattr(environment, "pictures_per_second"):
            raise UserError(f"{option}: {args.env} has no pictures_per_second; see environments/interface.py")
        try:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                write_video(Path(place) / "x.webm", pictures, environment.pictures_per_second)
        except OSError as error:
            raise UserError(f"{option}: {error}") from error


class Videos:
    """Videos of those episodes of an evaluation that may turn out to be the best, the median and the worst.

    Each episode's video is written while the episode is played, and most are deleted soon: ten remain on the disk at
    most. Which one is the median is known only at the end, so that the videos kept are those nearest to it so far. The
    median has to be played again if its video is not among them.
    """

    def __init__(self, folder: Path | None, missing: str = "") -> None:
        self.folder = folder  # None where nothing is recorded
        self.missing = missing  # why nothing is recorded, although it was asked for
        self.speeds: dict[int, int] = {}  # of the videos on the disk, in multiples of the normal one, by episode
        self._ranks: dict[int, _Rank] = {}  # of the same episodes
        self._all: list[_Rank] = []  # of all episodes that have ended, the best first

    def path(self, episode: int) -> Path:
        """Return where the video of an episode is, or is to be written."""
        assert self.folder is not None
        return self.folder / f"{episode}.webm"

    def add(self, record: EpisodeRecord, speed: int = 0) -> None:
        """Count an episode that has ended, with a video of this speed, or 0 for none; delete the videos of others."""
        if self.folder is None:
            return
        rank = _rank(record)
        insort(self._all, rank)
        if speed:
            self.speeds[record.episode] = speed
            self._ranks[record.episode] = rank
        middle = len(self._all) // 2
        by_distance = sorted(self._ranks, key=lambda one: abs(bisect_left(self._all, self._ranks[one]) - middle))
        for episode in by_distance[_NEAR_MEDIAN:]:
            if self._ranks[episode] not in (self._all[0], self._all[-1]):
                self.path(episode).unlink()
                del self.speeds[episode], self._ranks[episode]

    def choose(self, episodes: Sequence[EvaluatedEpisode]) -> dict[str, EvaluatedEpisode]:
        """Return the best, the median and the worst of some episodes, or fewer, by place, none twice.

        Of an even number, the lower one in the middle is the median.
        """
        ordered = sorted(episodes, key=lambda episode: _rank(episode.record))
        chosen = {"best": ordered[0]}
        if len(ordered) > 1:
            chosen["worst"] = ordered[-1]
        if len(ordered) > 2:
            chosen["median"] = ordered[len(ordered) // 2]
        return {place: chosen[place] for place in PLACES if place in chosen}


def _rank(record: EpisodeRecord) -> _Rank:
    return -record.score_saber, record.episode
