"""The inference server: loads the weights that the learner publishes, and computes for the actors of the run."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.inference_servers import ADDRESS_S, Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import MissingProcesses
from rainbow_iqn_apex.memory.broker.run_client import RunClient, RunOver
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.monitoring.report import EventLog, Reading, Reporter
from rainbow_iqn_apex.programs.agent import make_agent, select_device
from rainbow_iqn_apex.programs.common import CodeWatch, joined, launch_commands, run_keys, temporary_environment
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from rainbow_iqn_apex.programs.inference.server import InferenceServer, Listening, Service, listening
from rainbow_iqn_apex.programs.inference.services import ArraySchema, BatchedPolicy, Fetch, PerClientPolicies

_CERTIFICATE = "INFERENCE_CERT"  # which earlier releases asked for
_VERSIONS = 3  # of weights that are kept in lockstep
_ANNOUNCED_S = ADDRESS_S / 5
_LOOK_S = 1.0  # between two looks at the run's record


def run_inference(args: Args, stop: threading.Event) -> None:
    """Serve the run of these settings until it is over or this process shall stop."""
    if args.inference == "local":
        raise UserError("--inference: is local, so no actor asks a server; start all processes with --inference server")
    if os.environ.get(_CERTIFICATE):
        print(f"{_CERTIFICATE}: has no effect: servers and actors find each other's keys in Redis", flush=True)
    with (
        listening(args.inference_host, args.inference_port) as place,  # fails now, not after a wait
        joined(args, stop, "inference server", args.id_inference) as (client, run),
    ):
        _serve(args, client, run, stop, place)


def _serve(args: Args, client: Client, run: RunStatus, stop: threading.Event, place: Listening) -> None:
    number = args.id_inference
    keys = run_keys(args, run)
    run_client = RunClient(
        client,
        replace(keys, inference=True).beside(number),
        number,
        stop,
        run.crews,
        own_number="--id-inference",
        missing=MissingProcesses(client, keys, (), launch_commands(args)),
        break_stale=args.abandon_other_run,
        replicas=args.redis_replicas,
    )
    with temporary_environment(replace(args, render=False), args.seed) as environment:
        spec = environment.spec
    service = (_per_client if args.synchronize_actors_with_learner else _batched)(args, spec, run_client)
    server = InferenceServer(service, place.socket, each=args.nb_env_per_actor)
    with run_client:
        events = EventLog()
        servers = InferenceServers(client, args.name, run.run_id, args.redis_shards)
        address = Address(number, this_host(), place.local_port, args.inference_host, place.port, place.key, 0)
        sync = RunSync(run_client, servers, address, server, service, CodeWatch(events))

        def look() -> bool:
            sync.load()
            return stop.is_set()

        reporter = Reporter(run_client.reports(), "inference server", number, lambda: Reading(server.values()), events)
        try:
            with reporter, closing(sync):
                sync.start()
                print(f"Inference server {number} computes for the actors of run {args.name!r}", flush=True)
                server.run(look)
        except RunOver as over:
            print(f"The learner has {over}: inference server {number} leaves", flush=True)
    if stop.is_set():
        raise Stopped


def _batched(args: Args, spec: EnvironmentSpec, _: RunClient) -> BatchedPolicy:
    """Make a service for actors that do not wait for each other; it has the exploration of all environments."""
    own = replace(args, id_actor=0)
    agent = make_agent(own, spec, select_device(args), learns=False, seed=derive_seed(args.seed, 7, args.id_inference))
    return BatchedPolicy(agent, spec, args.nb_env, _maker(args, spec))


def _per_client(args: Args, spec: EnvironmentSpec, client: RunClient) -> PerClientPolicies:
    """Make a service for lockstep, which has for each client the policy that an actor has in its own process."""
    torch.set_num_threads(1)  # as in actors: sums that several threads share may be rounded in another order
    make = _maker(args, spec)
    blank = make(ClientId(0))
    return PerClientPolicies(make, blank.spec, ArraySchema(blank, spec, args.nb_env), fetcher(client, blank))


def _maker(args: Args, spec: EnvironmentSpec) -> Callable[[ClientId], Agent]:
    """Return what makes the policy that a client has in its own process with local inference."""
    device = select_device(args)

    def make(who: ClientId) -> Agent:
        own = replace(args, id_actor=-1 if who.evaluates else who.actor)
        seed = derive_seed(args.seed, 5 if who.evaluates else 2, who.actor)
        return make_agent(own, spec, device, learns=False, seed=seed)

    return make


def fetcher(client: RunClient, agent: Agent) -> Fetch:
    """Return what fetches the weights of a version, once for all clients; None while Redis does not hold them.

    As for an actor, newer ones may have replaced them. The checksum distinguishes weights: a learner that has gone back
    to its checkpoint publishes versions again.
    """
    kept: dict[bytes, tuple[dict[str, Tensor], int]] = {}
    wanted = agent.loaded()

    def fetch(version: int) -> tuple[dict[str, Tensor], int] | None:
        checksum = client.weights_checksum(version)
        if checksum not in kept or kept[checksum][1] < version:  # a replica may have had older ones
            packet = client.newest_packet(version, weights_packet.most_bytes(wanted))
            if packet is None:
                return None
            kept[checksum] = weights_packet.weights_for(wanted, packet), int(packet.meta["version"])
            for old in list(kept)[:-_VERSIONS]:
                del kept[old]
        return kept[checksum] if kept[checksum][1] >= version else None

    return fetch


class RunSync(threading.Thread):
    """A thread that announces a server's address, and fetches the newest weights of a service that batches."""

    def __init__(
        self,
        client: RunClient,
        servers: InferenceServers,
        address: Address,
        server: InferenceServer,
        service: Service,
        code: CodeWatch,
    ) -> None:
        super().__init__(name="weights", daemon=True)
        self._error: BaseException | None = None
        self._client = client
        self._servers = servers
        self._service = service if isinstance(service, BatchedPolicy) else None
        self._address = address
        self._server = server
        self._code = code
        self._found: deque[tuple[dict[str, Tensor], int]] = deque(maxlen=1)
        self._left = threading.Event()

    def load(self) -> None:
        """Load weights that were fetched into the service, in the service's thread.

        Raises what has ended this thread: RunOver or Stopped where that is in good order.
        """
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise Stopped from self._error
        if self._service is not None and self._found:
            self._service.load(*self._found.pop())

    def close(self) -> None:
        """Stop, and take the address back."""
        self._left.set()
        self.join()
        with suppress(BrokerError):
            self._servers.withdraw(self._address.number)

    def run(self) -> None:
        """Follow the run until closed."""
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error

    def _follow(self) -> None:
        wanted = None if self._service is None else self._service.loaded()
        version = -1
        next_look = 0.0
        next_word = 0.0
        self._servers.enlist(self._address.number)  # so that it is seen while it waits for weights, too
        while not self._left.is_set():
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK_S
                self._code.look(self._client.record())
                self._client.lease.check()
            if version >= 0 and now >= next_word:
                next_word = now + _ANNOUNCED_S
                self._servers.announce(replace(self._address, clients=self._server.clients))
            newest = self._client.wait_for_version(0)
            if newest == version or wanted is None:
                version = newest
                self._client.wait_a_moment(newest + 1)
                continue
            packet = self._client.weights(newest, weights_packet.most_bytes(wanted), or_newest=True)
            version = int(packet.meta["version"])
            self._found.append((weights_packet.weights_for(wanted, packet), version))
