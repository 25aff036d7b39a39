"""The episodes of an evaluation as a CSV, which is whole at every moment."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from saber.files import replace_file
from saber.scores import EpisodeRecord
from saber.training_log import format_cell

HEADER = "episode,seed,score_5min,score_30min,score_saber,length,end"


class EvaluatedEpisode(NamedTuple):
    """An episode and the seed that decides all of it: of the environment, and of what the agent draws."""

    seed: int
    record: EpisodeRecord


def write_evaluation(path: Path, episodes: Iterable[EvaluatedEpisode]) -> None:
    """Replace the file by one line per episode, in the order of their numbers; `length` is in agent steps.

    Raises OSError if it cannot be written; the old file stays then.
    """
    lines = [_line(episode) for episode in sorted(episodes, key=lambda episode: episode.record.episode)]
    with replace_file(path) as file:
        file.write("".join([f"{HEADER}\n", *lines]).encode("ascii"))


def _line(episode: EvaluatedEpisode) -> str:
    record = episode.record
    cells = [format_cell(int, record.episode), format_cell(int, episode.seed)]
    cells += [format_cell(float, score) for score in (record.score_5min, record.score_30min, record.score_saber)]
    return ",".join([*cells, format_cell(int, record.length), format_cell(str, record.end)]) + "\n"
