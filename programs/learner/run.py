"""What the parts of a learner share."""

import threading
from typing import NamedTuple

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress
from rainbow_iqn_apex.programs.learner.world import SINGLE, Team


class Run(NamedTuple):
    """A run as its learner leads it: settings, what the server and the folder hold of it, how far it is and may be."""

    args: Args
    client: LearnerClient
    folder: ResultsFolder | None  # None: another learner of the team leads
    progress: Progress
    limiter: RateLimiter
    stop: threading.Event
    team: Team = SINGLE

    @property
    def results(self) -> ResultsFolder:
        """Return the files that the leading learner writes."""
        assert self.folder is not None, "another learner writes the results"
        return self.folder
