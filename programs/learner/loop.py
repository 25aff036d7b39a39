"""The learner's loop: takes the actors' experience in, updates, publishes weights."""

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import DivergedError
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.memory.broker.stream_reader import Decoder
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs.common import IntervalLog, timestamp
from rainbow_iqn_apex.programs.learner.evaluations import make_evaluations
from rainbow_iqn_apex.programs.learner.gauges import LearnerGauges
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from rainbow_iqn_apex.programs.learner.rounds import Rounds
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun
from rainbow_iqn_apex.programs.learner.saving import Saver
from rainbow_iqn_apex.programs.learner.summary import Summary
from rainbow_iqn_apex.programs.learner.trainer_base import Metrics
from rainbow_iqn_apex.programs.snapshot import weights_hash


class Learner(Rounds):
    """The learner that leads a run: round after round rows in, updates, weights out."""

    def __init__(
        self, run: Run, agent: Agent, buffer: Buffer, decode: Decoder, store: ReportStore, batch_size: int | None
    ) -> None:
        super().__init__(run, agent, buffer, decode, batch_size)
        self._results = run.results
        self._evaluations = make_evaluations(run, self._ingest.bound, self._pace.most_steps)
        self._publisher = Publisher(agent.model, run.client)
        self.events = EventLog()
        self.gauges = LearnerGauges(run, buffer, store, self._ingest, self._clock)
        self._saver = Saver(run, agent, buffer, self._ingest, self._publisher, self._check_metrics, self.events)
        self._log, self._summary = self._new_log()

    def resume(self, saved: SavedRun) -> None:
        """Take up from a checkpoint what is neither the agent's nor in `Progress`."""
        is_renewed = saved.progress.run_id != self._progress.run_id
        self._saves_first = not self._saver.resume(saved) or is_renewed

    def _begin(self) -> None:
        self._announce()
        self._publisher.begin(self._progress.round)
        if self._saves_first:
            self._saver.save()  # if this learner is killed from now on, its successor finds all experience again

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
                self._saver.check_finite()  # or actors would fail by these weights, and be blamed
            self._publisher.start(self._progress.round)  # first: a checkpoint of this round needs its weights
            self._announce()
        with self._clock.part("save"):
            self._saver.save_if_due()

    def _finish(self) -> None:
        self._publisher.finish()

    def _leave(self, status: str) -> None:
        """Save everything, write the run's end for the actors, and log the episodes that actors have appended.

        In lockstep a successor logs the episodes of the round under way again, in an order that no process's speed
        decides. A run counts as finished only when all this is done: if the learner dies before, a successor does all.
        """
        self._saver.save()
        self._announce(status)  # no actor can commit any more
        self._agree(ready=True)
        self._ingest.take_rest()
        self._evaluations.take_rest()
        self._ingest.episodes.share()
        if status == "finished":
            self._saver.finished = True
            self._saver.save()
        self._saver.try_to(lambda: self._results.plot(now=True))
        self.gauges.read_anew()
        print(self._summary.result(), flush=True)
        hash_ = weights_hash(self._model)
        print(f"[{timestamp()}] {status.capitalize()} at T = {self._progress.T_learner}, weights {hash_}", flush=True)

    def _tell_divergence(self, error: DivergedError) -> None:
        self.events.note(str(error), is_alarm=True)

    def _save_alone(self) -> None:
        if self._team.size == 1:  # what others have to add to a checkpoint is not to be had any more
            self._agree(ready=True)  # on what was taken in before the error
            self._saver.write_checkpoint()

    def _close(self) -> None:
        self._evaluations.close()
        self._publisher.close()

    # --- reports ---

    def _note(self, metrics: list[Metrics]) -> None:
        self.gauges.note(metrics)
        super()._note(metrics)

    def _report(self) -> None:
        self._saver.try_to(self._saver.keep_weights)
        T = self._progress.T_learner
        if self._log.passes(T, played=self._progress.T_actors, trained=T):
            print(self._summary.line(), flush=True)
            self._saver.try_to(self._results.plot)
            self._saver.try_to(self._saver.save_best)

    def _evaluate(self) -> None:
        means = ", ".join(f"{name.removeprefix('train/')} {mean:.4f}" for name, mean in self.gauges.means().items())
        print(f"Mean {means}, {self._summary.score()}", flush=True)
        self._saver.try_to(lambda: self._results.plot(now=True))
        self._saver.try_to_save()

    def _new_log(self) -> tuple[IntervalLog, Summary]:
        args, progress, results = self._args, self._progress, self._results
        log = IntervalLog("learner", args, progress.T_learner)
        return log, Summary(args, progress, results.log, results.action_repeat)
