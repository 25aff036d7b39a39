"""A run as its learner leads it, and how far it is."""

import threading
from dataclasses import dataclass

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.schema import Count, Word
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.world import ALONE, World


@dataclass
class Progress:
    """Where a run stands; checkpoints and snapshots hold it. Each field has one writer."""

    run_id: Word
    round: Count = 0  # written by the loop
    T_actors: Count = 0  # agent steps in the log; by `Ingest`
    T_learner: Count = 0  # agent steps up to which there were updates, 0 before learning; by the loop
    round_end: Count = 0  # T_learner at which the round's training is done; by `Pace`


@dataclass(frozen=True)
class Run:
    """What the parts of a learner share: settings, what the server and the folder hold of the run, how far it is."""

    args: Args
    client: LearnerClient
    results: ResultsFolder | None  # None: rank 0 writes them
    progress: Progress
    limiter: RateLimiter
    stop: threading.Event
    world: World = ALONE
