"""The log `<game>_evaluation.csv`: one line per finished episode of the evaluation actors, each written once."""

from saber.results.training_log import TrainingLog, header_of
from saber.scores import VersionedRecord

HEADER = header_of(VersionedRecord)


class EvaluationScores(TrainingLog):
    """The episodes of a run's evaluation actors, on disk and in memory, as `TrainingLog` keeps those of training."""

    record_type = VersionedRecord
