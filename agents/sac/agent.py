"""SAC: the soft actor-critic (Haarnoja et al. 2018, arXiv 1812.05905), for numbers and for one choice among actions.

Two critics learn, from a uniform replay, the return and the entropy that follow an action; what they are brought to has
the smaller of two slowly following target critics. The policy maximises the smaller critic and the entropy, whose
weight, the temperature α, is learned so that the entropy comes to a target. With discrete actions, the expectation
over the policy stands in the place of a sample (Christodoulou 2019, arXiv 1910.07207). With an LSTM the agent learns
from sequences: the policy begins with the state that the actor had there, the critics, which no actor has, with zero,
and a burn-in makes both anew.

Taken from the first implementation, github.com/haarnoja/sac: the three losses of an update are those of the weights
before it, and the temperature's gradient goes into log α. Not implemented: the entropy of the steps within an n-step
return, of which only the bootstrap value counts its own.
Letters: T rows learned from, B batch, E environments, K numbers of an action, A actions, F features, P parameters of
the policy's distribution, n steps.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.distributions import Categorical, PolicySpec, TanhNormal, inspection_of
from rainbow_iqn_apex.agents.interface import Setup, Stateful, Update
from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, PolicyHead, RecurrentState, action_numbers
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.masks import masked_mean
from rainbow_iqn_apex.agents.ops.multipliers import Constraint
from rainbow_iqn_apex.agents.ops.n_step import NStep, n_step_rows
from rainbow_iqn_apex.agents.optimisation import Adam, Objective
from rainbow_iqn_apex.agents.policy import DRAWN, Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.randomness import RandomState
from rainbow_iqn_apex.agents.sac.options import SacOptions
from rainbow_iqn_apex.agents.sequences import SequenceAgent, core_spec, state_fields
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, MultiDiscrete
from rainbow_iqn_apex.memory.hindsight import DESIRED, DISCOUNT, GOAL, REWARD, has_goals
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows

_CHUNK_LENGTH = 64  # rows; without an LSTM
_GOAL_CHUNK_LENGTH = 256  # with hindsight: goals come from a row's own chunk, so few episodes should be cut
_GOALS = 4  # that are drawn for a row (Andrychowicz et al. 2017, figure 6)
_NETWORKS = 3  # of the size of a core, for the budget: policy, critics, target critics


class PolicyNetwork(Network):
    """Parameters of the policy's distribution, whose standard deviations depend on the state."""

    def __init__(self, spec: CoreSpec) -> None:
        super().__init__()
        self.core = Core(spec)
        self.policy = PolicyHead(self.core.nb_features, PolicySpec(spec.action), state_dependent_std=True)

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return parameters [T, B, P] and the recurrent state after the sequence."""
        features, recurrent = self.core(inputs, recurrent)
        return self.policy(features), recurrent


class TwinCritics(nn.Module):
    """Two estimates of the return and entropy that follow an action: of one given, or of all that can be chosen.

    Observations that are numbers go through two hidden layers, next to the action (Haarnoja et al. 2018, appendix D).
    Pictures go through a core first, and with an LSTM all observations do; both critics share it.
    """

    def __init__(self, spec: CoreSpec, hidden_size: int) -> None:
        super().__init__()
        observation = spec.torso.observation
        self._scale = observation.scale
        self.core = Core(spec) if spec.lstm or observation.is_picture else None
        features = self.core.nb_features if self.core else spec.torso.channels
        numbers, outputs = (spec.action.size, 1) if isinstance(spec.action, Box) else (0, action_numbers(spec.action))
        self.heads = nn.ModuleList(_mlp(features + numbers, hidden_size, outputs) for _ in range(2))

    def features(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return what both critics see of rows, [T, B, F], and the recurrent state after them."""
        if self.core is None:
            return inputs.obs.flatten(2).float() * self._scale, ()
        found: tuple[Tensor, RecurrentState] = self.core(inputs, recurrent)
        return found

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the values [2, T, B] of actions [T, B, A] in [-1, 1]; without any those of all, [2, T, B, A]."""
        if action is None:
            return torch.stack([head(features) for head in self.heads])
        x = torch.cat((features, action), -1)  # [T, B, F + A]
        return torch.stack([head(x).squeeze(-1) for head in self.heads])


def _mlp(inputs: int, units: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, outputs)
    )


def with_other_goals(batch: Batch, desired: slice, probability: float, generator: torch.Generator) -> Batch:
    """Return a batch of transitions, of which so large a share has another goal, with its reward and discount.

    The goals were reached later in an episode (Andrychowicz et al. 2017, arXiv 1707.01495).

    `batch` has windows of two rows, whose observations are [2, B, N]; `desired` is where in an observation the desired
    goal lies. A transition gets another goal, one of the k that its row was given, with this `probability`.
    Letters: B batch, k goals of a row, of G numbers, N numbers of an observation.
    """
    goals = batch.rows[GOAL][0]  # [B, k, G]
    B, k, _ = goals.shape
    is_other = torch.rand(B, generator=generator, device=goals.device) < probability
    chosen = torch.randint(k, (B,), generator=generator, device=goals.device)
    columns = torch.arange(B, device=goals.device)
    obs = batch.obs.clone()  # [2, B, N]
    obs[..., desired] = torch.where(is_other.unsqueeze(1), goals[columns, chosen], obs[..., desired])

    def arriving(own: Tensor, other: Tensor) -> Tensor:
        """Return [2, B] with the next row's numbers [B], of which some become those under another goal."""
        return torch.stack((own[0], torch.where(is_other, other[columns, chosen], own[1])))

    changed = {
        "obs": obs,
        "reward": arriving(batch.reward, batch.rows[REWARD][0]),
        "discount": arriving(batch.discount, batch.rows[DISCOUNT][0]),
    }
    return batch._replace(rows={name: batch.rows[name] for name in ("step_type", "action")} | changed)


