"""Hands the episodes that learners take in to the one training log, in an order that the protocol fixes.

Several learners take episodes in, each of its own actors, and one writes the log. They keep episodes until all of them
have taken in what an update waits for: in lockstep, a round. Then the learners' episodes are logged one learner after
the other.
"""

from typing import Protocol

from rainbow_iqn_apex.memory.messages import Episode, Record
from rainbow_iqn_apex.programs.learner.progress import Progress
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.team import Team


class Episodes(Protocol):
    """Where a learner's finished episodes go."""

    def add(self, episodes: list[Episode]) -> None:
        """Log finished episodes, now or with the next `share`."""

    def share(self) -> None:
        """Log what waits; all learners call this together."""

    def settle(self, nb_actor: int) -> None:
        """See `TrainingLog.settle`."""

    def waiting(self) -> list[Record]:
        """Return what a checkpoint holds, as it is not in the log."""


class OwnEpisodes:
    """The episodes of the only learner."""

    def __init__(self, results: ResultsFolder, progress: Progress) -> None:
        self._results, self._progress = results, progress

    def add(self, episodes: list[Episode]) -> None:
        """Log finished episodes."""
        self._results.add_episodes(episodes, self._progress.T_learner)

    def share(self) -> None:
        """Do nothing."""

    def settle(self, nb_actor: int) -> None:
        """See `TrainingLog.settle`."""
        self._results.log.settle(nb_actor)

    def waiting(self) -> list[Record]:
        """Return nothing: all is in the log."""
        return []


class SharedEpisodes:
    """The episodes of one of several learners, which are logged by the one with results."""

    def __init__(self, results: ResultsFolder | None, progress: Progress, team: Team) -> None:
        self._results, self._progress, self._team = results, progress, team
        self._waiting: list[Record] = []

    def add(self, episodes: list[Episode]) -> None:
        """Keep finished episodes until they are shared."""
        self._waiting += [episode.record for episode in episodes]

    def share(self) -> None:
        """Log what waits at all learners."""
        found = self._team.exchange(self._waiting, list[Record])
        if self._results:
            self._results.add_episodes([Episode(record) for own in found for record in own], self._progress.T_learner)
        self._waiting = []

    def settle(self, nb_actor: int) -> None:
        """Do nothing: the number of actors does not change with several learners."""

    def waiting(self) -> list[Record]:
        """Return what waits: an interrupted round's episodes."""
        return self._waiting

    def restore(self, waiting: list[Record]) -> None:
        """Take over what waited when a checkpoint was written."""
        self._waiting = [*waiting]


def make_episodes(run: Run) -> OwnEpisodes | SharedEpisodes:
    """Return where a learner's episodes go."""
    if run.team.size == 1:
        return OwnEpisodes(run.results, run.progress)
    return SharedEpisodes(run.folder, run.progress, run.team)
