"""Hands the episodes that learners take in to the one training log, in an order that the protocol fixes.

Several learners take episodes in, each of its own actors, and one writes the log. They keep episodes until all of them
have taken in what an update waits for: in lockstep, a round. Then the learners' episodes are logged one learner after
the other. An only learner logs its episodes at once.
"""

from rainbow_iqn_apex.memory.messages import Episode, Record
from rainbow_iqn_apex.programs.learner.run import Run


class Episodes:
    """The finished episodes of a learner's actors."""

    def __init__(self, run: Run) -> None:
        self._results, self._progress, self._team = run.folder, run.progress, run.team
        self.waiting: list[Record] = []  # that are not in the log; a checkpoint holds those of an interrupted round

    def add(self, episodes: list[Episode]) -> None:
        """Log finished episodes, now or with the next `share`."""
        self.waiting += [episode.record for episode in episodes]
        if self._team.size == 1:
            self.share()

    def share(self) -> None:
        """Log what waits; all learners call this together."""
        found = self._team.exchange(self.waiting, list[Record])
        if self._results:
            self._results.add_episodes([Episode(record) for own in found for record in own], self._progress.T_learner)
        self.waiting = []

    def settle(self, nb_actor: int) -> None:
        """See `TrainingLog.settle`."""
        if self._results:
            self._results.log.settle(nb_actor)
