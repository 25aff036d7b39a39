"""The actor: plays, cuts its rows into chunks, appends them to its log, and pulls weights."""

import threading
from contextlib import closing, suppress

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient, Saved
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.leases import LEARNER
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.messages import Joined, Message, RoundEnd
from rainbow_iqn_apex.memory.wire import WireError
from rainbow_iqn_apex.programs.actor.evaluation import run_evaluation_actor
from rainbow_iqn_apex.programs.actor.player import PARTS, Player, fetch_weights, make_client, make_policy
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.common import IntervalLog, joined, make_limiter, open_vector
from rainbow_iqn_apex.programs.machine import check_actor


class Actor(Player):
    """Plays round after round, as far as the rate limiter allows."""

    def __init__(
        self,
        args: Args,
        client: ActorClient,
        rollout: Rollout,
        limiter: RateLimiter,
        stop: threading.Event,
        clock: LoopClock,
    ) -> None:
        super().__init__(args, client, args.nb_env_per_actor, stop, clock)
        self._rollout = rollout
        self._limiter = limiter
        self._round = 0
        self._round_step = 0  # agent steps of each environment in this round, in lockstep
        self._unsent: list[Message] = []

    def run(self) -> None:
        """Play until the run is over (RunOver) or the process shall stop (Stopped)."""
        waiting.book_on(self._clock)
        self._begin()
        log = IntervalLog(f"actor {self._args.id_actor}", self._args, self._total_steps(0))
        while True:
            with self._clock.part("pull"):
                self._pull()
            self._play_round(log)

    def _begin(self) -> None:
        """Go on where this actor's predecessor stopped, or join the run."""
        self._client.wait_for_living_learner()
        self._client.written_record()  # it holds what the learner has read
        saved = self._client.saved(repeats=self._limiter.synchronize)
        if saved and not self._is_left_behind(saved):
            self._restore(saved)
        else:
            self._client.pass_read()
            self._join()
            # A number that no episode of this actor has yet, as each took a step; in lockstep always the same.
            self._rollout.first_episode = self._total_steps(self._client.record().t_actors)

    def _is_left_behind(self, saved: Saved) -> bool:
        """Return whether the state is of a round that is over: its weights are gone, so no actor can play it again.

        In lockstep the learner waits for a round before it publishes the version after the next. So Redis has lost what
        this actor did after that state.
        """
        if not self._limiter.synchronize:
            return False
        with suppress(WireError):  # restoring the state names the damage
            playing = max(saved.round, self._limiter.joining_round(self._args.id_actor))
            return playing + 1 < self._client.wait_for_version(0)
        return False

    def _restore(self, saved: Saved) -> None:
        point = self._rollout.restore(saved)
        self._round = point.round
        print(f"Actor {self._args.id_actor} goes on after {self._rollout.step} of its steps", flush=True)
        self.events.note(f"went on after {self._rollout.step} of its steps")
        if not self._limiter.synchronize:
            return
        self._round_step = point.step
        if point.round < self._limiter.joining_round(self._args.id_actor):
            self._join()

    def _join(self) -> None:
        if self._limiter.synchronize:
            # The learner waits for round `first` before it publishes version `first` + 2. If that version is published,
            # this actor has lost its state, and begins with the newest round.
            first = self._limiter.joining_round(self._args.id_actor)
            newest = self._client.wait_for_version(0)
            self._round = newest if newest > first + 1 else first
            self._round_step = 0
        self._unsent = [Joined(self._round)]
        self.events.note("joined")

    def _total_steps(self, t_actors: int, more: int = 0) -> int:
        """Count agent steps over all actors: exactly in lockstep, else as far as the learner has counted.

        `more` counts steps that each environment has not made yet.
        """
        if self._limiter.synchronize:
            nb_env = self._limiter.crew_of(self._round).nb_actor * self._args.nb_env_per_actor
            return self._limiter.steps_before(self._round) + (self._round_step + more) * nb_env
        return max(t_actors, (self._rollout.step + more) * self._args.nb_env_per_actor)

    def _pull(self, *, again: bool = False) -> None:
        """Wait until the next round may be played, and load its weights."""
        reporter = self._client.wait_reporter("the learner to read this actor's experience")
        with self._clock.part("wait"):
            newest = self._client.wait_for_version(self._round if self._limiter.synchronize else 0)
            while not self._limiter.may_play(self._round, newest, self._client.unread()):
                self._client.wait_for_change(newest + 1, reporter)
                newest = self._client.newest_version()
        lockstep = self._limiter.synchronize
        wanted = self._round if lockstep else newest
        if wanted == self._version and not again:
            return
        weights = fetch_weights(self._client, self._rollout.policy, wanted, or_newest=not lockstep)
        self._rollout.load(*weights)
        self._version = self.gauges.version = weights.version

    def _play_round(self, log: IntervalLog) -> None:
        record = self.look()
        lockstep = self._limiter.synchronize
        unsent_limit = self._args.length_actor_buffer - self._rollout.policy.spec.window
        for i in range(self._limiter.crew_of(self._round).env_steps - self._round_step):
            before, after = (self._total_steps(record.t_actors, more) for more in (0, 1))
            messages = self._rollout.play(before, after)
            self._unsent += messages
            self.gauges.count(messages)
            self.viewer.give(lambda: self._rollout.view(self._version))
            self._round_step += lockstep
            T = self._total_steps(record.t_actors)
            log.passes(T, played=T, trained=record.t_learner)
            if self._stop.is_set():
                break
            if (i + 1) % unsent_limit == 0:
                self._commit()
                with self._clock.part("pull"):
                    self._pull(again=True)  # a successor that resumes here has to load weights, too
        if lockstep:
            # This actor's successor will play exactly the same steps again, from the last commit on.
            if self._stop.is_set():
                raise Stopped
            self._unsent += [*self._rollout.finish_round(), RoundEnd(self._round)]
        self._round += 1
        self._round_step = 0
        self._commit()
        if self._stop.is_set():
            raise Stopped

    def _commit(self) -> None:
        if self._unsent:
            with self._clock.part("send"):
                self._client.commit(self._unsent, self._rollout.snapshot(ResumePoint(self._round, self._round_step)))
                self._unsent = []


def run_actor(args: Args, stop: threading.Event) -> None:
    """Play for the run of these settings until it is over or this process shall stop."""
    if args.id_eval_actor >= 0:
        run_evaluation_actor(args, stop)
        return
    if args.id_actor == LEARNER:
        raise UserError(f"--id-actor: an actor needs its own number, 0 to {args.nb_actor - 1}, such as --id-actor 0")
    check_actor(args)
    with joined(args, stop, "actor", args.id_actor) as (client, run):
        _play(args, client, run, stop)


def _play(args: Args, client: Client, run: RunStatus, stop: threading.Event) -> None:
    seeds = [derive_seed(args.seed, 1, args.id_actor, env) for env in range(args.nb_env_per_actor)]
    with closing(open_vector(args, seeds, args.id_actor)) as environments:
        spec = environments.spec
        seed = derive_seed(args.seed, 2, args.id_actor)
        policy, where = make_policy(args, spec, seed, client, run, stop)
        limiter = make_limiter(args, policy.spec, run.crews)
        with make_client(args, client, run, stop, lockstep=limiter.synchronize) as actor_client:
            clock = LoopClock(*PARTS)
            rollout = Rollout(args, policy, environments, clock)
            actor = Actor(args, actor_client, rollout, limiter, stop, clock)
            print(f"Actor {args.id_actor} plays {args.entry(args.id_actor).task} on {where}", flush=True)
            actor.play()
