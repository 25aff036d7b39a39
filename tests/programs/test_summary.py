"""The learner's log line about score, speed and remaining time."""

import re
import time
from pathlib import Path

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.programs.learner.progress import Progress
from rainbow_iqn_apex.programs.learner.summary import Summary
from rainbow_iqn_apex.saber.results.training_log import TrainingLog
from rainbow_iqn_apex.saber.scores import EpisodeRecord


def test_the_line_tells_score_speed_and_remaining_time(tmp_path: Path) -> None:
    # Mutation: take the speed of playing for the remaining time.
    log, progress = TrainingLog(tmp_path / "pong.csv"), Progress("run", T_actors=1000, T_learner=800)
    summary = Summary(options.parse(["--T-max", "1001400", "--learn-start", "8000"], "x", ""), progress, log, 4)
    assert summary.line().startswith("No episode yet, 0.0 steps/s, 0.0 frames/s, ")
    log.append([EpisodeRecord(episode=number, score_saber=number % 2, end="game_over") for number in range(130)])
    time.sleep(0.5)  # both speeds count from the first measurement
    progress.T_actors, progress.T_learner = 2000, 1400
    found = re.fullmatch(
        r"Score 0\.50 in the last 100 episodes, ([\d,]+) steps/s, ([\d,]+) frames/s, (\d+) min left", summary.line()
    )
    assert found
    steps, frames, left = (int(text.replace(",", "")) for text in found.groups())
    assert 0 < steps <= 2000
    assert abs(frames - 4 * steps) <= 4
    assert left >= 13, "1 000 000 steps at no more than 600 in half a second"