class Window(NamedTuple):
    """Holds the rows of an update, without those of the burn-in."""

    inputs: Inputs  # [T + n, B, ...]
    recurrent: RecurrentState  # of the policy before them, as of the critics' below; empty without an LSTM
    critics_recurrent: RecurrentState
    target_recurrent: RecurrentState
    action: Tensor  # [T, B, ...]
    ahead: NStep  # [T, B] each
    learnable: Tensor  # [T, B] bool


class Sac(SequenceAgent):
    """The agent of `--agent sac`."""

    learned = frozenset({"critics", "target", "temperature"})

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.own
        action = setup.environment.action
        assert isinstance(options, SacOptions)
        if isinstance(action, MultiDiscrete):
            raise UserError(
                f"--agent: sac chooses among discrete actions, or numbers, and the environment takes {action}; "
                "ppo takes several choices at once"
            )
        self._options = options
        self._action = action
        self._desired = goal_place(setup) if options.hindsight else None
        self._policy = PolicySpec(action)
        self.spec = chunk_spec(options, setup.learning.history_length, action)
        sizes = core_spec(setup, options.architecture, options.hidden_size, options.lstm_size, self.spec.length)
        self.network = PolicyNetwork(sizes).to(self._device)
        self.core = self.network.core
        self.parts: dict[str, Stateful] = {"model": self.network, "generator": RandomState(self.generator)}
        if setup.learns:
            self.critics, self.target = (TwinCritics(sizes, options.hidden_size).to(self._device) for _ in range(2))
            self.target.requires_grad_(False).load_state_dict(self.critics.state_dict())
            bound = -target_entropy(action, options.entropy_share)
            self.temperature = Constraint(bound, 1.0, 1.0, setup.ranks).to(self._device)
            self._acting = list(self.network.parameters())
            self._judging = list(self.critics.parameters())
            self._multipliers = list(self.temperature.parameters())
            trained = [*self._acting, *self._multipliers, *self._judging]
            adam = Adam(trained, options.lr_SAC, fused=True, capturable=self._device.type != "cpu")
            self._step = setup.optimisation(adam)
            self.parts |= {
                "critics": self.critics,
                "target": self.target,
                "temperature": self.temperature,
                "optimiser": adam,
            }

    # --- acting ---

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:  # noqa: ARG002 - all explore alike
        """Draw actions from the policy, uniformly before learn-start; in an evaluation take the policy's mode."""
        inputs, recurrent, stack = self.acting_inputs(rows, state)
        parameters, recurrent = self.network(inputs, recurrent)  # [1, E, P]
        policy = self._policy.distribution(parameters[0])
        if step is not None and step < self._learning.learn_start:
            actions = self._random_actions(len(rows.reward))
        else:
            is_greedy = step is None and not self._options.stochastic
            actions = policy.to_action(policy.mode() if is_greedy else policy.sample(self.generator))
        output = ActorOutput(actions.cpu().numpy(), {"parameters": parameters[0].cpu().numpy()}, self.version)
        return output, self.next_state(stack, actions, recurrent)

    def _random_actions(self, count: int) -> Tensor:
        """Draw actions [E, ...] uniformly from all that there are."""
        if isinstance(self._action, Box):
            numbers = torch.rand(count, self._action.size, generator=self.generator, device=self._device)
            return 2 * numbers - 1
        choices = self._policy.nb_parameters
        return torch.randint(choices, (count,), generator=self.generator, device=self._device)

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        return ActingProtocol(DRAWN, drawn=self._options.stochastic)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:
        """Return the policy; only the learner's critics have what states are worth."""
        inputs, recurrent, _ = self.acting_inputs(rows, state)
        parameters, _ = self.network(inputs, recurrent)  # [1, 1, P]
        return inspection_of(self._policy.distribution(parameters[0]), None)

    # --- learning ---

    def update(self, batch: Batch, progress: float | Tensor) -> Update:  # noqa: ARG002 - nothing is annealed
        """Make one step of Adam for policy, critics and temperature, and let the target critics follow."""
        if self._desired is not None:
            batch = with_other_goals(batch, self._desired, self._options.hindsight, self.generator)
        window = self._window(batch)
        target = self._targets(window)  # [T, B]
        learned = window.inputs.rows(0, self.spec.sample_length)
        features, _ = self.critics.features(learned, window.critics_recurrent)  # [T, B, F]
        q = self._values(features, window.action)  # [2, T, B]
        mean = partial(masked_mean, kept=window.learnable, ranks=self._ranks)
        critic_loss = 0.5 * (mean((q[0] - target).square()) + mean((q[1] - target).square()))
        parameters, _ = self.network(learned, window.recurrent)  # [T, B, P]
        value, log_pi = self._soft_value(self.critics, features.detach(), parameters)  # [T, B] each
        log_pi = mean(log_pi)
        policy_loss = self.temperature(log_pi) - mean(value)
        # The policy's loss depends on the critics, which learn from their own loss alone.
        norm = self._step(
            [Objective(policy_loss, self._acting, self._multipliers), Objective(critic_loss, self._judging)]
        )
        self._follow()
        metrics = {
            "value": mean(q.amin(0)),
            "entropy": -log_pi,
            "entropy_cost": self.temperature.price(),
            "loss": policy_loss + critic_loss,
            "policy_loss": policy_loss,
            "value_loss": critic_loss,
            "gradient_norm": norm,
        }
        return Update(None, {name: metric.detach() for name, metric in metrics.items()})

    def update_bytes(self, batch_size: int) -> int:
        """Estimate the bytes of an update's temporaries."""
        return _NETWORKS * super().update_bytes(batch_size)

    @torch.no_grad()
    def _follow(self) -> None:
        """Move the target critics a small share of the way to the critics."""
        followed: list[Tensor] = [*self._judging]
        torch._foreach_lerp_(list(self.target.parameters()), followed, self._options.target_rate)

    def _window(self, batch: Batch) -> Window:
        """Cut the rows of an update out of a batch; the burn-in makes the LSTMs' states anew."""
        spec = self.spec
        (inputs, recurrent) = self.learning_inputs(batch)
        states = self._renewed(inputs.rows(0, spec.burn_in), recurrent)
        rows = slice(spec.prefix, spec.prefix + spec.sample_length + spec.bootstrap_rows)
        reward, discount, step_type = self.shown_reward(batch.reward[rows]), batch.discount[rows], batch.step_type[rows]
        ahead = n_step_rows(reward, discount, step_type, self._learning.discount, spec.bootstrap_rows)
        action, learnable = (part[rows][: spec.sample_length] for part in (batch.action, batch.step_type != LAST))
        return Window(inputs.rows(spec.burn_in), *states, action, ahead, learnable)

    @torch.no_grad()
    def _renewed(
        self, before: Inputs, recurrent: RecurrentState
    ) -> tuple[RecurrentState, RecurrentState, RecurrentState]:
        """Return the states of policy, critics and target critics after the rows of the burn-in."""
        blank = tuple(torch.zeros_like(part) for part in recurrent)
        if not len(before.first):
            return recurrent, blank, blank
        critics, target = (judges.features(before, blank)[1] for judges in (self.critics, self.target))
        return self.network(before, recurrent)[1], critics, target

    @torch.no_grad()
    def _targets(self, window: Window) -> Tensor:
        """Return what the critics are brought to, [T, B]: the n-step return and the soft value behind it."""
        inputs = window.inputs
        steps = window.ahead.steps  # [T, B]
        if not self.spec.state:  # one row learned from, and one ahead: others would be computed for nothing
            columns = torch.arange(steps.shape[1], device=steps.device)
            inputs = Inputs(*(part[steps[0], columns].unsqueeze(0) for part in inputs))
        parameters, _ = self.network(inputs, window.recurrent)
        features, _ = self.target.features(inputs, window.target_recurrent)
        value, log_pi = self._soft_value(self.target, features, parameters)
        value = value - self.temperature.price() * log_pi  # [1, B], or with an LSTM [T + n, B]
        if self.spec.state:
            value = value.gather(0, steps + torch.arange(len(steps), device=steps.device).unsqueeze(1))
        return window.ahead.return_ + window.ahead.discount * value

    def _values(self, features: Tensor, action: Tensor) -> Tensor:
        """Return both critics' values [2, T, B] of the actions taken [T, B, ...]."""
        if isinstance(self._action, Box):
            given: Tensor = self.critics(features, action)
            return given
        chosen = action.long().expand(2, *action.shape).unsqueeze(3)  # [2, T, B, 1]
        all_: Tensor = self.critics(features)  # [2, T, B, A]
        return all_.gather(3, chosen).squeeze(3)

    def _soft_value(self, critics: TwinCritics, features: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smaller critic's value of the policy's action, and its log-probability, [T, B] each.

        Of numbers both are those of a sample, of discrete actions the means over the policy.
        """
        policy = self._policy.distribution(parameters)
        if isinstance(policy, Categorical):
            probabilities = policy.log_probabilities.exp()  # [T, B, A]
            value = critics(features).amin(0).detach()  # [T, B, A]
            return (probabilities * value).sum(2), -policy.entropy()
        assert isinstance(policy, TanhNormal)
        raw = policy.rsample(self.generator)  # [T, B, K]
        return critics(features, policy.to_action(raw)).amin(0), policy.log_prob(raw)


def chunk_spec(options: SacOptions, stack: int, action: ActionSpec) -> ChunkSpec:
    """Return the chunks of transitions, or with an LSTM of sequences."""
    n = options.multi_step
    if options.hindsight:
        rows = _GOAL_CHUNK_LENGTH
        return ChunkSpec(stack, 0, rows, n, rows, 1, prioritised=False, hindsight=_GOALS)
    if not options.lstm_size:
        return ChunkSpec(stack, 0, _CHUNK_LENGTH, n, _CHUNK_LENGTH, 1, prioritised=False)
    length = options.sequence_length
    state = state_fields(options.lstm_size, action)
    return ChunkSpec(stack, options.burn_in, length, n, options.sequence_period, length, state=state, prioritised=False)


def goal_place(setup: Setup) -> slice:
    """Return where in an observation the desired goal lies; raises UserError where hindsight is not possible."""
    if not has_goals(setup.environment):
        raise UserError(
            "--hindsight: the environment's observations have no achieved_goal and desired_goal of the same size, or a "
            "picture or text beside them; leave the option out"
        )
    if setup.learning.history_length > 1:
        raise UserError(f"--history-length: must be 1 with --hindsight, is {setup.learning.history_length}")
    return setup.environment.part(DESIRED)


def target_entropy(action: ActionSpec, share: float) -> float:
    """Return the entropy [nats] that a policy shall have: -K for K numbers, else a share of that of all actions alike.

    -K is that of K numbers drawn uniformly from an interval of length 1/e, and negative as all densities above 1.
    """
    return -action.size if isinstance(action, Box) else share * math.log(PolicySpec(action).nb_parameters)
