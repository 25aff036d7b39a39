"""The learner's loop: takes the actors' experience in, updates, publishes weights."""

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
from rainbow_iqn_apex.programs.learner.gauges import PARTS, LearnerGauges
from rainbow_iqn_apex.programs.learner.ingest import Ingest, Waits
from rainbow_iqn_apex.programs.learner.pace import make_pace
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun
from rainbow_iqn_apex.programs.learner.saving import Saver
from rainbow_iqn_apex.programs.learner.summary import Summary
from rainbow_iqn_apex.programs.learner.trainer import make_trainer
from rainbow_iqn_apex.programs.learner.trainer_base import Metrics
from rainbow_iqn_apex.programs.snapshot import weights_hash

_CHECKED_METRICS = 1000  # that are checked together, as each check waits for the GPU


class Learner:
    """Round after round: rows in, updates, weights out."""

    def __init__(self, run: Run, agent: Agent, buffer: Buffer, decode: Decoder, store: ReportStore) -> None:
        self._args, self._client, self._results, self._progress, _, self._stop = run
        args, progress = run.args, run.progress
        self._buffer = buffer
        self._model = agent.model
        self._clock = LoopClock(*PARTS)
        self._trainer = make_trainer(agent, buffer, args.update_size, agent.generator.device, self._clock)
        self._pace = make_pace(args, agent, buffer, run.limiter, progress)
        self._publisher = Publisher(agent.model, run.client)
        self._ingest = Ingest(run, buffer, self._pace, decode, self._clock)
        self.events = EventLog()
        self.gauges = LearnerGauges(run, buffer, store, self._ingest, self._clock)
        self._saver = Saver(run, agent, buffer, self._ingest, self._publisher, self._check_metrics, self.events)
        self._saves_first = True  # for a run without a checkpoint, or whose checkpoint counts messages Redis has lost
        self._log, self._summary = self._new_log()
        self._evaluated = progress.T_learner // args.evaluation_interval
        self._unchecked: list[tuple[str, torch.Tensor]] = []  # metrics

    def resume(self, saved: SavedRun) -> None:
        """Take up from a checkpoint what is neither the agent's nor in `Progress`."""
        is_renewed = saved.progress.run_id != self._progress.run_id
        self._saves_first = not self._saver.resume(saved) or is_renewed

    def run(self) -> None:
        """Train until T-max; raises Stopped if the process shall stop before."""
        progress, args, ingest = self._progress, self._args, self._ingest
        waiting.book_on(self._clock)
        try:
            self._announce()
            self._publisher.begin(progress.round)
            if self._saves_first:
                self._saver.save()  # if this learner is killed from now on, its successor finds all experience again
            self._take_in(ingest.take_backlog())
            while progress.T_learner < args.T_max:
                self._take_in(ingest.gather())
                if self._pace.may_update():
                    self._train()
                if progress.T_learner < args.T_max:
                    progress.round += 1
                    self._publish()
            self._publisher.finish()
            self._take_in(ingest.gather_last())
            self._leave("finished")
        except Stopped:
            self._leave("stopped")
            raise
        except DivergedError as error:
            self.events.note(str(error), is_alarm=True)
            raise
        except (RunError, BrokerError):
            self._saver.write_checkpoint()  # Redis is gone, or another learner leads the run; the folder is still ours
            raise
        finally:
            ingest.close()
            self._publisher.close()

    def _take_in(self, waits: Waits) -> None:
        """Take experience in, and announce meanwhile what actors may wait for: else all would wait for each other."""
        with self._clock.part("take_in"), closing(waits):
            for _ in waits:
                self._announce()

    def _announce(self, status: str = "running") -> None:
        """Log evaluations, write into the run's record how far it is, and publish what a restarted server has lost."""
        evaluations, progress = self._ingest.evaluations, self._progress
        evaluations.take()
        read = self._ingest.received, evaluations.received
        self._client.write_progress(status, progress.T_learner, progress.T_actors, *read)
        self._client.restore_weights()

    def _train(self) -> None:
        """Make the updates of one round."""
        is_first = not self._progress.T_learner
        self._progress.T_learner = self._pace.begin()
        if is_first:
            self._log, self._summary = self._new_log()
        self._buffer.forget(self._ingest.reader.read)
        while turns := self._pace.turns():
            metrics = self._trainer(turns)
            self._note(metrics)
            for turn in turns[: len(metrics)]:  # not of those for which memory was too short
                self._progress.T_learner = turn.step
            with self._clock.part("save"):
                self._report()
                if self._progress.T_learner // self._args.evaluation_interval > self._evaluated:
                    self._evaluate()
            with self._clock.part("take_in"):
                self._ingest.take_meanwhile()
            if self._stop.is_set():
                raise Stopped
        self._pace.end()

    def _publish(self) -> None:
        """Publish the present weights as the version of the present round."""
        with self._clock.part("publish"):
            self._publisher.start(self._progress.round)  # first: a checkpoint of this round needs its weights
            self._announce()
        with self._clock.part("save"):
            self._saver.save_if_due()

    def _leave(self, status: str) -> None:
        """Save everything, write the run's end for the actors, and log the episodes that actors have appended.

        In lockstep a successor logs the episodes of the round under way again, in an order that no process's speed
        decides. A run counts as finished only when all this is done: if the learner dies before, a successor does all.
        """
        self._saver.save()
        self._announce(status)  # no actor can commit any more
        self._ingest.take_rest()
        if status == "finished":
            self._saver.finished = True
            self._saver.save()
        self._saver.try_to(lambda: self._results.plot(now=True))
        self.gauges.read_anew()
        hash_ = weights_hash(self._model)
        print(f"[{timestamp()}] {status.capitalize()} at T = {self._progress.T_learner}, weights {hash_}", flush=True)

    # --- reports ---

    def _note(self, metrics: list[Metrics]) -> None:
        self.gauges.note(metrics)
        self._unchecked += [metric for made in metrics for metric in made.items()]
        if len(self._unchecked) >= _CHECKED_METRICS:
            self._check_metrics()

    def _check_metrics(self) -> None:
        """Raise DivergedError if a metric since the last call was not finite; waits for the device."""
        metrics, self._unchecked = self._unchecked, []
        if metrics and not torch.stack([value for _, value in metrics]).isfinite().all():
            name = next(name for name, value in metrics if not value.isfinite())
            raise DivergedError(f"the {ascii(name)[1:-1][:60]}")

    def _report(self) -> None:
        self._saver.try_to(self._saver.keep_weights)
        T = self._progress.T_learner
        if self._log.passes(T, played=self._progress.T_actors, trained=T):
            print(self._summary.line(), flush=True)
            self._saver.try_to(self._results.plot)
            self._saver.try_to(self._saver.save_best)

    def _evaluate(self) -> None:
        """Report and save; batches drawn ahead have been trained on by now, so a resumed run goes on exactly here."""
        self._evaluated = self._progress.T_learner // self._args.evaluation_interval
        means = ", ".join(f"{name.removeprefix('train/')} {mean:.4f}" for name, mean in self.gauges.means().items())
        print(f"Mean {means}, {self._summary.score()}", flush=True)
        self._saver.try_to(lambda: self._results.plot(now=True))
        self._saver.try_to(self._saver.save)

    def _new_log(self) -> tuple[IntervalLog, Summary]:
        args, progress, results = self._args, self._progress, self._results
        log = IntervalLog("learner", args, progress.T_learner)
        return log, Summary(args, progress, results.log, results.action_repeat)
