"""IMPALA: an actor-critic that corrects for the lag of its actors by V-trace (Espeholt et al. 2018, arXiv 1802.01561).

Actions are drawn from the policy; a chunk records the logits that they were drawn with. Each chunk is learned from
once, the oldest first. Letters: T rows of an unroll, B batch, E environments, A actions.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.impala.options import ImpalaOptions
from agents.interface import ActorOutput, Inspection, Network, Setup, Stateful, Update
from agents.networks.core import Core, CoreSpec, Inputs, Memory
from agents.ops.clipping import clip_reward
from agents.ops.traces import Targets
from agents.ops.vtrace import Thresholds, vtrace
from agents.optimisers import RMSProp
from agents.randomness import RandomState
from agents.sequences import SequenceAgent, core_spec, state_fields
from memory.batch import Batch
from memory.chunk import ChunkSpec
from memory.environment_spec import Field
from memory.rows import Arrays, Rows

_EXPONENT_SPEED = 10.0  # of the learned weight of the entropy: exp(10 p)


class PolicyValueNetwork(Network):
    """Logits of the policy and the value of the state."""

    def __init__(self, spec: CoreSpec, nb_actions: int) -> None:
        super().__init__()
        self.core = Core(spec)
        self.policy = nn.Linear(self.core.nb_features, nb_actions)
        self.value = nn.Linear(self.core.nb_features, 1)

    def forward(self, inputs: Inputs, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Return log-probabilities [T, B, A], values [T, B] and the memory after the sequence."""
        features, memory = self.core(inputs, memory)
        return functional.log_softmax(self.policy(features), 2), self.value(features).squeeze(2), memory


