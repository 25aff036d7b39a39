"""What actors and evaluation actors have in common: how they reach their run, and report while they play."""

import threading
from abc import ABC, abstractmethod
from functools import partial

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.leases import ExpectedActors
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.run_client import RunOver
from rainbow_iqn_apex.monitoring.report import EventLog, Reporter, Role
from rainbow_iqn_apex.monitoring.terminal.pictures import process_picture
from rainbow_iqn_apex.monitoring.terminal.screen import drawn
from rainbow_iqn_apex.monitoring.view import Viewer
from rainbow_iqn_apex.programs.actor.gauges import ActorGauges
from rainbow_iqn_apex.programs.common import CodeWatch, failure_of, launch_command, run_keys


def make_client(args: Args, client: Client, run: RunStatus, stop: threading.Event, *, lockstep: bool) -> ActorClient:
    """Make the client; in lockstep all wait for each other, so its roll call names missing actors, too."""
    awaited, keys, evaluates = args.nb_actor if lockstep else 0, run_keys(args, run), args.id_eval_actor >= 0
    return ActorClient(
        client,
        args.name,
        run.run_id,
        args.id_eval_actor if evaluates else args.id_actor,
        stop,
        run.crews if lockstep else (),
        evaluation=evaluates,
        expected=ExpectedActors(client, keys, awaited, partial(launch_command, args), partial(failure_of, client)),
        break_stale=args.abandon_other_run,
        shards=args.redis_shards,
        replicas=args.redis_replicas,
    )


class Player(ABC):
    """Plays in `nb_env` environments for a run."""

    def __init__(self, args: Args, client: ActorClient, nb_env: int, stop: threading.Event, clock: LoopClock) -> None:
        self._args = args
        self._client = client
        self._stop = stop
        self._clock = clock
        self._version = -1  # of the weights by which it acts
        self.gauges = ActorGauges(client, nb_env, args.T_max, clock)
        self.events = EventLog()
        self.viewer = Viewer()
        self._code = CodeWatch(self.events)

    @abstractmethod
    def run(self) -> None:
        """Play until the run is over (RunOver) or the process shall stop (Stopped)."""

    def look(self) -> RunStatus:
        """Return the run's record, of which the gauges and the watch of the code take note."""
        record = self.gauges.record = self._client.record()
        self._code.look(record)
        return record

    def play(self) -> None:
        """Play until the run is over, and report meanwhile; raises Stopped if the process shall stop before."""
        args, client = self._args, self._client
        role: Role = "evaluation actor" if client.keys.evaluation else "actor"
        try:
            with (
                drawn(lambda report: process_picture(report, args.name, args.described)) as draw,
                Reporter(client.reports(), role, client.actor, self.gauges.read, self.events, draw, viewer=self.viewer),
            ):
                self.run()
        except RunOver as over:
            print(f"The learner has {over}: {client.title} leaves", flush=True)
