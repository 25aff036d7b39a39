"""How far a run is, and how far its actors can have come."""

from dataclasses import dataclass

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.memory.broker.stream_validator import ProgressBound
from rainbow_iqn_apex.memory.limiter import RateLimiter

_UNTOLD_ROUNDS = 100  # most rounds that actors can play in the seconds that a restarted Redis may have lost


@dataclass
class Progress:
    """Where a run stands; checkpoints and snapshots hold it."""

    run_id: str
    round: int = 0
    T_actors: int = 0  # agent steps in the log
    T_learner: int = 0  # agent steps that the updates stand for; 0 before learning
    round_end: int = 0  # T_learner at which the round's training is done


def bound_of_earlier(args: Args, progress: Progress, limiter: RateLimiter, told: int) -> ProgressBound:
    """Return how far actors can have come under earlier learners of the run, one of which has saved this progress.

    A killed learner has published rounds after its last checkpoint. These are two more than the agent steps `told` in
    the run's record fill, and the rounds whose steps a restarted Redis has lost. If Redis has lost much more, T-max is
    the only limit: nobody plays rounds beyond it.
    """
    untold = _UNTOLD_ROUNDS if told or progress.T_actors else 0
    lost = told + untold * limiter.wanted_steps < progress.T_actors
    steps = args.T_max if lost else max(told, progress.T_actors)
    return ProgressBound(limiter.round_of(min(steps, args.T_max)) + 2 + untold, steps)