class EntropyCost(nn.Module):
    """The weight of the entropy, learned so that the entropy comes to a target."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(start).clamp(min=1e-8).log() / _EXPONENT_SPEED)

    def forward(self) -> Tensor:
        """Return the present weight, 0-d."""
        return (_EXPONENT_SPEED * self.exponent).exp()


class Impala(SequenceAgent):
    """The agent of `--agent impala`."""

    buffer = "queue"

    def __init__(self, setup: Setup) -> None:
        options = setup.own
        assert isinstance(options, ImpalaOptions)
        self._options, self._learning = options, setup.learning
        self.generator, self._device = setup.generator, setup.generator.device
        length = options.unroll_length
        sizes = core_spec(setup, options.architecture, options.hidden_size, options.lstm_size, length)
        logits = (("log_policy", Field((setup.nb_actions,), "float32")),)
        state = state_fields(options.lstm_size, setup.environment.action)
        stack = setup.learning.history_length
        self.spec = ChunkSpec(stack, 0, length, 1, length, length, logits, state, prioritised=False)
        self.network = PolicyValueNetwork(sizes, setup.nb_actions).to(self._device)
        self.core = self.network.core
        self.parts: dict[str, Stateful] = {"model": self.network, "generator": RandomState(self.generator)}
        self._thresholds = Thresholds(
            options.rho_threshold, options.c_threshold, options.advantage_threshold, options.trace_lambda
        )
        if setup.learns:
            self._entropy_cost = EntropyCost(options.entropy_cost).to(self._device)
            parameters = [*self.network.parameters()]
            if options.target_entropy:
                parameters += self._entropy_cost.parameters()
                self.parts["entropy_cost"] = self._entropy_cost
            self._optimiser = RMSProp(
                parameters, options.lr_IMPALA, options.rms_eps_IMPALA, options.rms_decay_IMPALA, self._device
            )
            self.parts["optimiser"] = self._optimiser

    # --- acting ---

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None) -> tuple[ActorOutput, Arrays]:
        """Draw actions from the policy; in an evaluation take the likeliest, unless it is `stochastic`."""
        inputs, memory, stack = self.acting_inputs(rows, state)
        log_policy, _, memory = self.network(inputs, memory)
        log_policy = log_policy[0]  # [E, A]
        if step is None and not self._options.stochastic:
            actions = log_policy.argmax(1)  # [E]
        else:
            actions = torch.multinomial(log_policy.exp(), 1, generator=self.generator).squeeze(1)
        output = ActorOutput(actions.cpu().numpy(), {"log_policy": log_policy.cpu().numpy()})
        return output, self.next_state(stack, actions, memory)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:
        """Return the policy and the value."""
        inputs, memory, _ = self.acting_inputs(rows, state)
        log_policy, value, _ = self.network(inputs, memory)
        return Inspection("probabilities", log_policy[0, 0].exp().cpu().numpy(), value.item())

    def shown_reward(self, reward: Tensor) -> Tensor:
        """Return rewards as the loss counts them."""
        if self._options.reward_transform == "soft-asymmetric":
            squashed = 5 * torch.tanh(reward / 5)
            return torch.where(reward < 0, 0.3 * squashed, squashed)
        return clip_reward(reward, self._learning.reward_clip)

    # --- learning ---

    def update(self, batch: Batch, progress: float | Tensor) -> Update:
        """Make one step of RMSProp on the losses of an unroll's rows at which an action was chosen."""
        inputs, memory = self.learning_inputs(batch)
        log_policy, value, _ = self.network(inputs, memory)  # [T + 1, B, A], [T + 1, B]
        loss, metrics = self._loss(batch, log_policy[:-1], value)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        metrics["gradient_norm"] = self._clip_gradients()
        self._optimiser.anneal(progress)
        self._optimiser.step()
        return Update(None, {name: metric.detach() for name, metric in metrics.items()})

    def _clip_gradients(self) -> Tensor:
        limit = self._learning.max_gradient_norm or float("inf")
        return nn.utils.clip_grad_norm_(self.network.parameters(), limit)

    def _loss(self, batch: Batch, log_policy: Tensor, value: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, from log_policy [T, B, A] and value [T + 1, B], and the metrics."""
        options, rows = self._options, slice(self.spec.prefix, self.spec.prefix + self.spec.length)
        action = batch.action[rows].long().unsqueeze(2)  # [T, B, 1]
        log_pi = log_policy.gather(2, action).squeeze(2)  # [T, B]
        log_mu = batch.rows["extras.log_policy"][rows].gather(2, action).squeeze(2)  # [T, B]
        targets = self._targets(batch, log_pi - log_mu, value)
        entropy = -(log_policy.exp() * log_policy).sum(2)  # [T, B]
        kept = targets.learnable
        policy_loss = -self._reduce(log_pi * targets.advantage, kept)
        value_loss = 0.5 * self._reduce((targets.value - value[:-1]).square(), kept)
        mean_entropy = _mean(entropy, kept)
        loss = policy_loss + options.baseline_cost * value_loss
        if options.kl_cost:
            loss = loss + options.kl_cost * self._reduce(log_mu - log_pi, kept)
        metrics = {"value": _mean(value[:-1], kept), "entropy": mean_entropy}
        cost: Tensor | float = options.entropy_cost
        if options.target_entropy:
            cost = metrics["entropy_cost"] = self._entropy_cost().detach()
            loss = loss + self._entropy_cost.exponent * (mean_entropy.detach() - options.target_entropy)
        loss = loss - cost * self._reduce(entropy, kept)
        return loss, metrics | {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}

    def _targets(self, batch: Batch, log_ratio: Tensor, value: Tensor) -> Targets:
        rows = slice(self.spec.prefix, None)
        reward = self.shown_reward(batch.reward[rows])  # [T + 1, B]
        discount, step_type, gamma = batch.discount[rows], batch.step_type[rows], self._learning.discount
        return vtrace(log_ratio, value, reward, discount, step_type, gamma, self._thresholds)

    def _reduce(self, losses: Tensor, kept: Tensor) -> Tensor:
        """Return the sum or the mean of losses [T, B] over the rows that are kept."""
        return _sum(losses, kept) if self._options.loss_reduction == "sum" else _mean(losses, kept)


def _sum(values: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept, values, 0).sum()


def _mean(values: Tensor, kept: Tensor) -> Tensor:
    return _sum(values, kept) / kept.sum().clamp(min=1)
