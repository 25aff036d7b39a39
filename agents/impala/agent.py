"""IMPALA: an actor-critic that corrects for the lag of its actors by V-trace (Espeholt et al. 2018, arXiv 1802.01561).

Actions are drawn from the policy; a chunk records the logits that they were drawn with. Each chunk is learned from
once, the oldest first, or with `--replay-mix` together with replayed ones (CLEAR, LASER, IMPACT: `losses.py`).
Letters: T rows of an unroll, B batch, E environments, A actions, F features of the layer before the heads, K numbers of
a feature vector.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.distributions import check_target_entropy
from rainbow_iqn_apex.agents.impala.losses import Computed, Losses, Played
from rainbow_iqn_apex.agents.impala.options import ImpalaOptions
from rainbow_iqn_apex.agents.interface import Setup, Stateful, Update
from rainbow_iqn_apex.agents.networks.core import POLICY_GAIN, VALUE_GAIN, Core, CoreSpec, Inputs, RecurrentState
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.networks.trunks import orthogonal
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.multipliers import Constraint
from rainbow_iqn_apex.agents.ops.n_step import clip_reward
from rainbow_iqn_apex.agents.ops.vtrace import Targets
from rainbow_iqn_apex.agents.optimisation import Objective, RMSProp
from rainbow_iqn_apex.agents.policy import DRAWN, Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.randomness import RandomState
from rainbow_iqn_apex.agents.sequences import SequenceAgent, UpdateCounter, core_spec, state_fields
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows

_PROJECTION_SEED = 0  # all processes of all runs have the same projection
_LARGEST_SHARE = 0.9  # of a sequence's priority (Kapturowski et al. 2019), as the next one
_PRIORITY_EXPONENT = 0.9


class PolicyValue(NamedTuple):
    """Holds what the network computes of a sequence."""

    log_policy: Tensor  # [T, B, A] log-probabilities
    value: Tensor  # [T, B]
    features: Tensor  # [T, B, F] the layer before the heads
    recurrent: RecurrentState  # after the sequence


class PolicyValueNetwork(Network):
    """Logits of the policy and the value of the state."""

    def __init__(self, spec: CoreSpec, nb_actions: int) -> None:
        super().__init__()
        self.core = Core(spec)
        self.policy = nn.Linear(self.core.nb_features, nb_actions)
        self.value = nn.Linear(self.core.nb_features, 1)
        orthogonal(self.core)
        orthogonal(self.policy, POLICY_GAIN)
        orthogonal(self.value, VALUE_GAIN)

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> PolicyValue:
        """Return policy, value and features of a sequence, and the recurrent state after it."""
        features, recurrent = self.core(inputs, recurrent)
        log_policy = functional.log_softmax(self.policy(features), 2)
        return PolicyValue(log_policy, self.value(features).squeeze(2), features, recurrent)


class Features:
    """Computes feature vectors, which elite and attentive replay compare (Sun et al. 2020, AAAI 34).

    They come from the present core, or from a copy of it while a batch is prepared ahead.
    """

    def __init__(self, core: Core, projected: int, device: torch.device) -> None:
        self.size = projected or core.nb_features  # K
        self._core = self._measuring = core
        self._copy: Core | None = None
        self._projection = _projection(core.nb_features, projected).to(device) if projected else None

    def of(self, features: Tensor) -> Tensor:
        """Return the vectors [..., K] float32 of the core's outputs [..., F]."""
        if self._projection is None:
            return features
        return features.matmul(self._projection)

    @torch.inference_mode()
    def measure(self, inputs: Inputs, recurrent: RecurrentState) -> Tensor:
        """Return the vectors [T, B, K] of sequences."""
        features: Tensor = self._measuring(inputs, recurrent)[0]  # [T, B, F]
        return self.of(features)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Measure with a copy of the present weights meanwhile: another thread may do so while they are updated."""
        if self._copy is None:
            self._copy = copy.deepcopy(self._core).requires_grad_(False)
        with torch.no_grad():
            torch._foreach_copy_(list(self._copy.parameters()), list(self._core.parameters()))
        self._measuring = self._copy
        try:
            yield
        finally:
            self._measuring = self._core


def _projection(features: int, numbers: int) -> Tensor:
    """Return a random matrix [F, K] that keeps lengths on average (Johnson and Lindenstrauss 1984)."""
    generator = torch.Generator().manual_seed(_PROJECTION_SEED)
    return torch.randn(features, numbers, generator=generator) / math.sqrt(numbers)


class Impala(SequenceAgent):
    """The agent of `--agent impala`."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.own
        assert isinstance(options, ImpalaOptions)
        self._options = options
        self.buffer = "mixture" if options.mix else "queue"
        self.mix = options.mix
        self.sampling = options.sampling
        self.mixing = self if options.mix else None
        length = options.unroll_length
        sizes = core_spec(setup, options.architecture, options.hidden_size, options.lstm_size, length)
        self.network = PolicyValueNetwork(sizes, setup.nb_actions).to(self._device)
        self.core = self.network.core
        self.features = Features(self.core, options.feature_projection, self._device)
        state = state_fields(options.lstm_size, setup.environment.action)
        stack = setup.learning.history_length
        extras = self._extras(setup.nb_actions)
        self.spec = ChunkSpec(stack, 0, length, 1, length, length, extras, state, prioritised=False)
        self.parts: dict[str, Stateful] = {"model": self.network, "generator": RandomState(self.generator)}
        if setup.learns:
            self._prepare_to_learn(setup)

    def _extras(self, nb_actions: int) -> tuple[tuple[str, Field], ...]:
        """Return what is recorded of each row."""
        extras = {"log_policy": Field((nb_actions,), "float32")}
        if self._options.value_cloning_cost:
            extras["value"] = Field((), "float32")
        if self._options.records_features:
            extras["features"] = Field((self.features.size,), "float32")
        return tuple(extras.items())

    def _prepare_to_learn(self, setup: Setup) -> None:
        """Make what updates need."""
        options = self._options
        self._losses = Losses(options, self._learning.discount, setup.ranks)
        least = Constraint(-options.target_entropy, options.entropy_cost or 1, ranks=setup.ranks)
        self._least_entropy = least.to(self._device)
        self._learned = list(self.network.parameters())
        self._multipliers = list(self._least_entropy.parameters()) if options.target_entropy else []
        check_target_entropy(options.target_entropy, setup.environment.action)
        if options.target_entropy:
            self.parts["entropy_cost"] = self._least_entropy.multiplier
        self._target: PolicyValueNetwork | None = None
        if options.impact_target_period:
            self._target = copy.deepcopy(self.network).requires_grad_(False)
            self._updates = UpdateCounter()
            self.parts |= {"target": self._target, "updates": self._updates}
        trained = [*self._learned, *self._multipliers]
        self._rms_prop = RMSProp(
            trained, options.lr_IMPALA, options.rms_eps_IMPALA, options.rms_decay_IMPALA, self._device
        )
        self._step = setup.optimisation(self._rms_prop)
        self.parts["optimiser"] = self._rms_prop

    # --- acting ---

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:  # noqa: ARG002 - all explore alike
        """Draw actions from the policy; in an evaluation take the likeliest, unless it is `stochastic`."""
        inputs, recurrent, stack = self.acting_inputs(rows, state)
        now = self.network(inputs, recurrent)
        log_policy = now.log_policy[0]  # [E, A]
        if step is None and not self._options.stochastic:
            actions = log_policy.argmax(1)  # [E]
        else:
            actions = torch.multinomial(log_policy.exp(), 1, generator=self.generator).squeeze(1)
        output = ActorOutput(actions.cpu().numpy(), self._recorded(now), self.version)
        return output, self.next_state(stack, actions, now.recurrent)

    def _recorded(self, now: PolicyValue) -> Arrays:
        """Return what is recorded of the rows [1, E, ...] that were acted at, [E, ...] each."""
        found = {"log_policy": now.log_policy, "value": now.value}
        if self._options.records_features:
            found["features"] = self.features.of(now.features)
        return {name: found[name][0].cpu().numpy() for name, _ in self.spec.extras}

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        return ActingProtocol(DRAWN, drawn=self._options.stochastic)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:
        """Return the policy and the value."""
        inputs, recurrent, _ = self.acting_inputs(rows, state)
        now = self.network(inputs, recurrent)
        return Inspection("probabilities", now.log_policy[0, 0].exp().cpu().numpy(), now.value.item())

    def shown_reward(self, reward: Tensor) -> Tensor:
        """Return rewards as the loss counts them."""
        scale = self._learning.reward_scale
        if self._options.reward_transform == "soft-asymmetric":
            squashed = 5 * torch.tanh(clip_reward(reward, 0, scale) / 5)
            return torch.where(reward < 0, 0.3 * squashed, squashed)
        return clip_reward(reward, self._learning.reward_clip, scale)

    # --- learning ---

    def measure(self, rows: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
        """Return the present feature vectors [T, B, K] of the rows from the first with a full stack on."""
        inputs, recurrent = self.learning_inputs(Batch(rows, state).to(self._device))
        return self.features.measure(inputs, recurrent).to(rows["obs"].device)

    def measure_bytes(self, sequences: int) -> int:
        """Estimate the bytes that `measure` holds at once for so many sequences, beside their rows."""
        return self.core.update_bytes(sequences * (self.spec.sample_length + self.spec.bootstrap_rows), 0)

    def held(self) -> AbstractContextManager[None]:
        """Let `measure` use a copy of the present weights meanwhile, in whatever thread."""
        return self.features.held()

    def update(self, batch: Batch, progress: float | Tensor) -> Update:
        """Make one step of RMSProp on the losses of an unroll's rows at which an action was chosen."""
        inputs, recurrent = self.learning_inputs(batch)
        now = self.network(inputs, recurrent)  # of T + 1 rows
        log_target = self._target(inputs, recurrent).log_policy[:-1] if self._target else None  # [T, B, A]
        computed = Computed(now.log_policy[:-1], now.value, log_target)
        price = self._least_entropy.price() if self._options.target_entropy else None
        cost = self._options.entropy_cost if price is None else price
        loss, targets, metrics = self._losses(self._played(batch), computed, cost)
        if price is not None:
            metrics["entropy_cost"] = price
            loss = loss + self._least_entropy.pressure(-metrics["entropy"], price)
        self._rms_prop.anneal(progress)
        metrics["gradient_norm"] = self._step([Objective(loss, self._learned, self._multipliers)])
        priorities = self._priorities(targets, now.value.detach(), batch.step_type[self.spec.prefix : -1])
        return Update(priorities, {name: metric.detach() for name, metric in metrics.items()})

    def count_update(self, step: int) -> None:  # noqa: ARG002 - it counts updates
        """Copy the network to IMPACT's target network after every so many updates."""
        if self._target:
            self._updates.count(self._options.impact_target_period, self._target, self.network)

    def _played(self, batch: Batch) -> Played:
        rows = slice(self.spec.prefix, None)
        chosen = slice(self.spec.prefix, -1)
        value = batch.rows.get("extras.value")
        return Played(
            self.shown_reward(batch.reward[rows]),
            batch.discount[rows],
            batch.step_type[rows],
            batch.action[chosen].long(),
            batch.rows["extras.log_policy"][chosen],
            None if value is None else value[chosen],
            batch.replayed,
        )

    def _priorities(self, targets: Targets, value: Tensor, step_type: Tensor) -> Tensor | None:
        """Return the priorities [B] of sequences for a prioritised table, from values [T + 1, B], as R2D2 has them."""
        if not any(table.table == "prioritised" for table in self._options.mix):
            return None
        errors = torch.where(targets.learnable, (targets.value - value[:-1]).abs(), 0)  # [T, B]
        average = errors.sum(0) / (step_type != LAST).sum(0).clamp(min=1)
        return (_LARGEST_SHARE * errors.amax(0) + (1 - _LARGEST_SHARE) * average) ** _PRIORITY_EXPONENT
