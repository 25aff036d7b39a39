"""The log of evaluation actors: columns of its own, and otherwise as safe as the log of training."""

from dataclasses import replace
from pathlib import Path

import pytest

from rainbow_iqn_apex.environments.scores import VersionedRecord
from rainbow_iqn_apex.saber.results.evaluation_scores import EvaluationScores

RECORD = VersionedRecord(1200, 300, 2, 0, 7, 100.0, 150.5, -0.0, 345, "game_over", 12)
LINES = (
    b"T_actors,T_learner,actor,env,episode,score_5min,score_30min,score_saber,length,end,version\n"
    b"1200,300,2,0,7,100,150.5,0,345,game_over,12\n"
)


def test_the_file_is_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "pong_evaluation.csv"
    EvaluationScores(path).append([RECORD])
    assert path.read_bytes() == LINES
    assert list(EvaluationScores(path).records) == [RECORD]


def test_an_episode_is_written_once_and_each_evaluation_actor_counts_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "pong_evaluation.csv"
    records = [replace(RECORD, actor=n % 2, episode=n // 2, version=n) for n in range(8)]
    EvaluationScores(path).append(records[:5])
    assert EvaluationScores(path).append(records[2:]) == records[5:]
    assert list(EvaluationScores(path).records) == records


@pytest.mark.parametrize("length", [1, 20, len(LINES) - 1, len(LINES) - 45, len(LINES) - 2])
def test_a_torn_file_is_mended(tmp_path: Path, length: int) -> None:
    # Mutation: take a last line without its newline, and 12 becomes 1.
    path = tmp_path / "pong_evaluation.csv"
    path.write_bytes(LINES[:length])
    log = EvaluationScores(path)
    assert list(log.records) == []
    log.append([RECORD])
    assert path.read_bytes() == LINES
