"""The inference server: loads the weights that the learner publishes, and computes for the actors of the run."""

import ssl
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import ExpectedActors, this_host
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.run_client import RunClient, RunOver
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.monitoring.report import EventLog, Reading, Reporter
from rainbow_iqn_apex.programs.agent import make_agent, select_device
from rainbow_iqn_apex.programs.common import CodeWatch, joined, launch_command, run_keys, temporary_environment
from rainbow_iqn_apex.programs.inference.computing import Forms
from rainbow_iqn_apex.programs.inference.following import Follower
from rainbow_iqn_apex.programs.inference.hosting import Alone, Fetch
from rainbow_iqn_apex.programs.inference.listening import Listening, listening, server_tls
from rainbow_iqn_apex.programs.inference.messages import Hello
from rainbow_iqn_apex.programs.inference.server import InferenceServer
from rainbow_iqn_apex.programs.inference.together import Together

_VERSIONS = 3  # of weights that are kept in lockstep


def run_inference(args: Args, stop: threading.Event) -> None:
    """Serve the run of these settings until it is over or this process shall stop."""
    if args.inference == "local":
        raise UserError("--inference: is local, so no actor asks a server; start all processes with --inference server")
    tls = server_tls(args)  # fails now, not after a wait
    with (
        listening(args.inference_host, args.inference_port) as place,
        joined(args, stop, "inference server", args.id_inference) as (client, run),
    ):
        _serve(args, client, run, stop, place, tls)


def _serve(
    args: Args, client: Client, run: RunStatus, stop: threading.Event, place: Listening, tls: ssl.SSLContext | None
) -> None:
    number, keys = args.id_inference, run_keys(args, run)
    servers = InferenceServers(client, args.name, run.run_id, args.redis_shards)
    run_client = RunClient(
        client, replace(keys, inference=True).beside(number), number, stop, run.crews, own_number="--id-inference",
        expected=ExpectedActors(client, keys, 0, partial(launch_command, args)), break_stale=args.abandon_other_run,
        replicas=args.redis_replicas,
    )  # fmt: skip
    with temporary_environment(replace(args, render=False), args.seed) as environment:
        spec = environment.spec
    lockstep = args.synchronize_actors_with_learner
    service = _alone(args, spec, run_client) if lockstep else _together(args, spec)
    server = InferenceServer(service, servers.secret(), place.sockets, each=args.nb_env_per_actor, tls=tls)

    def address() -> Address:
        return Address(number, this_host(), place.path, args.inference_host, place.port, server.clients)

    with closing(server), run_client:
        events = EventLog()
        wanted = service.loaded() if isinstance(service, Together) else None
        follower = Follower(run_client, servers, address, wanted, CodeWatch(events).look)

        def look() -> bool:
            follower.check()
            if isinstance(service, Together) and (found := follower.take()) is not None:
                service.load(*found)
            return stop.is_set()

        reporter = Reporter(run_client.reports(), "inference server", number, lambda: Reading(server.values()), events)
        try:
            with reporter, closing(follower):
                follower.start()
                print(f"Inference server {number} computes for the actors of run {args.name!r}", flush=True)
                server.run(look)
        except RunOver as over:
            print(f"The learner has {over}: inference server {number} leaves", flush=True)
    if stop.is_set():
        raise Stopped


def _together(args: Args, spec: EnvironmentSpec) -> Together:
    """Make a service for actors that do not wait for each other; it has the exploration of all environments."""
    own = replace(args, id_actor=0)
    agent = make_agent(own, spec, select_device(args), learns=False, seed=derive_seed(args.seed, 7, args.id_inference))
    return Together(agent, spec, args.nb_env, _maker(args, spec))


def _alone(args: Args, spec: EnvironmentSpec, client: RunClient) -> Alone:
    """Make a service for lockstep, which has for each client the policy that an actor has in its own process."""
    torch.set_num_threads(1)  # as in actors: sums that several threads share may be rounded in another order
    make = _maker(args, spec)
    blank = make(Hello("", "", 0, evaluates=False))
    return Alone(make, blank.spec, Forms(blank, spec, args.nb_env), _fetcher(client, blank))


def _maker(args: Args, spec: EnvironmentSpec) -> Callable[[Hello], Agent]:
    """Return what makes the policy that a client has in its own process with local inference."""
    device = select_device(args)

    def make(hello: Hello) -> Agent:
        own = replace(args, id_actor=-1 if hello.evaluates else hello.actor)
        seed = derive_seed(args.seed, 5 if hello.evaluates else 2, hello.actor)
        return make_agent(own, spec, device, learns=False, seed=seed)

    return make


def _fetcher(client: RunClient, agent: Agent) -> Fetch:
    """Return what fetches the weights of a version, once for all clients; None while Redis does not hold them.

    As for an actor, newer ones may have replaced them. The checksum tells weights apart: a learner that has gone back
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
