"""Training logs for the report's tests, as a learner leaves them."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.report.figures import all_figures
from rainbow_iqn_apex.saber.report.inputs import read_inputs
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.results.page import to_plotly
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, write_record
from rainbow_iqn_apex.saber.results.task import read_scores
from rainbow_iqn_apex.saber.results.training_log import TrainingLog

ATARI57 = [game for game, scores in read_scores().items() if scores.in_atari57]


def results_of(*paths: Path) -> Results:
    """What a report of these folders and logs tells."""
    return Results(read_inputs(paths))


def plotly_figures(results: Results) -> dict[str, Any]:
    """The figures as a page hands them to plotly, by their ids."""
    drawn = {name: to_plotly(figure) for name, figure in all_figures(results).items()}
    figures: dict[str, Any] = json.loads(json.dumps(drawn))
    return figures


def figures_of(page: str) -> dict[str, Any]:
    """The plots that a page holds, by their ids; plotly raises on a property that it does not know."""
    (text,) = re.findall(r'<script type="application/json" id="figure">(.*?)</script>', page, re.DOTALL)
    figures: dict[str, Any] = json.loads(text)
    for figure in figures.values():
        plotly.graph_objects.Figure(figure)
    return figures


def write_log(folder: Path, game: str, ends: Sequence[int], scores: Sequence[float]) -> Path:
    """A log of episodes that ended at these agent steps; 5 and 30 minutes give a quarter and half of a score."""
    log = TrainingLog(folder / f"{game}.csv")
    log.append(
        [
            EpisodeRecord(int(end), int(end), 0, 0, number, score / 4, score / 2, score, 900, "game_over")
            for number, (end, score) in enumerate(zip(ends, map(float, scores), strict=True))
        ]
    )
    return log.path


def write_settings(log: Path, reached: int, settings: dict[str, Any], action_repeat: int = 4) -> Path:
    """The record beside a log of a run that has been started once."""
    start = Start(settings, {"ale-py": "0.12.1", "gymnasium": "1.4.0"}, "abc1234")
    write_record(log.with_suffix(".json"), RunRecord(log.stem, action_repeat, reached, (start,)))
    return log


def write_run(
    folder: Path, game: str, seed: int, reached: int, episodes: int = 120, level: float = 1.0, **settings: object
) -> Path:
    """A run of `reached` agent steps with its record, whose scores rise from the random agent's to `level` x human."""
    rng = np.random.default_rng([seed, len(game), reached])
    table = read_scores()[game]
    ends = np.sort(rng.integers(1, reached, episodes))
    rise = level * (1 - np.exp(-4 * ends / reached)) * rng.lognormal(0, 0.3, episodes)
    scores = np.round(table.random + rise * ((table.human or 0) - table.random))
    rules = {"proba_sticky_actions": 0.25, "disable_SABER_mode": False}
    settings = {"seed": seed, "game": game, "hidden_size": 512, **rules} | settings
    return write_settings(write_log(folder, game, ends.tolist(), scores.tolist()), reached, settings)
