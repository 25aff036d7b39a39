"""What an actor acts by: a policy in its own process, whose weights come from the learner through Redis.

A policy that computes elsewhere is made here, too: it has no tensors, so no weights are fetched for it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.programs.agent import make_agent


class Weights(NamedTuple):
    """Published weights, as `Policy.load` takes them."""

    tensors: dict[str, Tensor]
    version: int


def make_policy(args: Args, environment: EnvironmentSpec, device: torch.device, seed: int) -> Policy:
    """Make the policy of the settings; `seed` fixes all that it draws."""
    return make_agent(args, environment, device, learns=False, seed=seed)


def fetch_weights(client: ActorClient, policy: Policy, version: int, *, or_newest: bool) -> Weights:
    """Return the weights of a version, or of a newer one where `or_newest`; none for a policy without tensors."""
    loaded = policy.loaded()
    if not loaded:
        return Weights({}, version)
    packet = client.weights(version, weights_packet.most_bytes(loaded), or_newest=or_newest)
    return Weights(weights_packet.weights_for(loaded, packet), int(packet.meta["version"]))
