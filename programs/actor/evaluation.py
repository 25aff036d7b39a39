"""The evaluation actor: plays whole episodes as the agent evaluates, and sends their scores to the learner.

It plays each episode with the newest weights of its beginning. None of its rows leave it, and no process waits. It
keeps no state but the number of its last message: an episode under way is lost with its process.
"""

import tempfile
import threading
import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import PolicyLostError, Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import counted, one_line
from rainbow_iqn_apex.environments.interface import Environment
from rainbow_iqn_apex.environments.registry import evaluated_entry
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import FilmStore
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.messages import Episode
from rainbow_iqn_apex.memory.rows import Arrays, Rows
from rainbow_iqn_apex.monitoring.video import (
    HEADER_BYTES,
    Film,
    FilmError,
    FilmInfo,
    TimeLapse,
    decode_info,
    encode_film,
)
from rainbow_iqn_apex.programs.actor.player import Player, fetch_weights, make_client, make_policy
from rainbow_iqn_apex.programs.actor.rollout import make_view
from rainbow_iqn_apex.programs.common import IntervalLog, joined, temporary_environment
from rainbow_iqn_apex.programs.evaluation.episode import begin_anew, play_episode
from rainbow_iqn_apex.programs.evaluation.recording import EVALUATIONS, try_to_record
from rainbow_iqn_apex.programs.machine import check_actor

if TYPE_CHECKING:
    from torch import Tensor

_MOST_UNREAD = 100  # episodes in Redis that the learner has not read, as while it is not running
_MOST_EPISODES = SCORE_EPISODES  # with the same weights: where episodes take milliseconds, more add nothing
PARTS = ("other", "pull", "play", "send", "wait")  # of its clock
_LOOK_S = 1.0  # between looks at the run's record during an episode

_NEWEST_S = 60.0  # between two films of the newest episode
_AGAIN_S = 60.0  # after a film could not be written


class Filmer:
    """Films one episode after the other.

    It holds its own best film, and writes it again if Redis has lost it, or another actor has just written a worse one.
    """

    def __init__(self, store: FilmStore, actor: int) -> None:
        self._store = store
        self._actor = actor
        self._lapse = TimeLapse()
        self._pictures_per_second = 1.0
        self._next_newest = self._next_try = 0.0
        self._best: tuple[float, bytes] | None = None  # score and film
        self._has_printed = False

    def begin(self, environment: Environment) -> TimeLapse:
        """Return what takes the pictures of the episode that begins."""
        self._lapse = TimeLapse(blinks=getattr(environment, "blinks", False))
        self._pictures_per_second = environment.pictures_per_second
        return self._lapse

    def keep(self, record: EpisodeRecord, began: RunStatus, version: int) -> None:
        """Write the film of the episode that has ended where it belongs.

        The run was `began` when the weights of this version were pulled.
        """
        if (now := time.monotonic()) < self._next_try:
            return
        score = float(record.score_saber)
        film = b""
        is_best = self._best is None or score > self._best[0]
        if is_best or now >= self._next_newest:
            film = self._encode(record, began, version)
        if is_best:
            self._best = score, film
        try:
            self._write(film, now)
        except BrokerError as error:
            self._next_try = now + _AGAIN_S
            if not self._has_printed:  # one line in the life of a process
                self._has_printed = True
                print(f"Not shown: Redis takes no film of an episode ({one_line(error)})", flush=True)

    def _encode(self, record: EpisodeRecord, began: RunStatus, version: int) -> bytes:
        pictures = self._lapse.pictures()
        count, height, width, _ = pictures.shape
        info = FilmInfo(
            score=float(record.score_saber),
            at=time.time(),
            rate=self._pictures_per_second / self._lapse.per_step,
            step=began.t_actors,
            version=version,
            actor=self._actor,
            episode=record.episode,
            stride=self._lapse.stride,
            pictures=count,
            height=height,
            width=width,
        )
        return encode_film(Film(info, pictures))

    def _write(self, film: bytes, now: float) -> None:
        """Write the film as the newest if one is due, and the best film if Redis has a worse one or none."""
        if now >= self._next_newest:
            self._next_newest = now + _NEWEST_S
            self._store.write("newest", film)
        there = self._best_there()
        if self._best and (there is None or self._best[0] > there):
            self._store.write("best", self._best[1])

    def _best_there(self) -> float | None:
        """Return the score of the best film in Redis; None if there is none, or it is damaged."""
        found = self._store.read(["best"], HEADER_BYTES)
        try:
            return decode_info(found["best"]).score if found else None
        except FilmError:
            return None

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


