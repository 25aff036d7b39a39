"""The rounds that every learner of a run goes through: takes its actors' experience in, and updates.

Several learners make the same steps at the same time, so that each update is one of all of them. They agree on all that
depends on what one of them has or on the time: `_agree`.
"""

from abc import ABC, abstractmethod
from contextlib import closing

import torch

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import DivergedError, RunError, Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.memory.broker.stream_reader import Decoder
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs.common import IntervalLog, timestamp
from rainbow_iqn_apex.programs.learner.checkpointer import Checkpointer, DivergenceCheck, SavedRun
from rainbow_iqn_apex.programs.learner.gauges import PARTS, LearnerGauges, Summary
from rainbow_iqn_apex.programs.learner.ingest import Ingest, Waits, make_evaluations
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.trainers import LARGEST_LAG, Metrics, Turn, make_trainer
from rainbow_iqn_apex.programs.learner.update_scheduler import make_pace
from rainbow_iqn_apex.programs.snapshot import weights_hash

_DONE = object()


class Rounds(ABC):
    """Round after round: rows in, updates. `batch_size` is that of this learner's part of an update."""

    def __init__(
        self,
        run: Run,
        agent: Agent,
        buffer: Buffer,
        decode: Decoder,
        batch_size: int | None,
        publisher: Publisher | None = None,
    ) -> None:
        self._args, self._client, _, self._progress, self._limiter, self._stop, self._team = run
        args, progress, alone = run.args, run.progress, run.team.size == 1
        self._buffer = buffer
        self._model = agent.model
        self._clock = LoopClock(*PARTS)
        self._trainer = make_trainer(agent, buffer, batch_size, agent.generator.device, self._clock, alone=alone)
        self._pace = make_pace(args, agent, buffer, run.limiter, progress, run.team)
        self._ingest = Ingest(run, buffer, self._pace, decode, self._clock)
        self._has_trained = False  # in this process
        self._saves_first = True  # for a run without a checkpoint, or whose checkpoint counts messages Redis has lost
        self._evaluated = progress.T_learner // args.evaluation_interval
        self._agreed_steps = progress.T_actors  # on which all learners have agreed
        self._divergence = DivergenceCheck(agent.model)
        self.events = EventLog()
        self._checkpointer = Checkpointer(run, agent, buffer, self._ingest, publisher, self._divergence, self.events)

    def resume(self, saved: SavedRun) -> None:
        """Take up from a checkpoint what is neither the agent's nor in `Progress`."""
        is_renewed = saved.progress.run_id != self._progress.run_id
        self._saves_first = not self._checkpointer.resume(saved) or is_renewed

    def run(self) -> None:
        """Train until T-max; raises Stopped if the process shall stop before."""
        progress, args, ingest = self._progress, self._args, self._ingest
        waiting.book_on(self._clock)
        try:
            self._begin()
            self._take_in(ingest.take_backlog())
            self._measure_anew()
            while progress.T_learner < args.T_max:
                self._take_in(ingest.gather())
                if self._agree(self._pace.may_update()):
                    self._train()
                if progress.T_learner < args.T_max:
                    progress.round += 1
                    self._publish()
            self._finish()
            self._take_in(ingest.gather_last())
            self._leave("finished")
            self._team.total(0)  # nobody ends while another one still watches its lease
        except Stopped:
            self._leave("stopped")
            self._team.total(0)
            raise
        except DivergedError as error:
            self._tell_divergence(error)
            raise
        except (RunError, BrokerError):
            self._save_alone()  # Redis is gone, or another learner leads the run; the folder is still ours
            raise
        finally:
            ingest.close()
            self._close()

    def _take_in(self, waits: Waits) -> None:
        """Take experience in, and announce meanwhile what actors may wait for: else all would wait for each other."""
        is_done = False
        with self._clock.part("take_in"), closing(waits):
            while True:
                is_stopped = False
                try:
                    is_done = is_done or next(waits, _DONE) is _DONE
                except Stopped:
                    is_stopped = True
                if self._agree(is_done, stopping=is_stopped):
                    break
                self._announce()
            self._ingest.episodes.share()

    def _agree(self, ready: bool, *, stopping: bool = False) -> bool:
        """Return whether all learners are ready; raises Stopped in all of them if one is stopping.

        From now on all count the agent steps that each has taken in since they last agreed. Without lockstep, those
        that fill a lost replay again pass without an update.
        """
        progress = self._progress
        new = 0 if self._limiter.synchronize else progress.T_actors - self._agreed_steps
        own = (int(not ready), int(stopping), new, int(self._pace.fills))
        unready, stops, steps, filling = self._team.total(*own)
        progress.T_actors += steps - new
        self._agreed_steps = progress.T_actors
        if filling and progress.T_learner and not self._limiter.synchronize:
            passed = max(0, min(steps, self._args.T_max - progress.T_learner))
            progress.T_learner += passed
            progress.round_end += passed
            self._pace.fills = not self._buffer.ready()
        if stops:
            raise Stopped
        return not unready

    def _train(self) -> None:
        """Make the updates of one round."""
        self._progress.T_learner = self._pace.begin()
        self._buffer.forget(self._ingest.reader.read)
        while turns := self._pace.turns():
            metrics = self._mean(self._trainer(turns))
            self._note(metrics)
            self._divergence.note(metrics)
            self._count(turns[: len(metrics)])  # not those for which memory was too short
            with self._clock.part("take_in"):
                self._ingest.take_meanwhile()
            self._agree(ready=True, stopping=self._stop.is_set())
        self._pace.end()
        if not self._has_trained:
            self._has_trained = True
            self._measure_anew()

    def _count(self, made: list[Turn]) -> None:
        for turn in made:
            self._progress.T_learner = turn.step
        with self._clock.part("save"):
            self._report()
            if self._progress.T_learner // self._args.evaluation_interval > self._evaluated:
                self._evaluated = self._progress.T_learner // self._args.evaluation_interval
                self._evaluate()

    def _mean(self, metrics: list[Metrics]) -> list[Metrics]:
        """Return the means over all learners, of a largest lag the largest: all see what the updates of all come to."""
        if self._team.size == 1 or not metrics:
            return metrics
        names = [name for made in metrics for name in made]
        values = torch.stack([value.double() for made in metrics for value in made.values()])
        found = self._team.mean(values)
        if largest := [place for place, name in enumerate(names) if name == LARGEST_LAG]:
            found[largest] = -self._team.least(-values[largest])
        each = iter(found.float().unbind())
        return [{name: next(each) for name in made} for made in metrics]

    # --- what the learner that leads and the others do each in their way ---

    @abstractmethod
    def _begin(self) -> None:
        """Do what actors wait for at first."""

    @abstractmethod
    def _announce(self, status: str = "running") -> None:
        """Write into the run's record how far it is."""

    @abstractmethod
    def _publish(self) -> None:
        """Publish the present weights as the version of the present round."""

    @abstractmethod
    def _evaluate(self) -> None:
        """Report and save; batches drawn ahead have been trained on by now, so a resumed run goes on exactly here."""

    @abstractmethod
    def _leave(self, status: str) -> None:
        """Save everything, and log the episodes that actors have appended."""

    # --- what the learner that leads does alone ---

    def _note(self, metrics: list[Metrics]) -> None:
        """Measure updates."""

    def _measure_anew(self) -> None:
        """Measure speeds from here on: what the log held, or the first updates needed, took another time to play."""

    def _report(self) -> None:
        """Report after updates."""

    def _finish(self) -> None:
        """Wait for what is being published."""

    def _tell_divergence(self, error: DivergedError) -> None:
        """Tell people who watch."""

    def _save_alone(self) -> None:
        """Save what there is, after an error."""

    def _close(self) -> None:
        """End threads."""


