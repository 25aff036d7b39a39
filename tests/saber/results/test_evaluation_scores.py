"""The log of evaluation actors: columns of its own, and otherwise as safe as the log of training."""

from pathlib import Path

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
