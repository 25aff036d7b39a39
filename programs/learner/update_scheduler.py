"""A run as its learners lead it: how far it is, which updates may be made now, and what each of them stands for."""

import threading
from dataclasses import dataclass

from rainbow_iqn_apex.agents.interface import Learnable
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.schema import Count, Word
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.buffer import Buffer, FreshChunks
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.trainers import Turn
from rainbow_iqn_apex.programs.learner.world import ALONE, RoundState, World


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


class StepPace:
    """One update per so many agent steps, until as many stand for the round as were played in it.

    Without lockstep nothing keeps updates from running ahead of the steps played, unless the agent
    waits for rows.
    """

    def __init__(self, args: Args, agent: Learnable, buffer: Buffer, limiter: RateLimiter, progress: Progress) -> None:
        self._args = args
        self._buffer = buffer
        self._limiter = limiter
        self._progress = progress
        self._steps = agent.steps_per_update or args.replay_frequency
        self._waits = args.own.WAITS_FOR_ROWS and not limiter.synchronize
        self.refills = False  # too little is in the buffer, at the beginning or after a loss

    def begin(self, state: RoundState) -> int:
        """Prepare the next round's updates; return the learner's step at which they begin.

        Those of a run begin with the steps that were played before them. Steps that have refilled a lost replay of any
        rank are not learned from; without lockstep they pass as they come.
        """
        progress = self._progress
        known = progress.T_learner
        self.refills = False
        if known and not (state.refills and self._limiter.synchronize):
            return known
        if known:
            start = max(known, progress.T_actors)
        elif (start := progress.T_actors) >= self._args.T_max:
            raise UserError(  # chunks of many environments fill at the same time
                f"--T-max: the first {start} agent steps were played before there was enough to learn from, so nothing "
                f"would be learned up to {self._args.T_max}: choose a larger one, fewer environments, or start afresh"
            )
        progress.round_end = start + self._limiter.round_steps(progress.round)
        return start

    def pass_steps(self, state: RoundState) -> None:
        """Let the steps that refill a lost replay of any rank pass without an update; in lockstep `begin` does so."""
        progress = self._progress
        if state.refills and progress.T_learner and not self._limiter.synchronize:
            passed = max(0, min(state.new_steps, self._args.T_max - progress.T_learner))
            progress.T_learner += passed
            progress.round_end += passed
            self.refills = not self._buffer.ready()

    def note_loss(self) -> None:
        """Note that the buffer has too little to learn from, if it has."""
        self.refills |= not self._buffer.ready()

    def may_update(self) -> bool:
        """Whether there is enough experience for an update."""
        self.note_loss()
        if not self._buffer.ready():
            return False
        if self._progress.T_learner == 0:  # a full replay may hold fewer steps than learn-start
            return self._progress.T_actors >= self._args.learn_start
        return not self._is_ahead()

    @property
    def awaited(self) -> str:
        """Return what an update waits for, without lockstep."""
        if self._buffer.ready():
            return f"the actors to play the next update's {self._steps} agent steps"
        return f"{self._args.learn_start} transitions in the replay"

    def fresh_steps(self) -> list[int]:
        """Return nothing: no batch has to be fresh."""
        return []

    def turns(self, state: RoundState) -> list[Turn]:  # noqa: ARG002 - a queue's
        """Return the next updates of the round, as many as are drawn at once; none if its training is done."""
        T = self._progress.T_learner
        end = min(self._progress.round_end, self._args.T_max)
        if end <= T or self._is_ahead():
            return []
        ahead = 1 if self._waits else min(self._args.queue_size, -(-(end - T) // self._steps))
        before = [T + i * self._steps for i in range(ahead)]
        version = self._progress.round
        return [Turn(share_learned(self._args, step), step + self._steps, version) for step in before]

    def end(self) -> None:
        """Go on to the next round; a run that ends with its round does so when it is resumed with a larger T-max.

        An update may stand for the steps of several rounds. In lockstep the actors play each of them; without, those in
        which no update begins are passed, as their weights would be the same again.
        """
        progress = self._progress
        if not progress.round_end <= progress.T_learner < self._args.T_max:
            return
        steps = self._limiter.round_steps(progress.round + 1)
        rounds = 1 if self._limiter.synchronize else 1 + (progress.T_learner - progress.round_end) // steps
        progress.round_end += rounds * steps

    def _is_ahead(self) -> bool:
        return self._waits and self._progress.T_learner + self._steps > self._progress.T_actors


class QueuePace:
    """An update whenever a batch waits, which stands for the agent steps of its fresh sequences.

    In lockstep a round's training is done when no batch waits. Without it, more batches come all the time: weights are
    published when no batch waits, and at the end of a round. Each of several ranks has its part of a batch, and there
    is an update whenever all parts wait.
    """

    def __init__(self, args: Args, queue: FreshChunks, limiter: RateLimiter, progress: Progress) -> None:
        self._args = args
        self._queue = queue
        self._limiter = limiter
        self._progress = progress
        self._ahead = 1 if "queue_size" in args.own.unused else args.queue_size
        self.refills = False  # nothing is lost that would have been learned from

    def begin(self, state: RoundState) -> int:  # noqa: ARG002 - a replay's
        """Prepare the next round's updates; return the learner's step at which they begin."""
        progress = self._progress
        progress.round_end = progress.T_learner + self._limiter.round_steps(progress.round)
        return progress.T_learner

    def pass_steps(self, state: RoundState) -> None:
        """Do nothing, as in `note_loss`."""

    def note_loss(self) -> None:
        """Do nothing: what waits in a queue is all that there is to learn from."""

    def may_update(self) -> bool:
        """Whether a batch waits."""
        return self._queue.ready()

    @property
    def awaited(self) -> str:
        """Return what an update waits for, without lockstep."""
        return f"{self._queue.wanted} sequences in the queue"

    def fresh_steps(self) -> list[int]:
        """Count the agent steps of each batch of this rank that can be prepared now."""
        return self._queue.next_steps(self._ahead)

    def turns(self, state: RoundState) -> list[Turn]:
        """Return the updates of the batches that wait on all ranks, those prepared at once; none at the end."""
        progress = self._progress
        turns = list[Turn]()
        T = progress.T_learner
        for steps in state.fresh_steps:
            if self._is_over(T):
                break
            turns.append(Turn(share_learned(self._args, T), T + steps, progress.round))
            T += steps
        return turns

    def end(self) -> None:
        """Note nothing: what waits still is learned from in the next round."""

    def _is_over(self, T: int) -> bool:
        return self._args.T_max <= T or (not self._limiter.synchronize and self._progress.round_end <= T)


Pace = StepPace | QueuePace


def make_pace(args: Args, agent: Learnable, buffer: Buffer, limiter: RateLimiter, progress: Progress) -> Pace:
    """Return the pace of an agent with its buffer."""
    if buffer.fresh is not None:
        return QueuePace(args, buffer.fresh, limiter, progress)
    return StepPace(args, agent, buffer, limiter, progress)


def share_learned(args: Args, T: int) -> float:
    """Return the share of learning that is done at learner step T: 0 at learn-start, 1 at T-max."""
    return min(1.0, max(0.0, (T - args.learn_start) / (args.T_max - args.learn_start)))
