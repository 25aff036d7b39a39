"""The log `<game>_evaluation.csv`: one line per finished episode of the evaluation actors, each written once."""

from rainbow_iqn_apex.environments.scores import VersionedRecord
from rainbow_iqn_apex.saber.results.training_log import TrainingLog, header_of

HEADER = header_of(VersionedRecord)


class EvaluationScores(TrainingLog):
    """The episodes of a run's evaluation actors, on disk and in memory, as `TrainingLog` keeps those of training."""

    record_type = VersionedRecord

    def counts(self) -> dict[int, int]:
        """Return, by evaluation actor, one more than the number of its newest episode."""
        return {actor: newest + 1 for (actor, _), newest in self._newest.items()}
