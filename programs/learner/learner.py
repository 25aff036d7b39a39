"""The learner's loop: takes the actors' experience in, updates, and publishes weights.

Each rank of a run has a learner. They make the same updates at the same time, each with the experience of its own
actors and with its part of the batch. Whatever depends on what one rank has, or on the time, is exchanged by
`World.sync`, so that all ranks decide the same. Rank 0 also does what a run needs once: see `Leading`.
"""

from contextlib import closing

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import DivergedError, RunError, Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.messages import MessageSchema
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs.common import IntervalLog, timestamp
from rainbow_iqn_apex.programs.learner.checkpointer import Checkpointer, DivergenceCheck, SavedRun
from rainbow_iqn_apex.programs.learner.gauges import PARTS, LearnerGauges, Summary
from rainbow_iqn_apex.programs.learner.ingest import Ingest, Waits, make_evaluations
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from rainbow_iqn_apex.programs.learner.trainers import make_trainer
from rainbow_iqn_apex.programs.learner.update_scheduler import Run, make_pace
from rainbow_iqn_apex.programs.learner.world import RoundState, mean_metrics
from rainbow_iqn_apex.programs.snapshot import weights_hash

_DONE = object()


class Learner:
    """Round after round: rows in, updates, weights out. `batch_size` is that of this rank's part of an update."""

    def __init__(self, run: Run, agent: Agent, buffer: Buffer, schema: MessageSchema, batch_size: int | None) -> None:
        self._args = run.args
        self._client = run.client
        self._progress = run.progress
        self._limiter = run.limiter
        self._stop = run.stop
        self._world = run.world
        self._buffer = buffer
        self._clock = LoopClock(*PARTS)
        self._pace = make_pace(run.args, agent, buffer, run.limiter, run.progress)
        self._ingest = Ingest(run, buffer, self._pace, schema, self._clock)
        device = agent.generator.device
        self._trainer = make_trainer(agent, buffer, batch_size, device, self._clock, alone=run.world.size == 1)
        self._divergence = DivergenceCheck(agent.model)
        self._is_on_cpu = device.type == "cpu"
        self.events = EventLog()
        self.lead = None
        if run.world.rank == 0:
            self.lead = Leading(run, agent, buffer, self._ingest, self._clock)
        publisher = self.lead.publisher if self.lead else None
        self._checkpointer = Checkpointer(run, agent, buffer, self._ingest, publisher, self._divergence, self.events)
        self._has_trained = False  # in this process
        self._saves_first = True  # for a run without a checkpoint, or whose checkpoint counts messages Redis has lost
        self._evaluated = run.progress.T_learner // run.args.evaluation_interval
        self._counted_steps = run.progress.T_actors  # agent steps that all ranks have counted

    def resume(self, saved: SavedRun) -> None:
        """Restore from a checkpoint all but the agent's parts and `Progress`."""
        is_renewed = saved.progress.run_id != self._progress.run_id
        self._saves_first = not self._checkpointer.resume(saved) or is_renewed

    def run(self) -> None:
        """Train until T-max; raises Stopped if a rank must stop before."""
        progress = self._progress
        waiting.book_on(self._clock)
        try:
            self._begin()
            self._take_in(self._ingest.take_backlog())
            self._measure_anew()
            while progress.T_learner < self._args.T_max:
                self._take_in(self._ingest.gather())
                state = self._sync(is_ready=self._pace.may_update())
                if state.is_ready:
                    self._train(state)
                if progress.T_learner < self._args.T_max:
                    progress.round += 1
                    self._publish()
            if self.lead:
                self.lead.publisher.finish()
            self._take_in(self._ingest.gather_last())
            self._leave("finished")
        except Stopped:
            self._leave("stopped")
            raise
        except DivergedError as error:
            self.events.note(str(error), is_alarm=True)
            raise
        except (RunError, BrokerError):  # Redis is gone, or another learner leads the run; the folder is still ours
            if self._world.size == 1:  # else what the others would add to a checkpoint is gone
                self._sync()
                self._checkpointer.save(trims=False)
            raise
        finally:
            self._ingest.close()
            if self.lead:
                self.lead.close()

    def _begin(self) -> None:
        """Do what actors wait for at first."""
        self._announce(self._world.sync(RoundState(received=self._ingest.received)))
        if self.lead:
            self.lead.publisher.begin(self._progress.round)
        if self._saves_first:
            self._checkpointer.save()  # if this learner is killed from now on, its successor finds all experience again

    def _take_in(self, waits: Waits) -> None:
        """Take experience in on all ranks. Actors may wait for the run's record meanwhile, so it is written, too."""
        is_done = False
        with self._clock.part("take_in"), closing(waits):
            while True:
                is_stopping = False
                try:
                    is_done = is_done or next(waits, _DONE) is _DONE
                except Stopped:
                    is_stopping = True
                state = self._sync(is_ready=is_done, is_stopping=is_stopping, received=self._ingest.received)
                if state.is_ready:
                    return
                self._announce(state)

    def _sync(
        self, *, is_ready: bool = True, is_stopping: bool = False, received: dict[int, int] | None = None
    ) -> RoundState:
        """Return the state of all ranks, and count what they have taken in; raises Stopped if one of them is stopping.

        Once all are ready, they log the episodes that they have taken in.
        """
        progress = self._progress
        new = 0 if self._limiter.synchronize else progress.T_actors - self._counted_steps
        state = self._world.sync(
            RoundState(
                is_ready,
                is_stopping,
                new_steps=new,
                refills=self._pace.refills,
                received=received or {},
                episodes=self._ingest.episodes if is_ready else [],
                fresh_steps=self._pace.fresh_steps(),
            )
        )
        progress.T_actors += state.new_steps - new
        self._counted_steps = progress.T_actors
        self._pace.pass_steps(state)
        if state.is_stopping:
            raise Stopped
        if state.is_ready:
            self._ingest.log(state.episodes)
        return state

    def _train(self, state: RoundState) -> None:
        """Make the updates of one round."""
        progress = self._progress
        progress.T_learner = self._pace.begin(state)
        self._buffer.forget(self._ingest.reader.read)
        while turns := self._pace.turns(state):
            metrics = mean_metrics(self._world, self._trainer(turns))
            if self.lead:
                self.lead.gauges.note(metrics)
            self._divergence.note(metrics)
            if metrics:
                progress.T_learner = turns[len(metrics) - 1].step  # memory was too short for the turns behind it
            self._report()
            with self._clock.part("take_in"):
                self._ingest.take_meanwhile()
            state = self._sync(is_stopping=self._stop.is_set())
        self._pace.end()
        if not self._has_trained:
            self._has_trained = True
            self._measure_anew()

    def _report(self) -> None:
        """Report updates, and save now and then.

        Batches drawn ahead have been trained on by now, so a resumed run continues exactly here.
        """
        with self._clock.part("save"):
            if self.lead:
                self.lead.report(self._checkpointer)
            if (evaluated := self._progress.T_learner // self._args.evaluation_interval) > self._evaluated:
                self._evaluated = evaluated
                if self.lead:
                    self.lead.evaluate(self._checkpointer)
                self._checkpointer.try_to_save()

    def _publish(self) -> None:
        """Publish the present weights as the version of the present round."""
        with self._clock.part("publish"):
            if self.lead:
                if self._is_on_cpu:  # a GPU would have to be waited for
                    self._divergence.check()  # or actors would fail by these weights, and be blamed
                self.lead.publisher.start(self._progress.round)  # first: a checkpoint of this round needs its weights
            is_due = self._checkpointer.is_due()
            state = self._world.sync(RoundState(received=self._ingest.received, is_save_due=is_due))
            self._announce(state)
        if state.is_save_due:
            with self._clock.part("save"):
                self._checkpointer.try_to_save()

    def _announce(self, state: RoundState, status: str = "running") -> None:
        """Write into the run's record how far it is."""
        if self.lead:
            self.lead.announce(state, status)
        else:
            self._client.lease.check()

    def _leave(self, status: str) -> None:
        """Save everything, write the run's end for the actors, and log the episodes that actors have appended.

        In lockstep a successor logs the episodes of the round under way again, in an order that no process's speed
        decides. A run counts as finished only when all this is done: if the learner dies before, a successor does all.
        """
        self._checkpointer.save()
        self._announce(self._world.sync(RoundState(received=self._ingest.received)), status)
        self._world.sync(RoundState())  # no actor can commit any more
        self._ingest.take_rest()
        if self.lead:
            self.lead.evaluations.take_rest()
        self._ingest.log(self._world.sync(RoundState(episodes=self._ingest.episodes)).episodes)
        if status == "finished":
            self._checkpointer.save(finished=True)
        if self.lead:
            self.lead.conclude(self._checkpointer, status)
        self._world.sync(RoundState())  # nobody ends while another one still watches its lease

    def _measure_anew(self) -> None:
        """Measure speeds from here on: what the log held, or the first updates needed, took another time to play."""
        if self.lead:
            self.lead.measure_anew(self._has_trained)


class Leading:
    """What rank 0 does for all: it publishes weights, writes the run's record, and logs, prints and draws scores."""

    def __init__(
        self,
        run: Run,
        agent: Agent,
        buffer: Buffer,
        ingest: Ingest,
        clock: LoopClock,
    ) -> None:
        assert run.results, "rank 0 writes the results"
        self._args = run.args
        self._client = run.client
        self._progress = run.progress
        self._results = run.results
        self._model = agent.model
        self.publisher = Publisher(agent.model, run.client)
        self.evaluations = make_evaluations(run)
        self.store = run.client.reports()
        self.gauges = LearnerGauges(run, buffer, self.store, ingest, clock)
        self._log, self._summary = self._new_log()

    def _new_log(self) -> tuple[IntervalLog, Summary]:
        log = IntervalLog("learner", self._args, self._progress.T_learner)
        return log, Summary(self._args, self._progress, self._results.log, self._results.action_repeat)

    def measure_anew(self, has_trained: bool) -> None:
        """Measure speeds from here on; lines have them once this process `has_trained`."""
        self._log, self._summary = self._new_log()
        if has_trained:
            self._summary.measure()
        self.gauges.measure_anew()

    def announce(self, state: RoundState, status: str) -> None:
        """Log evaluations, write into the run's record how far it is, and publish what a restarted server has lost."""
        self.evaluations.take()
        self.gauges.received = state.received
        steps = self._progress.T_learner, self._progress.T_actors
        self._client.write_progress(status, *steps, state.received, self.evaluations.received)
        self._client.restore_weights()

    def report(self, checkpointer: Checkpointer) -> None:
        """Keep weights after updates, and now and then print a line, draw scores and save the best weights."""
        checkpointer.try_to(checkpointer.keep_weights)
        T = self._progress.T_learner
        if self._log.passes(T, played=self._progress.T_actors, trained=T):
            print(self._summary.line(), flush=True)
            checkpointer.try_to(self._results.plot)
            checkpointer.try_to(checkpointer.save_best)

    def evaluate(self, checkpointer: Checkpointer) -> None:
        """Print the means of metrics, and draw scores."""
        means = ", ".join(f"{name.removeprefix('train/')} {mean:.4f}" for name, mean in self.gauges.means().items())
        print(f"Mean {means}, {self._summary.score()}", flush=True)
        checkpointer.try_to(lambda: self._results.plot(now=True))

    def conclude(self, checkpointer: Checkpointer, status: str) -> None:
        """Draw all scores, and print how the run has ended."""
        checkpointer.try_to(lambda: self._results.plot(now=True))
        self.gauges.read_anew()
        print(self._summary.result(), flush=True)
        weights = weights_hash(self._model)
        print(f"[{timestamp()}] {status.capitalize()} at T = {self._progress.T_learner}, weights {weights}", flush=True)

    def close(self) -> None:
        """Stop reading evaluations, and wait for weights that are being published."""
        self.evaluations.close()
        self.publisher.close()
