"""REINFORCE with a learned baseline (Williams 1992, 10.1007/BF00992696): the smallest agent of this house.

It takes turns with its actors: they play a round, it makes one update of all that they played, and so on.
Letters: T rows of a sequence, B batch, E environments, A actions.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.interface import Agent, Setup, Update
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.ops.masks import masked_mean
from rainbow_iqn_apex.agents.ops.vtrace import Thresholds, vtrace
from rainbow_iqn_apex.agents.optimisation import Adam, Objective
from rainbow_iqn_apex.agents.policy import DRAWN, Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.randomness import RandomState
from rainbow_iqn_apex.agents.reinforce.options import ReinforceOptions
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows


class PolicyValueNetwork(Network):
    """Log-probabilities [..., A] of the actions and the value [...] of observations."""

    def __init__(self, inputs: int, hidden_size: int, nb_actions: int) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, hidden_size)
        self.heads = nn.Linear(hidden_size, nb_actions + 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Read observations [..., inputs]."""
        output = self.heads(torch.tanh(self.body(obs)))
        return functional.log_softmax(output[..., 1:], -1), output[..., 0]


class Reinforce(Agent):
    """The agent of `--agent reinforce`, for observations that are numbers."""

    buffer = "queue"  # each sequence is learned from once

    def __init__(self, setup: Setup) -> None:
        options = setup.own
        observation = setup.environment.observation
        assert isinstance(options, ReinforceOptions)
        if observation.is_picture:
            raise UserError("--agent reinforce: reads numbers, and this environment shows pictures; choose impala")
        length = options.unroll_length
        self.spec = ChunkSpec(1, 0, length, 1, length, length, prioritised=False)
        self.generator = setup.generator
        self._discount = setup.learning.discount
        self._axes = len(observation.shape)
        self._scale = observation.scale
        self._stochastic = options.stochastic
        network = PolicyValueNetwork(math.prod(observation.shape), options.hidden_size, setup.nb_actions)
        self.network = network.to(self.generator.device)
        self._learned = list(self.network.parameters())
        adam = Adam(self._learned, options.lr_REINFORCE)
        self._step = setup.optimisation(adam)
        self._ranks = setup.ranks
        self.parts = {"model": self.network, "generator": RandomState(self.generator), "optimiser": adam}

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:  # noqa: ARG002 - all explore alike
        """Draw actions from the policy; nothing is kept from one row to the next."""
        log_policy, _ = self.network(self._inputs(torch.from_numpy(rows.obs)))  # [E, A]
        actions = torch.multinomial(log_policy.exp(), 1, generator=self.generator).squeeze(1)  # [E]
        chosen = log_policy.argmax(1) if step is None and not self._stochastic else actions
        return ActorOutput(chosen.cpu().numpy(), {}, self.version), state

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        return ActingProtocol(DRAWN, drawn=self._stochastic)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:  # noqa: ARG002 - it keeps nothing
        """Return the policy and the value."""
        log_policy, value = self.network(self._inputs(torch.from_numpy(rows.obs)))  # [1, A], [1]
        return Inspection("probabilities", log_policy[0].exp().cpu().numpy(), value.item())

    def update(self, batch: Batch, progress: float | Tensor) -> Update:  # noqa: ARG002 - nothing is annealed
        """Make one step of Adam on -log pi(a) times the advantage, and on the values' squared errors."""
        log_policy, value = self.network(self._inputs(batch.obs))  # [T + 1, B, A], [T + 1, B]
        log_pi = log_policy[:-1].gather(2, batch.action[:-1].long().unsqueeze(2)).squeeze(2)  # [T, B]
        rows = (value.detach(), batch.reward, batch.discount, batch.step_type)
        target = vtrace(torch.zeros_like(log_pi), *rows, self._discount, Thresholds())  # on-policy: plain returns
        losses = 0.5 * (target.value - value[:-1]).square() - log_pi * target.advantage  # [T, B]
        loss = torch.where(target.learnable, losses, 0).sum() / self._ranks.mean(target.learnable.sum())
        self._step([Objective(loss, self._learned)])
        mean = masked_mean(value[:-1].detach(), target.learnable, self._ranks)
        return Update(None, {"value": mean, "loss": loss.detach()})

    def _inputs(self, obs: Tensor) -> Tensor:
        """Flatten the observations behind their leading axes, of time and batch; bytes become fractions."""
        return self._scale * obs.to(self.generator.device).float().flatten(obs.dim() - self._axes)
