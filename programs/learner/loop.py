"""The learner: takes the actors' experience in, trains, publishes weights, and reports."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from agents.interface import Agent, Network
from agents.randomness import restore_generator
from agents.trainer import Metrics, make_updates
from args import Args
from memory.broker.connection import BrokerError
from memory.broker.experience_reader import Decoder, Entry
from memory.broker.learner_client import LearnerClient
from memory.broker.story import Reach
from memory.chunk import Chunk, ChunkId
from memory.errors import DivergedError, RunError, Stopped
from memory.limiter import RateLimiter
from memory.messages import Episode
from memory.replay import Checkpoint, Replay
from memory.rows import Kind
from memory.waiting import WaitReporter
from programs.common import IntervalLog, timestamp
from programs.learner.checkpoints import FirstMessages
from programs.learner.kept_weights import KeptWeights, points_to_keep
from programs.learner.publisher import Publisher
from programs.learner.results_folder import ResultsFolder, steps_made
from programs.snapshot import weights_hash

_SNAPSHOT_INTERVAL_S = 600.0  # work that a killed learner has to do again, at most
_UNTOLD_ROUNDS = 100  # that actors can play in the seconds that a restarted Redis may have lost, at most
_CHECKED_UPDATES = 500  # whose losses are looked at together, as each look waits for a GPU
_RETRY_S = 60.0  # until files are written again after a failure


@dataclass
class Progress:
    """Where a run stands; snapshots hold it."""

    run_id: str
    round: int = 0
    T_actors: int = 0  # agent steps in the log
    T_learner: int = 0  # agent steps that the updates stand for; 0 before learning
    round_end: int = 0  # T_learner at which the round's training is done


class Learner:
    """Round after round: rows in, updates, weights out."""

    def __init__(
        self, args: Args, agent: Agent, replay: Replay, link: LearnerClient, reports: ResultsFolder, progress: Progress,
        limiter: RateLimiter, decode: Decoder, stop: threading.Event,
    ) -> None:  # fmt: skip
        self.progress = progress
        self._args = args
        self.agent = agent
        self._replay = replay
        self._updates = make_updates(agent, replay, args.batch_size, agent.generator.device)
        self._link = link
        self._reports = reports
        self._limiter = limiter
        self._stop = stop
        self._publisher = Publisher(self._model, link)
        # A broker that restarts without the weights gets them again, or learner and actors would wait for each other.
        self._earlier = reach_of_earlier(args, progress, limiter, link.told)
        self._inbox = link.inbox(
            decode,
            stop,
            lambda: self._report_progress("running"),
            self._reach,
            known=max(crew.nb_actor for crew in limiter.crews),
            joining=not limiter.synchronize,
        )
        self._gathered = -1  # last round whose rows were taken in; a resumed learner takes its old rounds one by one
        self._counted: dict[int, int] = {}  # last message per actor whose rows T_actors counts
        self._log = self._new_log()
        self._evaluated = progress.T_learner // args.evaluation_interval
        self._metrics: deque[Metrics] = deque(maxlen=max(1, args.evaluation_size // args.batch_size))
        self._unchecked: list[torch.Tensor] = []  # losses
        self._next_snapshot = time.monotonic() + _SNAPSHOT_INTERVAL_S
        self._not_before = 0.0  # no files, after a failure
        points = points_to_keep(args, reports.action_repeat)
        self._kept = KeptWeights(reports.folder, args.task, points, self._steps_made)
        self._trimmed_at = 0  # chunks inserted when the log was last trimmed
        self._has_lost = False  # Redis has lost messages that the checkpoint counts
        self._finished = False  # T-max is reached, and all that belongs to it is saved and logged

    def run(self, *, first_start: bool) -> None:
        """Train until T-max; Stopped when the process shall stop before."""
        try:
            self._report_progress("running")
            self._publisher.begin(self.progress.round)
            if first_start or self._has_lost:
                self._save()  # a learner killed from now on finds its actors' experience, and only theirs, again
            self._take(self._inbox.take_backlog() if not self._limiter.synchronize else [])
            while self.progress.T_learner < self._args.T_max:
                self._gather()
                if self._replay.rows >= self._args.learn_start:
                    self._train()
                if self.progress.T_learner < self._args.T_max:
                    self.progress.round += 1
                    self._publish()
            self._publisher.finish()
            if self._limiter.synchronize:
                self._gather()  # as a learner has to that was stopped here
                self._take_round(self.progress.round)  # its last steps are those of T-max
            self._leave("finished")
        except Stopped:
            self._leave("stopped")
            raise
        except DivergedError:
            raise
        except (RunError, BrokerError):
            self._write_checkpoint()  # Redis is gone, or somebody else leads the run there; the folder is still ours
            raise
        finally:
            self._inbox.close()
            self._publisher.close()

    # --- rows in ---

    def _gather(self) -> None:
        """Take in what the round needs: all rows of rounds before, or without lockstep enough rows to learn from."""
        if self._limiter.synchronize:
            while not self._limiter.may_train(self.progress.round, self._gathered):
                self._take_round(self._gathered + 1)
                self._gathered += 1
            self.progress.T_actors = self._limiter.steps_before(self.progress.round)
            return
        patience = WaitReporter(f"{self._args.learn_start} transitions in the replay", hint=self._link.absent)
        self._take(self._inbox.take_all())
        while self._replay.rows < self._args.learn_start:
            self._inbox.wait(patience)
            self._take(self._inbox.take_all())

    def _take_round(self, round_: int) -> None:
        crew, before = self._limiter.crew_of(round_), self._limiter.crew_of(max(0, round_ - 1))
        stayed = None
        if crew != before:
            stayed = min(before.nb_actor, crew.nb_actor)
            if round_ >= self.progress.round - 1:  # not one that an earlier learner has taken in
                self._reports.log.settle(crew.nb_actor)
        self._take(self._inbox.take_round(round_, crew.nb_actor, stayed))

    def _take(self, entries: Iterable[Entry]) -> None:
        episodes = []
        try:
            for chunk_id, message in entries:
                new = chunk_id.sequence > self._counted.get(chunk_id.actor, 0)
                if isinstance(message, Episode) and new:  # others were logged before the checkpoint
                    episodes.append(message)
                elif isinstance(message, Chunk):
                    self._add(chunk_id, message, new=new)
        finally:  # waiting for more may end in Stopped
            for actor, read in self._inbox.read.items():
                self._counted[actor] = max(read, self._counted.get(actor, 0))
            self._reports.add_episodes(episodes, self.progress.T_learner)

    def _reach(self) -> Reach:
        """How far actors can have come; the round is counted before its weights are published."""
        progress, earlier = self.progress, self._earlier
        return Reach(max(progress.round, earlier.round), max(progress.T_actors, earlier.steps))

    def _add(self, chunk_id: ChunkId, chunk: Chunk, *, new: bool) -> None:
        if new or self._replay.remembers(chunk_id):  # others were evicted before the checkpoint that we resume from
            self._replay.add(chunk_id, chunk)
        if new and not self._limiter.synchronize:
            self.progress.T_actors += self._steps(chunk)

    def _steps(self, chunk: Chunk) -> int:
        lead = self.agent.spec.lead
        return int((chunk.rows["kind"][lead : lead + self.agent.spec.stride] != Kind.LAST).sum())

    # --- updates ---

    def _train(self) -> None:
        """The updates of one round, at one per replay-frequency agent steps."""
        progress, frequency = self.progress, self._args.replay_frequency
        if progress.T_learner == 0:
            progress.T_learner = max(self._args.learn_start, progress.T_actors)
            progress.round_end = progress.T_learner + self._limiter.round_steps(progress.round)
            self._log = self._new_log()
        self._replay.forget(self._inbox.read)
        end = min(progress.round_end, self._args.T_max)
        while progress.T_learner < end:
            ahead = min(self._args.queue_size, -(-(end - progress.T_learner) // frequency))
            metrics = self._updates([beta(self._args, progress.T_learner + i * frequency) for i in range(ahead)])
            self._metrics += metrics
            self._unchecked += [made["loss"] for made in metrics]
            if len(self._unchecked) >= _CHECKED_UPDATES:
                self._check_losses()
            progress.T_learner += ahead * frequency
            self._report()
            if progress.T_learner // self._args.evaluation_interval > self._evaluated:
                self._evaluate()
            if not self._limiter.synchronize:
                self._take(self._inbox.take_all())
            if self._stop.is_set():
                raise Stopped
        # A run that ends with its round goes on, given a larger T-max, with the next one.
        if progress.round_end <= progress.T_learner < self._args.T_max:
            progress.round_end += self._limiter.round_steps(progress.round + 1)

    def _check_losses(self) -> None:
        """Raise DivergedError if a loss since the last call was not finite; waits for the device."""
        losses, self._unchecked = self._unchecked, []
        if losses and not torch.stack(losses).isfinite().all():
            raise DivergedError

    def _new_log(self) -> IntervalLog:
        return IntervalLog("learner", self._args, self.progress.T_learner)

    # --- weights and reports out ---

    def _publish(self) -> None:
        """Publish the present weights as the version of the present round."""
        self._publisher.start(self.progress.round)  # first: a checkpoint of this round needs its weights
        self._report_progress("running")
        turned_over = self._replay.inserted - self._trimmed_at >= self._replay.slots // 2
        if time.monotonic() >= self._next_snapshot or turned_over:  # see budget._LOG_SHARE
            self._try_to(self._save)

    @property
    def _model(self) -> Network:
        model = self.agent.parts["model"]
        assert isinstance(model, Network)
        return model

    def _report_progress(self, status: str) -> None:
        self._link.progress(status, self.progress.T_learner, self.progress.T_actors, self._inbox.received)

    def _report(self) -> None:
        self._try_to(self._keep_weights)
        T = self.progress.T_learner
        if self._log.passes(T, played=self.progress.T_actors, trained=T):
            self._check_losses()
            self._try_to(self._reports.plot)
            self._try_to(lambda: self._reports.save_best(self.agent, self._values()))

    def _evaluate(self) -> None:
        """Report and save; batches drawn ahead have been trained on by now, so a resumed run goes on exactly here."""
        self._evaluated = self.progress.T_learner // self._args.evaluation_interval
        means = {name: torch.stack([m[name] for m in self._metrics]).mean().item() for name in self._metrics[0]}
        mean_score = self._reports.mean_score(self.progress.T_learner)
        score = "fewer than 100 episodes yet" if mean_score is None else f"mean score {mean_score:.2f}"
        print(f"Mean value {means['value']:.4f}, loss {means['loss']:.4f}, {score}", flush=True)
        self._try_to(lambda: self._reports.plot(now=True))
        self._try_to(self._save)

    def _try_to(self, write: Callable[[], None]) -> None:
        """Write what a later call will write again: a full disk does not end the run, and costs it nothing yet.

        After a failure nothing is written for a while. The log is not trimmed meanwhile, so it still fits the older
        checkpoints.
        """
        if time.monotonic() < self._not_before:
            return
        try:
            write()
        except OSError as error:
            self._not_before = time.monotonic() + _RETRY_S
            print(f"Not written, and tried again in {_RETRY_S:.0f} sec: {error}", flush=True)

    def _values(self) -> dict[str, Any]:
        values = {
            "run_name": self._args.name,
            "crews": [list(crew) for crew in self._limiter.crews],
            "settings": json.dumps(self._args.shared),
        }
        return asdict(self.progress) | values

    @property
    def _steps_made(self) -> int:
        return steps_made(asdict(self.progress), lockstep=self._limiter.synchronize)

    def _keep_weights(self) -> None:
        steps = self._args.T_max if self._finished else self._steps_made  # without lockstep actors may have played less
        if self._kept.due(steps):
            self._check_losses()
        self._kept.keep(steps, self.agent, self._values())

    def _save(self) -> None:
        """Write a checkpoint, and drop from the log what neither it nor the one before it needs."""
        self._link.trim(self._write_checkpoint())
        self._trimmed_at = self._replay.inserted
        self._next_snapshot = time.monotonic() + _SNAPSHOT_INTERVAL_S

    def _write_checkpoint(self) -> FirstMessages:
        """Write a checkpoint, and return to what the log may be trimmed."""
        self._check_losses()
        self._keep_weights()
        checkpoint = self._replay.checkpoint()
        values = {
            "counted": self._counted,
            "replay": checkpoint._asdict(),
            "replay_generator": self._replay.generator.get_state(),
            "logged": self._reports.log.size,
            "finished": self._finished,
            # A stop in the middle of a round leaves weights that no actor may see before the round's end, and an actor
            # that has a round left to play needs the weights before.
            "published": {
                version: torch.frombuffer(bytearray(packet), dtype=torch.uint8)
                for version, packet in self._publisher.packets().items()
            },
        }
        needs = {actor: read + 1 for actor, read in self._inbox.read.items()} | self._replay.oldest()
        return self._reports.save_checkpoint(self.agent, self._values() | values, needs)

    def _leave(self, status: str) -> None:
        """Save everything, send the actors home, and log the episodes that they were told are in the log.

        A successor in lockstep logs those of the round under way again, in the order that nobody's speed decides.
        A run has finished when all this is done: a learner that dies before has a successor, which does it again.
        """
        self._save()
        self._report_progress(status)  # no actor can commit any more
        episodes = [entry.message for entry in self._inbox.take_rest() if isinstance(entry.message, Episode)]
        self._reports.add_episodes(episodes, self.progress.T_learner)
        if status == "finished":
            self._finished = True
            self._save()
        self._try_to(lambda: self._reports.plot(now=True))
        hash_ = weights_hash(self._model)
        print(f"[{timestamp()}] {status.capitalize()} at T = {self.progress.T_learner}, weights {hash_}", flush=True)

    def resume(self, saved: dict[str, Any]) -> None:
        """Take over from a checkpoint what is neither the agent's nor in `Progress`."""
        restore_generator(self._replay.generator, saved["replay_generator"])
        self._publisher.restore({version: packet.numpy().tobytes() for version, packet in saved["published"].items()})
        for actor, counted in saved["counted"].items():
            known = self._link.last_sequence(actor)
            if known < counted:  # and the numbers that follow will stand for other messages
                print(f"Redis has lost messages {known + 1} to {counted} of actor {actor}", flush=True)
                self._has_lost = True
            self._counted[actor] = min(known, counted)
        if self._limiter.synchronize and self._counted == saved["counted"]:
            self._reports.log.go_back(saved.get("logged", self._reports.log.size))
        self._replay.restore(Checkpoint(**saved["replay"]), self._counted)
        self._reports.checkpoints.needs = self._replay.oldest()
        self._trimmed_at = self._replay.inserted


def reach_of_earlier(args: Args, progress: Progress, limiter: RateLimiter, told: int) -> Reach:
    """How far actors can have come with earlier learners of the run, one of which has saved this progress.

    A learner that was killed has published rounds after its last snapshot: two more than the agent steps fill that it
    has told the actors last, and those whose steps a restarted Redis has lost. Where Redis has lost much more, nothing
    is known but that nobody plays rounds beyond T-max.
    """
    untold = _UNTOLD_ROUNDS if told or progress.T_actors else 0
    lost = told + untold * limiter.wanted_steps < progress.T_actors
    steps = args.T_max if lost else max(told, progress.T_actors)
    return Reach(limiter.round_of(min(steps, args.T_max)) + 2 + untold, steps)


def beta(args: Args, T: int) -> float:
    """Importance-sampling exponent at learner step T: linear from priority-weight at learn-start to 1 at T-max."""
    fraction = (T - args.learn_start) / (args.T_max - args.learn_start)
    return args.priority_weight + (1 - args.priority_weight) * min(1.0, max(0.0, fraction))
