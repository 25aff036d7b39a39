"""The on-policy family: an agent that takes turns with its actors, and learns from each round in several updates.

Its actors play a round with the present policy; it makes `epochs` times `minibatches` updates of what they played, and
so on (Andrychowicz et al. 2020, arXiv 2006.05990). Letters: T rows of a sequence, B sequences, E environments, S stack,
P parameters of the policy's distribution.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.distributions import PolicySpec, check_target_entropy, inspection_of
from rainbow_iqn_apex.agents.interface import Setup, Update
from rainbow_iqn_apex.agents.networks.core import Inputs, RecurrentState
from rainbow_iqn_apex.agents.on_policy.losses import Losses, Predictions, RoundRows, estimate
from rainbow_iqn_apex.agents.on_policy.network import NetworkSpec, PolicyValueNetwork, Reference
from rainbow_iqn_apex.agents.on_policy.options import OnPolicyOptions
from rainbow_iqn_apex.agents.on_policy.statistics import Statistics, discounted_reward
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.masks import deal_rows, deal_sequences
from rainbow_iqn_apex.agents.optimisation import Adam, Objective
from rainbow_iqn_apex.agents.policy import DRAWN, Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.randomness import RandomState
from rainbow_iqn_apex.agents.sequences import SequenceAgent, core_spec, state_fields
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Box, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows

_ROWS_AT_ONCE = 4096  # of a round whose values are computed without gradient


class Step(NamedTuple):
    """Holds what a step of Adam found before it changed the weights; nothing has gradient."""

    parameters: Tensor  # [t, n, P]
    value: Tensor  # [t, n]
    metrics: dict[str, Tensor]


class OnPolicy(SequenceAgent):
    """The agent of `--agent ppo`, `vmpo`, `awr`, `vpg` and `vtrace`."""

    buffer = "queue"
    learned = frozenset({"statistics"})

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.own
        assert isinstance(options, OnPolicyOptions)
        self._options = options
        self._environment = setup.environment
        self._policy = PolicySpec(setup.environment.action, options.box_policy)
        extras = [("parameters", self._policy.parameters_field), ("return", Field((), "float32"))]
        self._keeps_raw = isinstance(setup.environment.action, Box)  # discrete ones are the rows' actions
        if self._keeps_raw:
            extras.append(("raw", setup.environment.action.field))
        length = options.unroll_length
        stack = setup.learning.history_length
        state = state_fields(options.lstm_size, setup.environment.action)
        self.spec = ChunkSpec(stack, 0, length, 1, length, length, tuple(extras), state, prioritised=False)
        core = core_spec(setup, options.architecture, options.hidden_size, options.lstm_size, length)
        sizes = NetworkSpec(core, options.mlp_size, self._policy, options.normalise_observations, options.popart)
        self.network = PolicyValueNetwork(sizes).to(self._device)
        self.parts = {"model": self.network, "generator": RandomState(self.generator)}
        if setup.learns:
            self._prepare_to_learn(setup)

    def _prepare_to_learn(self, setup: Setup) -> None:
        options = self._options
        check_target_entropy(options.target_entropy, self._environment.action)
        self._losses = Losses(options, self._policy, self.generator, self._ranks).to(self._device)
        self._statistics = Statistics(self._environment.observation.shape)
        self._reference = Reference(self.network, options.reference_period) if options.uses_reference else None
        self._learned = list(self.network.parameters())
        self._multipliers = list(self._losses.parameters())
        trained = [*self._learned, *self._multipliers]
        self._adam = Adam(trained, options.lr_on_policy, eps=options.adam_eps_on_policy, fused=True)
        self._optimise = setup.optimisation(self._adam)
        self.parts |= {"losses": self._losses, "statistics": self._statistics, "optimiser": self._adam}
        if self._reference:
            self.parts["reference"] = self._reference

    # --- acting ---

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:  # noqa: ARG002 - all explore alike
        """Draw actions from the policy; in an evaluation take its mode, unless it is `stochastic`."""
        inputs, recurrent, stack = self.acting_inputs(rows, state)
        parameters, recurrent = self.network.act(inputs, recurrent)  # [1, E, P]
        parameters = parameters[0]
        policy = self._policy.distribution(parameters)
        raw = policy.mode() if step is None and not self._options.stochastic else policy.sample(self.generator)
        before = torch.from_numpy(state.get("return", np.zeros(len(rows.reward)))).double()  # [E]
        arrived = torch.from_numpy(rows.reward)  # [E]
        step_type = torch.from_numpy(rows.step_type)  # [E]
        discounted = discounted_reward(before, arrived, step_type, self._learning.discount).float().numpy()  # [E]
        extras = {"parameters": parameters.cpu().numpy(), "return": discounted}
        if self._keeps_raw:
            extras["raw"] = raw.cpu().numpy()
        actions = policy.to_action(raw)  # [E, ...]
        kept = self.next_state(stack, actions, recurrent) | {"return": discounted}
        return ActorOutput(actions.cpu().numpy(), extras, self.version), kept

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        return ActingProtocol(DRAWN, drawn=self._options.stochastic)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:
        """Return the policy and the value."""
        inputs, recurrent, _ = self.acting_inputs(rows, state)
        parameters, value, _ = self.network(inputs, recurrent)  # [1, 1, P], [1, 1]
        return inspection_of(self._policy.distribution(parameters[0]), value.item())

    # --- learning ---

    def update(self, batch: Batch, progress: float | Tensor) -> Update:
        """Make the updates of a round, then let its observations and rewards count for what comes after them."""
        options = self._options
        self._adam.anneal(progress)
        inputs, recurrent = self.learning_inputs(batch)  # [T + 1, B, ...]
        if self._reference:
            self._reference.begin_round(self.network)
        reward = self._statistics.scaled(batch.reward) if options.normalise_rewards else batch.reward
        reward = self.shown_reward(reward)  # to an LSTM not divided, as actors know no deviation
        begun = self._look(inputs, recurrent)[1]  # [T + 1, B]
        epochs: list[dict[str, Tensor]] = []  # metrics of each
        for epoch in range(options.epochs):
            if not epoch or options.fresh_advantages:
                played = self._rows_of(batch, inputs, recurrent, reward, begun)
            if not epoch and self.network.popart is not None:
                self.network.popart.observe(played.target, played.learnable, self._ranks)
            epochs.append(self._epoch(played, recurrent))
        self._end_round(batch)
        return Update(None, _means(epochs))

    def update_bytes(self, batch_size: int) -> int:
        """Estimate the bytes of an update: a round's stacks, and the activations of a minibatch."""
        if self.network.core is None:
            return 0
        rows = batch_size * (self.spec.length + 1)
        return self.network.core.update_bytes(rows, -(-rows // self._options.minibatches))

    def _rows_of(
        self, batch: Batch, inputs: Inputs, recurrent: RecurrentState, reward: Tensor, begun: Tensor
    ) -> RoundRows:
        """Return what the updates of an epoch read, its rows flattened to [T * B, ...]."""
        prefix = self.spec.prefix
        rows = slice(prefix, prefix + self.spec.length)
        raw = batch.rows.get("extras.raw", batch.action)[rows]  # [T, B, ...]
        parameters = batch.rows["extras.parameters"][rows]  # [T, B, P] of the policy that acted
        log_mu = self._policy.distribution(parameters).log_prob(raw)  # [T, B]
        log_ratio = torch.zeros_like(begun[:-1])
        value = begun
        if self._options.fresh_advantages:
            present, value = self._look(inputs, recurrent)  # [T + 1, B, P], [T + 1, B]
            log_ratio = self._policy.distribution(present[:-1]).log_prob(raw) - log_mu  # [T, B]
        arrived = (reward[prefix:], batch.discount[prefix:], batch.step_type[prefix:])
        target = estimate(self._options, log_ratio, value, *arrived, self._learning.discount)
        fields = (raw, parameters, log_mu, begun[:-1], target.advantage, target.value, target.learnable)
        flat = Inputs(*(part[:-1].flatten(0, 1) for part in inputs))
        return RoundRows(flat, *(field.flatten(0, 1) for field in fields))

    def _deal(self, learnable: Tensor) -> Iterator[Tensor]:
        split = deal_rows if self._options.minibatch_split == "rows" else deal_sequences
        return split(learnable.view(self.spec.length, -1), self._options.minibatches, self.generator, self._ranks)

    def _epoch(self, played: RoundRows, recurrent: RecurrentState) -> dict[str, Tensor]:
        """Make the updates of an epoch, each with rows of its own; returns means of their metrics."""
        dealt = list(self._deal(played.learnable))
        rows = played.at(torch.cat(dealt, 1))  # [t, N, ...] in the order in which they are learned from
        parts = rows.split([places.shape[1] for places in dealt])
        steps = [self._step(part, recurrent, places) for part, places in zip(parts, dealt, strict=True)]
        parameters = torch.cat([step.parameters for step in steps], 1)  # [t, N, P]
        value = torch.cat([step.value for step in steps], 1)  # [t, N]
        return self._losses.report(rows, Predictions(parameters, value, None)) | _means(
            [step.metrics for step in steps]
        )

    def _step(self, rows: RoundRows, recurrent: RecurrentState, places: Tensor) -> Step:
        """Make one step of Adam on the round's rows [t, n, ...] at some places [t, n]."""
        if recurrent:  # then they are whole sequences, whose first rows lie in the columns that they are numbered by
            recurrent = tuple(part[places[0]] for part in recurrent)  # [n, H]
        parameters, value, _ = self.network(rows.inputs, recurrent)  # [t, n, P], [t, n]
        reference = self._reference(rows.inputs, recurrent) if self._reference else None
        loss, metrics = self._losses(rows, Predictions(parameters, value, reference), self.network.popart)
        metrics["gradient_norm"] = self._optimise([Objective(loss, self._learned, self._multipliers)])
        return Step(parameters.detach(), value.detach(), {name: metric.detach() for name, metric in metrics.items()})

    @torch.no_grad()
    def _look(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, Tensor]:
        """Return the present parameters [T, B, P] and values [T, B], a stretch of rows after the other."""
        T, B = inputs.first.shape
        stretch = max(1, _ROWS_AT_ONCE // B)
        found = []
        for start in range(0, T, stretch):
            parameters, value, recurrent = self.network(inputs.rows(start, start + stretch), recurrent)
            found.append((parameters, value))
        parameters, value = (torch.cat(parts) for parts in zip(*found, strict=True))
        return parameters, value

    def _end_round(self, batch: Batch) -> None:
        """Count the round's observations and returns, for the rows that are played with the next weights."""
        rows = slice(self.spec.prefix, self.spec.prefix + self.spec.length)
        learnable = batch.step_type[rows] != LAST  # [T, B]
        following = batch.reward[self.spec.prefix + 1 :]  # [T, B]
        returns = batch.rows["extras.return"][rows] * self._learning.discount + following  # [T, B]
        self._statistics.count(returns[learnable], self._ranks)
        if self.network.normaliser is not None:  # pictures have none, and are many bytes
            self._statistics.normalise(self.network.normaliser, batch.obs[rows][learnable], self._ranks)


def _means(found: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each metric."""
    return {name: torch.stack([metrics[name] for metrics in found]).mean() for name in found[0]}
