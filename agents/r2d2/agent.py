"""R2D2: recurrent experience replay (Kapturowski et al. 2019, openreview r1lyTjAqYX).

Double Q-learning with a duelling head behind an LSTM, learned from sequences that begin with the recurrent state that
the actor had there. A part before the rows learned from, the burn-in, makes that state anew without gradient. Values
are rescaled in the place of rewards that are clipped. n more rows follow those learned from, so all returns
have n steps but at an episode's end.
Letters: T rows learned from, B batch, E environments, A actions, n steps.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.devices import beside
from rainbow_iqn_apex.agents.interface import Setup, Stateful, Update
from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, RecurrentState
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.networks.trunks import orthogonal
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.masks import masked_mean
from rainbow_iqn_apex.agents.ops.n_step import clip_reward, n_step_rows
from rainbow_iqn_apex.agents.optimisation import Adam, Objective
from rainbow_iqn_apex.agents.policy import Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.r2d2.options import R2d2Options
from rainbow_iqn_apex.agents.randomness import EVALUATION_EPSILON, RandomState, explored, ladder
from rainbow_iqn_apex.agents.sequences import SequenceAgent, UpdateCounter, core_spec, state_fields
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows

EPSILON = 1e-3  # of R2D2; the term that keeps the inverse Lipschitz continuous
_LARGEST_SHARE = 0.9  # of the largest difference in a priority; the mean has the rest


def rescale(x: Tensor) -> Tensor:
    """Compute h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, arXiv 1805.11593), of any shape."""
    # |x| / (sqrt(|x| + 1) + 1) is sqrt(|x| + 1) - 1 without the difference of nearly equal numbers around 0.
    return x / ((x.abs() + 1).sqrt() + 1) + EPSILON * x


def unscale(y: Tensor) -> Tensor:
    """Compute h^-1(y) = sign(y) (((sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1).

    Computed as |y| times a factor, since the closed form subtracts nearly equal numbers for small y in float32.
    """
    # With u = sqrt(|x| + 1) - 1, h(x) = y says that epsilon u^2 + (1 + 2 epsilon) u = |y|.
    b = 1 + 2 * EPSILON
    u = 2 * y.abs() / (b + (b * b + 4 * EPSILON * y.abs()).sqrt())
    return torch.sign(y) * u * (u + 2)


class RecurrentDuellingNetwork(Network):
    """Q-values of a sequence: v + a - mean(a) behind the core."""

    def __init__(self, spec: CoreSpec, hidden_size: int, nb_actions: int) -> None:
        super().__init__()
        self.core = Core(spec)
        orthogonal(self.core)
        features = self.core.nb_features
        self.value = nn.Sequential(nn.Linear(features, hidden_size), nn.ReLU(), nn.Linear(hidden_size, 1))
        self.advantage = nn.Sequential(nn.Linear(features, hidden_size), nn.ReLU(), nn.Linear(hidden_size, nb_actions))

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return Q-values [T, B, A] and the recurrent state after the sequence."""
        features, recurrent = self.core(inputs, recurrent)
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(2, keepdim=True), recurrent


class R2d2(SequenceAgent):
    """The agent of `--agent r2d2`."""

    has_pass_beside = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.own
        assert isinstance(options, R2d2Options)
        self._options = options
        length = options.sequence_length
        period = options.sequence_period
        most = setup.learning.batch_size * period  # times a row is sampled, if there is an update for each agent step
        if options.samples_per_insert > most:
            raise UserError(
                f"--samples-per-insert: must not exceed --batch-size {setup.learning.batch_size} times "
                f"--sequence-period {period}, is {options.samples_per_insert:g}"
            )
        self.steps_per_update = round(most / options.samples_per_insert)
        sizes = core_spec(setup, options.architecture, options.hidden_size, options.lstm_size, length)
        state = state_fields(options.lstm_size, setup.environment.action)
        stack = setup.learning.history_length
        self.spec = ChunkSpec(stack, options.burn_in, length, options.multi_step, period, length, state=state)
        build = partial(RecurrentDuellingNetwork, sizes, options.hidden_size, setup.nb_actions)
        self.network = build().to(self._device)
        self.core = self.network.core
        self.parts: dict[str, Stateful] = {"model": self.network, "generator": RandomState(self.generator)}
        if setup.learns:
            self.target = build().to(self._device).requires_grad_(False)
            self.target.load_state_dict(self.network.state_dict())
            self._updates = UpdateCounter()
            on_gpu = self._device.type != "cpu"
            self._learned = list(self.network.parameters())
            adam = Adam(self._learned, options.lr_R2D2, eps=options.adam_eps_R2D2, fused=True, capturable=on_gpu)
            self._step = setup.optimisation(adam)
            self.parts |= {"target": self.target, "optimiser": adam, "updates": self._updates}

    # --- acting ---

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:
        """Act greedily, but at random with the probability of the environment's place."""
        inputs, recurrent, stack = self.acting_inputs(rows, state)
        q, recurrent = self.network(inputs, recurrent)
        q = q[0]  # [E, A]
        greedy = q.argmax(1)  # [E]
        epsilon = EVALUATION_EPSILON if step is None else self._exploration(len(greedy), places)
        actions = explored(greedy, epsilon, q.shape[1], self.generator)
        extras = {"chosen": q.gather(1, actions.unsqueeze(1)).squeeze(1), "greedy": q.amax(1)}
        arrays = {name: value.cpu().numpy() for name, value in extras.items()}
        output = ActorOutput(actions.cpu().numpy(), arrays, self.version)
        return output, self.next_state(stack, actions, recurrent)

    def _exploration(self, count: int, places: Array | None) -> Tensor:
        """Return base^(1 + 7 s) [E] at these places, or at the first ones of the agent's slot; see `ladder`."""
        base = self._options.exploration_base
        return ladder(self._slot.places(count, places), self._slot.total, base, base**8).float().to(self._device)

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        return ActingProtocol("more random actions (--exploration-base)", epsilon=EVALUATION_EPSILON)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:
        """Return the Q-values, as returns also where the network's are rescaled."""
        inputs, recurrent, _ = self.acting_inputs(rows, state)
        q = self.network(inputs, recurrent)[0][0, 0]  # [A]
        return Inspection("values", (unscale(q) if self._options.rescaling else q).cpu().numpy())

    def shown_reward(self, reward: Tensor) -> Tensor:
        """Return rewards as the loss counts them: clipped if values are not rescaled."""
        limit = 0 if self._options.rescaling else self._learning.reward_clip
        return clip_reward(reward, limit, self._learning.reward_scale)

    def initial_priorities(self, rows: Arrays) -> Array:
        """Return the priority [1] of a chunk's rows, with the acting network in the target's place."""
        names = ("reward", "discount", "step_type", "extras.chosen", "extras.greedy")
        parts = [torch.tensor(rows[name])[self.spec.prefix :].unsqueeze(1) for name in names]  # [T + n, 1] each
        reward, discount, step_type, chosen, greedy = parts
        targets = self._targets(reward, discount, step_type, greedy)
        differences = targets - chosen[: self.spec.length]
        return self._priorities(differences, step_type).numpy().astype(np.float32)

    # --- learning ---

    def update(self, batch: Batch, progress: float | Tensor) -> Update:  # noqa: ARG002 - nothing is annealed
        """Make one step of Adam on the mean over sequences of weight times half the sum of squared differences."""
        q, online, target = self._values(batch)
        rows = slice(self.spec.prefix, None)
        reward, discount, step_type = batch.reward[rows], batch.discount[rows], batch.step_type[rows]
        best = online.argmax(2, keepdim=True)  # [T + n, B, 1]
        targets = self._targets(reward, discount, step_type, target.gather(2, best).squeeze(2))
        action = batch.action[rows][: self.spec.length].long().unsqueeze(2)  # [T, B, 1]
        chosen = q.gather(2, action).squeeze(2)  # [T, B]
        learnable = step_type[: self.spec.length] != LAST
        differences = torch.where(learnable, targets - chosen, 0)  # [T, B]
        losses = 0.5 * differences.square().sum(0)  # [B]
        weighted = losses if batch.weights is None else batch.weights * losses
        norm = self._step([Objective(weighted.mean(), self._learned)])
        value = unscale(chosen.detach()) if self._options.rescaling else chosen.detach()  # [T, B]
        metrics = {"value": masked_mean(value, learnable), "loss": losses.detach().mean(), "gradient_norm": norm}
        return Update(self._priorities(differences.detach(), step_type), metrics)

    def count_update(self, step: int) -> None:  # noqa: ARG002 - it counts updates
        """Copy the online network to the target network after every so many updates."""
        self._updates.count(self._options.target_period, self.target, self.network)

    def _values(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return Q-values [T, B, A] with gradient, and those of both networks [T + n, B, A] without."""
        inputs, recurrent = self.learning_inputs(batch)
        burn_in = self.spec.burn_in
        length = self.spec.length
        target = beside(self._device, partial(self.target, inputs, recurrent))
        if burn_in:
            with torch.no_grad():
                _, recurrent = self.network.core(inputs.rows(0, burn_in), recurrent)
        online, _ = self.network(inputs.rows(burn_in), recurrent)  # [T + n, B, A]
        return online[:length], online.detach(), target()[0][burn_in:]

    def _targets(self, reward: Tensor, discount: Tensor, step_type: Tensor, bootstrap: Tensor) -> Tensor:
        """Return n-step targets [T, B], from the rows from the first learned from on, [T + n, B] each.

        `bootstrap` has the values of the best actions.
        """
        options = self._options
        T = self.spec.length
        gamma = self._learning.discount
        n = options.multi_step
        ahead = n_step_rows(self.shown_reward(reward), discount, step_type, gamma, n)  # [T, B] each
        steps = ahead.steps + torch.arange(T, device=reward.device).unsqueeze(1)  # [T, B]
        value = bootstrap.gather(0, steps)
        if not options.rescaling:
            return ahead.return_ + ahead.discount * value
        return rescale(ahead.return_ + ahead.discount * unscale(value))

    def _priorities(self, differences: Tensor, step_type: Tensor) -> Tensor:
        """Return the priorities [B] of differences [T, B], of which those at LAST rows do not count."""
        learnable = step_type[: self.spec.length] != LAST
        sizes = torch.where(learnable, differences.abs(), 0)
        mean = sizes.sum(0) / learnable.sum(0).clamp(min=1)
        return (_LARGEST_SHARE * sizes.amax(0) + (1 - _LARGEST_SHARE) * mean) ** self._options.priority_exponent_R2D2