class Learner(Rounds):
    """The learner that leads a run: round after round rows in, updates, weights out."""

    def __init__(
        self, run: Run, agent: Agent, buffer: Buffer, decode: Decoder, store: ReportStore, batch_size: int | None
    ) -> None:
        self._publisher = Publisher(agent.model, run.client)
        super().__init__(run, agent, buffer, decode, batch_size, self._publisher)
        self._results = run.results
        self._evaluations = make_evaluations(run, self._ingest.bound, self._pace.most_steps)
        self.gauges = LearnerGauges(run, buffer, store, self._ingest, self._clock)
        self._log, self._summary = self._new_log()

    def _begin(self) -> None:
        self._announce()
        self._publisher.begin(self._progress.round)
        if self._saves_first:
            self._checkpointer.save()  # if this learner is killed from now on, its successor finds all experience again

    def _announce(self, status: str = "running") -> None:
        """Log evaluations, write into the run's record how far it is, and publish what a restarted server has lost."""
        evaluations, progress = self._evaluations, self._progress
        evaluations.take()
        received = self._team.exchange(self._ingest.received, dict[int, int])
        read = {actor: number for own in received for actor, number in own.items()}
        self.gauges.received = read
        self._client.write_progress(status, progress.T_learner, progress.T_actors, read, evaluations.received)
        self._client.restore_weights()

    def _measure_anew(self) -> None:
        self._log, self._summary = self._new_log()
        if self._has_trained:
            self._summary.measure()
        self.gauges.measure_anew()

    def _publish(self) -> None:
        with self._clock.part("publish"):
            if next(self._model.parameters()).device.type == "cpu":  # a GPU would have to be waited for
                self._divergence.check()  # or actors would fail by these weights, and be blamed
            self._publisher.start(self._progress.round)  # first: a checkpoint of this round needs its weights
            self._announce()
        with self._clock.part("save"):
            self._checkpointer.save_if_due()

    def _finish(self) -> None:
        self._publisher.finish()

    def _leave(self, status: str) -> None:
        """Save everything, write the run's end for the actors, and log the episodes that actors have appended.

        In lockstep a successor logs the episodes of the round under way again, in an order that no process's speed
        decides. A run counts as finished only when all this is done: if the learner dies before, a successor does all.
        """
        self._checkpointer.save()
        self._announce(status)  # no actor can commit any more
        self._agree(ready=True)
        self._ingest.take_rest()
        self._evaluations.take_rest()
        self._ingest.episodes.share()
        if status == "finished":
            self._checkpointer.save(finished=True)
        self._checkpointer.try_to(lambda: self._results.plot(now=True))
        self.gauges.read_anew()
        print(self._summary.result(), flush=True)
        hash_ = weights_hash(self._model)
        print(f"[{timestamp()}] {status.capitalize()} at T = {self._progress.T_learner}, weights {hash_}", flush=True)

    def _tell_divergence(self, error: DivergedError) -> None:
        self.events.note(str(error), is_alarm=True)

    def _save_alone(self) -> None:
        if self._team.size == 1:  # what others have to add to a checkpoint is not to be had any more
            self._agree(ready=True)  # on what was taken in before the error
            self._checkpointer.save(trims=False)

    def _close(self) -> None:
        self._evaluations.close()
        self._publisher.close()

    # --- reports ---

    def _note(self, metrics: list[Metrics]) -> None:
        self.gauges.note(metrics)

    def _report(self) -> None:
        self._checkpointer.try_to(self._checkpointer.keep_weights)
        T = self._progress.T_learner
        if self._log.passes(T, played=self._progress.T_actors, trained=T):
            print(self._summary.line(), flush=True)
            self._checkpointer.try_to(self._results.plot)
            self._checkpointer.try_to(self._checkpointer.save_best)

    def _evaluate(self) -> None:
        means = ", ".join(f"{name.removeprefix('train/')} {mean:.4f}" for name, mean in self.gauges.means().items())
        print(f"Mean {means}, {self._summary.score()}", flush=True)
        self._checkpointer.try_to(lambda: self._results.plot(now=True))
        self._checkpointer.try_to_save()

    def _new_log(self) -> tuple[IntervalLog, Summary]:
        args, progress, results = self._args, self._progress, self._results
        log = IntervalLog("learner", args, progress.T_learner)
        return log, Summary(args, progress, results.log, results.action_repeat)


class Follower(Rounds):
    """Takes in the experience of its own actors, and writes nothing."""

    def _begin(self) -> None:
        self._announce()
        if self._saves_first:
            self._checkpointer.save()

    def _announce(self, status: str = "running") -> None:
        del status
        self._client.lease.check()
        self._team.exchange(self._ingest.received, dict[int, int])

    def _publish(self) -> None:
        self._announce()
        self._checkpointer.save_if_due()

    def _evaluate(self) -> None:
        self._checkpointer.try_to_save()

    def _leave(self, status: str) -> None:
        self._checkpointer.save()
        self._announce(status)
        self._agree(ready=True)  # after the learner that leads has written that no actor can commit any more
        self._ingest.take_rest()
        self._ingest.episodes.share()
        if status == "finished":
            self._checkpointer.save(finished=True)
