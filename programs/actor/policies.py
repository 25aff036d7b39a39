"""What an actor acts by: a policy in its own process, whose weights come from the learner through Redis.

A policy that computes elsewhere is made here, too. It has no tensors: no weights are fetched for it, and nothing here
or in the actor's other modules imports torch for it.
"""

import threading
from typing import TYPE_CHECKING, NamedTuple

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import InferenceServers
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.run_client import follow
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec

if TYPE_CHECKING:
    from torch import Tensor


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