class EvaluationActor(Player):
    """Plays episode after episode, each from a seed of its own; its number in the run decides that seed."""

    def __init__(
        self, args: Args, client: ActorClient, policy: Policy, stop: threading.Event, filmer: Filmer | None = None
    ) -> None:
        super().__init__(args, client, 1, stop, LoopClock(*PARTS))
        self._policy = policy
        self._filmer = filmer
        self._next_look = 0.0
        self._weights: dict[str, Tensor] = {}
        self._began = RunStatus("", "running", {}, 0, 0)  # as it was when these weights were pulled
        self._episodes = 0  # played with these weights
        self._scores: list[float] = []  # since the last log lines

    def run(self) -> None:
        """Play until the run is over (RunOver) or the process shall stop (Stopped)."""
        waiting.book_on(self._clock)
        self._client.wait_for_living_learner()
        self._client.written_record()
        self._client.saved()  # finds the number of the last message
        log = IntervalLog(self._client.title, self._args, 0)
        while True:
            with self._clock.part("pull"):
                self._pull()
            try:
                with self._clock.part("play"):
                    record = self._play()
            except PolicyLostError:  # the episode begins anew, with the newest weights
                continue
            with self._clock.part("send"):
                self._send(record)
            T = self._began.t_actors
            if log.passes(T, played=T, trained=self._began.t_learner):
                mean = sum(self._scores) / len(self._scores)
                print(f"Mean score {mean:.2f} of {counted(len(self._scores), 'evaluation episode')}", flush=True)
                self._scores.clear()

    def is_set(self) -> bool:
        """Return whether the episode under way shall stop; now and then raise RunOver if the run is over."""
        self.gauges.steps += 1
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_S
            self._client.lease.check()
            self.look()
        return self._stop.is_set()

    def _pull(self) -> None:
        """Wait until an episode is worth playing, and take over the newest weights."""
        reporter = self._client.wait_reporter(f"the learner to read the scores of {self._client.title}")
        while self._client.unread() >= _MOST_UNREAD:
            self._client.pause(reporter)
            self._stop.wait(0.2)
        newest = self._client.wait_for_version(0)
        reporter = self._client.wait_reporter("newer weights to evaluate")
        while newest == self._version and self._episodes >= _MOST_EPISODES:
            self._client.wait_for_change(newest + 1, reporter)
            newest = self._client.newest_version()
        if newest != self._version:  # also older ones, of a learner that goes on from its checkpoint
            self._weights, version = fetch_weights(self._client, self._policy, max(0, newest), or_newest=True)
            self._begin_with(version)

    def _begin_with(self, version: int) -> None:
        self._version = version
        self._episodes = 0
        self._began = self.gauges.record = self._client.written_record()
        self.gauges.version = self._version

    def _play(self) -> EpisodeRecord:
        number = self._client.sequence
        args = self._args
        seed = derive_seed(args.seed, 5, args.id_eval_actor, number)
        begin_anew(self._policy, self._weights, self._version, seed)
        if self._policy.version != self._version:  # those that an inference server had
            self._begin_with(self._policy.version)
        entry = evaluated_entry(args.id_eval_actor, number)
        film = EVALUATIONS if self._filmer else ""
        with temporary_environment(args, seed, entry, recorded_by=film, evaluation=True) as environment:
            camera = self._filmer.begin(environment) if self._filmer else None
            watch = partial(self._watch, environment.spec)
            return play_episode(self._policy, environment, number, self, camera=camera, watch=watch)

    def _watch(self, spec: EnvironmentSpec, rows: Rows, state: Arrays) -> None:
        self.viewer.give(lambda: make_view(self._policy, spec, rows, state, self.gauges.steps, self._version))

    def _send(self, record: EpisodeRecord) -> None:
        """Append the episode to this actor's log; the learner takes the episode's number from its place there."""
        values = {name: value for name, value in asdict(record).items() if name not in ("actor", "env", "episode")}
        steps = {"T_actors": self._began.t_actors, "T_learner": self._began.t_learner}
        self._client.commit([Episode(values | steps | {"version": self._version})], b"")
        if self._filmer:
            self._filmer.keep(record, self._began, self._version)
        self._episodes += 1
        self.gauges.finish(record.score_saber)
        self._scores.append(record.score_saber)


def run_evaluation_actor(args: Args, stop: threading.Event) -> None:
    """Evaluate the run of these settings until it is over or this process shall stop."""
    if args.record_evaluations:
        try_to_record(args, EVALUATIONS, Path(tempfile.gettempdir()))  # fails now, not after a wait
    check_actor(args)
    with joined(args, stop, "evaluation actor", args.id_eval_actor) as (client, run):
        _evaluate(args, client, run, stop)


def _evaluate(args: Args, client: Client, run: RunStatus, stop: threading.Event) -> None:
    with temporary_environment(replace(args, render=False), args.seed) as environment:
        spec = environment.spec
    policy, where = make_policy(args, spec, derive_seed(args.seed, 5, args.id_eval_actor), client, run, stop)
    with (
        make_client(args, client, run, stop, lockstep=False) as actor_client,
        _filmer(args, client, run.run_id) as filmer,
    ):
        print(f"{actor_client.title.capitalize()} plays {args.task} on {where}", flush=True)
        actor = EvaluationActor(args, actor_client, policy, stop, filmer)
        try:
            actor.play()
        except Stopped:
            print(f"{actor_client.title.capitalize()} stops, and leaves out the episode under way", flush=True)
            raise


def _filmer(args: Args, client: Client, run_id: str) -> AbstractContextManager[Filmer | None]:
    if not args.record_evaluations:
        return nullcontext()
    return closing(Filmer(FilmStore(client, args.name, run_id), args.id_eval_actor))
