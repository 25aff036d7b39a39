"""What actors and evaluation actors have in common: their policy, their client, and their reports while they play."""

import threading
from abc import ABC, abstractmethod
from collections import deque
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock, Shares
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import InferenceServers
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import MissingProcesses
from rainbow_iqn_apex.memory.broker.run_client import RunOver, follow
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.messages import Episode, Message
from rainbow_iqn_apex.monitoring.metrics import Rate
from rainbow_iqn_apex.monitoring.report import EventLog, Reading, Reporter, Role
from rainbow_iqn_apex.monitoring.terminal.pictures import process_picture
from rainbow_iqn_apex.monitoring.terminal.screen import drawn
from rainbow_iqn_apex.monitoring.view import Viewer
from rainbow_iqn_apex.programs.common import CodeWatch, launch_commands, run_keys

if TYPE_CHECKING:
    from torch import Tensor

PARTS = ("other", "act", "environment", "pack", "send", "pull", "wait")  # of an actor's clock
_RATE_S = 30.0  # over which the speed is averaged
_REMAINING_S = 600.0


class ActorGauges:
    """Holds what an actor counts; `read` belongs to another thread than the rest."""

    def __init__(self, client: ActorClient, nb_env: int, T_max: int, clock: LoopClock) -> None:
        self._client = client
        self._nb_env = nb_env
        self._T_max = T_max
        self._shares = Shares(clock)
        self._speed = Rate(_RATE_S)
        self._learned = Rate(_REMAINING_S)
        self.steps = 0  # of each environment
        self.episodes = 0
        self.scores: deque[float] = deque(maxlen=SCORE_EPISODES)
        self.record: RunStatus | None = None  # of the run, as this actor has last read it
        self.version = -1

    def count(self, messages: list[Message]) -> None:
        """Count one agent step in each environment, and the episodes among its messages."""
        self.steps += 1
        for message in messages:
            if isinstance(message, Episode):
                self.finish(float(message.record["score_saber"]))

    def finish(self, score: float) -> None:
        """Count an episode of this score."""
        self.episodes += 1
        self.scores.append(score)

    def read(self) -> Reading:
        """Return all metrics of this moment."""
        made = self.steps * self._nb_env
        values: dict[str, float] = {
            "actor/steps": made,
            "actor/episodes": self.episodes,
            "actor/version": max(0, self.version),
            "actor/unread": max(0, self._client.sequence - self._client.known_read),
        }
        if (speed := self._speed.per_second(made)) is not None:
            values["actor/steps_per_second"] = speed
        if scores := list(self.scores):
            values["rollout/ep_rew_mean"] = fmean(scores)
        shares = {f"share/{part}": share for part, share in self._shares.read().items()}
        return Reading(values | self._progress() | shares)

    def _progress(self) -> dict[str, float]:
        """Return how far the run is, as its record has it."""
        if self.record is None:
            return {}
        learned = self.record.t_learner
        values = {
            "time/total_timesteps": self.record.t_actors,
            "time/progress": min(1.0, learned / self._T_max),
            "train/timesteps": learned,
        }
        if learned and (speed := self._learned.per_second(learned)):
            values["time/remaining"] = max(0, self._T_max - learned) / speed
        return values


def make_client(args: Args, client: Client, run: RunStatus, stop: threading.Event, *, lockstep: bool) -> ActorClient:
    """Make the client; in lockstep all wait for each other, so its roll call names missing actors, too."""
    awaited = args.nb_actor if lockstep else 0
    keys = run_keys(args, run)
    evaluates = args.id_eval_actor >= 0
    return ActorClient(
        client,
        args.name,
        run.run_id,
        args.id_eval_actor if evaluates else args.id_actor,
        stop,
        run.crews if lockstep else (),
        evaluation=evaluates,
        missing=MissingProcesses(client, keys, range(awaited), launch_commands(args)),
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
        args = self._args
        client = self._client
        role: Role = "evaluation actor" if client.keys.evaluation else "actor"
        try:
            with (
                drawn(lambda report: process_picture(report, args.name, args.described)) as draw,
                Reporter(client.reports(), role, client.actor, self.gauges.read, self.events, draw, viewer=self.viewer),
            ):
                self.run()
        except RunOver as over:
            print(f"The learner has {over}: {client.title} leaves", flush=True)


class Weights(NamedTuple):
    """Published weights, as `Policy.load` takes them."""

    tensors: "dict[str, Tensor]"
    version: int


class PlacedPolicy(NamedTuple):
    """A policy, and where it computes, as an actor's first line names the place."""

    policy: Policy
    where: str


def load(args: Args) -> None:
    """Import what makes the policy of the settings; a launcher does so, as it takes seconds."""
    if args.inference == "local":
        import rainbow_iqn_apex.programs.agent  # noqa: F401 - as in `make_policy`


def make_policy(
    args: Args, environment: EnvironmentSpec, seed: int, client: Client, run: RunStatus, stop: threading.Event
) -> PlacedPolicy:
    """Make the policy of the settings; `seed` fixes all that it draws. Raises UserError if there is no such device.

    A policy on inference servers draws there; this waits until one is there, and raises Stopped or RunOver meanwhile.
    """
    if args.inference != "local":
        return PlacedPolicy(_remote(args, environment, client, run, stop), "inference servers")
    # Not at the top of the file: an actor whose policy computes elsewhere shall do without torch.
    import torch

    from rainbow_iqn_apex.programs.agent import make_agent, select_device

    torch.set_num_threads(1)  # several actors share a machine, and small batches gain nothing from more
    device = select_device(args)
    return PlacedPolicy(make_agent(args, environment, device, learns=False, seed=seed), str(device))


def _remote(args: Args, environment: EnvironmentSpec, client: Client, run: RunStatus, stop: threading.Event) -> Policy:
    # Not at the top of the file: an actor with a policy of its own shall do without ZeroMQ.
    from rainbow_iqn_apex.programs.inference.client import RemotePolicy, ServerFinder
    from rainbow_iqn_apex.programs.inference.exchange import ClientId

    def check() -> None:
        if stop.is_set():
            raise Stopped
        follow(client, Keys(args.name, run.run_id, shards=args.redis_shards))

    evaluates = args.id_eval_actor >= 0
    who = ClientId(args.id_eval_actor if evaluates else args.id_actor, evaluates)
    servers = InferenceServers(client, args.name, run.run_id, args.redis_shards)
    first = max(0, args.id_actor) * args.nb_env_per_actor
    return RemotePolicy(ServerFinder(servers, who, check), first, environment.action)


def fetch_weights(client: ActorClient, policy: Policy, version: int, *, or_newest: bool) -> Weights:
    """Return the weights of a version, or of a newer one where `or_newest`; none for a policy without tensors."""
    loaded = policy.loaded()
    if not loaded:
        return Weights({}, version)
    from rainbow_iqn_apex.memory import weights_packet  # with torch, which a policy of tensors has imported

    packet = client.weights(version, weights_packet.most_bytes(loaded), or_newest=or_newest)
    return Weights(weights_packet.weights_for(loaded, packet), int(packet.meta["version"]))
