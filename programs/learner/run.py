"""A run as its learner leads it, and how far it is."""

import threading
from dataclasses import dataclass

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.schema import Count, Word
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.stream_validator import ProgressBound
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.world import ALONE, World

_UNRECORDED_ROUNDS = 100  # most rounds that actors can play in the seconds that a restarted Redis may have lost


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


def bound_of_earlier(
    args: Args, progress: Progress, limiter: RateLimiter, recorded: int, trained: int = 0
) -> ProgressBound:
    """Return how far actors can have come under earlier learners of the run, one of which has saved this progress.

    A killed learner has published rounds after its last checkpoint. These are two more than the agent steps `recorded`
    in the run's record fill, and the rounds whose steps a restarted Redis has lost. If Redis has lost much more, the
    run's length is the only limit: T-max, and what fills a lost replay again beyond it. Without lockstep a learner that
    has to wait for rows publishes before, so there may be a round for each agent step, of the actors or of those that
    the learner has `trained` by the record.
    """
    most = max(args.T_max, progress.T_actors) + args.learn_start
    unrecorded = _UNRECORDED_ROUNDS if recorded or progress.T_actors else 0
    lost = recorded + unrecorded * limiter.most_steps < progress.T_actors
    steps = most if lost else max(recorded, progress.T_actors)
    rounds = limiter.round_of(min(steps, most))
    if not limiter.synchronize:
        rounds = max(rounds, progress.round + max(0, max(steps, min(trained, args.T_max)) - progress.T_learner))
    return ProgressBound(rounds + 2 + unrecorded, steps)
