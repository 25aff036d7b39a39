"""What the Rainbow agents share: n-step double Q-learning with noisy exploration, a target network and Adam.

An agent adds its network, and the methods at the end of the class: values for acting and for a viewer, the target
network's pass, the losses of a batch, and those of an actor's own rows.
Letters: T rows of a window, B batch, E environments, A actions, n steps.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.devices import select_precision
from rainbow_iqn_apex.agents.interface import Agent, Setup, Stateful, Update
from rainbow_iqn_apex.agents.networks.duelling import PUBLISHED, DuellingNetwork, NetworkSpec, Weights
from rainbow_iqn_apex.agents.networks.encoder import EncoderSpec
from rainbow_iqn_apex.agents.networks.network import acting_tensors
from rainbow_iqn_apex.agents.networks.trunks import TRUNKS
from rainbow_iqn_apex.agents.ops.frames import push_frame, stack_at
from rainbow_iqn_apex.agents.ops.n_step import NStep, clip_reward, n_step
from rainbow_iqn_apex.agents.ops.shapes import shape_text
from rainbow_iqn_apex.agents.optimisation import Adam, Objective
from rainbow_iqn_apex.agents.policy import Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.q_learning.options import QLearningOptions
from rainbow_iqn_apex.agents.randomness import EVALUATION_EPSILON, RandomState, explored, ladder
from rainbow_iqn_apex.memory.batch import Batch, Transitions
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows, StepType

_ROOM = 200_000_000  # bytes, in the budget of every learner
Begun = tuple[Transitions, Callable[[], Tensor]]  # the latter waits for what the targets need of the target network
CHUNK_LENGTH = 64  # rows: a chunk of 70 frames is half a megabyte raw, and some kilobytes compressed


def exploration_rates(places: Tensor, nb_env: int, step: int, options: QLearningOptions) -> Tensor:
    """Return the shares of random actions [E] at places [E] int64 among N environments, at a step of the run.

    Environment i has e_i + (1 - e_i) exp(-step / decay), or e_i at once without a decay, with e_i from epsilon-end to
    epsilon-ladder by `ladder`, and without a ladder e_i = epsilon-end. The schedule is that of BTR (Clark et al. 2024,
    arXiv 2411.03820).
    """
    end = options.epsilon_end
    last = options.epsilon_ladder
    ends = ladder(places, nb_env, end, last) if last else torch.full(places.shape, end, dtype=torch.float64)
    left = math.exp(-step / options.epsilon_decay) if options.epsilon_decay else 0.0
    return (ends + (1 - ends) * left).float()


class PolicyOutput(NamedTuple):
    """Output of the acting network for E stacks, before an action is chosen."""

    values: Tensor  # [E, A] mean returns
    distribution: Tensor  # [E, A, ...] what `initial_losses` needs of an action
    extras: dict[str, Tensor]  # [E, ...] what it needs besides


def network_spec(setup: Setup, options: QLearningOptions) -> NetworkSpec:
    """Return the networks that the options ask for on the setup's device.

    Raises UserError for an environment whose action is not one discrete choice.
    """
    trunk = EncoderSpec(
        setup.environment.observation,
        setup.learning.history_length,
        options.architecture,
        options.hidden_size,
        select_precision(setup.learning.precision, setup.generator.device),
        pool=options.pool,
        spectral_norm=options.spectral_norm,
    )
    return NetworkSpec(trunk, setup.nb_actions, options.noisy_std, options.layer_norm, options.QUIET_BIASES)


class QLearningAgent(Agent):
    """Base of the value agents, which build `network` and `target` (None where nothing is learned).

    `optimiser` is Adam's learning rate and epsilon. The setup's generator draws noise, quantile fractions
    and random actions.
    """

    def __init__(
        self,
        setup: Setup,
        options: QLearningOptions,
        network: DuellingNetwork,
        target: DuellingNetwork | None,
        optimiser: tuple[float, float],
    ) -> None:
        learning = setup.learning
        self.spec = ChunkSpec(learning.history_length, 0, CHUNK_LENGTH, options.multi_step, CHUNK_LENGTH, 1)
        self.generator = setup.generator
        self._learning = learning
        self._options = options
        self._slot = setup.slot
        self.new_at_largest = options.initial_priorities == "largest"
        self._multi_step = options.multi_step
        self.steps_per_update = self._update_steps = learning.replay_frequency
        self._noise_period = options.NOISE_CALLS or learning.replay_frequency  # calls between two draws of noise
        self._target_period = options.target_update  # agent steps that updates stand for
        self._device = setup.generator.device
        self._calls = 0  # of `act` since the last `load`
        self._weights: Weights | None = None
        self.network = network.to(self._device)
        self.parts: dict[str, Stateful] = {"model": self.network, "generator": RandomState(self.generator)}
        if target is not None:
            self.target = target.to(self._device).requires_grad_(False)
            self.target.load_state_dict(self.network.state_dict())
            lr, eps = optimiser
            on_gpu = self._device.type != "cpu"
            rate = torch.tensor(lr, device=self._device) if on_gpu and options.rate_decay else lr
            self._learned = [weight for weight in self.network.parameters() if weight.requires_grad]
            adam = Adam(self._learned, lr=rate, eps=eps, fused=True, capturable=on_gpu)
            self._adam = adam
            self._step = setup.optimisation(adam)
            self._expected: Batch | None = None  # of the next update
            self._begun: tuple[Batch, Begun] | None = None
            self.parts |= {"target": self.target, "optimiser": adam}

    # --- acting ---

    def load(self, weights: dict[str, Tensor], version: int) -> None:
        """Copy published weights into the network; the next `act` draws noise anew."""
        super().load(weights, version)
        self._calls = 0

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:
        """Act greedily under noise, or at random: before learn-start always, later a share of the actions.

        An evaluation of a network without noise takes random actions, too: a greedy policy may wait for ever.
        """
        if self._calls % self._noise_period == 0:
            self.network.draw_noise(self.generator)
            self._weights = self.network.weights()
        self._calls += 1
        stack = self._push(rows, state)
        assert self._weights is not None
        output = self.policy_output(stack.to(self._device), self._weights)
        greedy = output.values.argmax(1)  # [E]
        actions = self._explored(greedy, step, places)
        if self.new_at_largest:
            return ActorOutput(actions.cpu().numpy(), {}, self.version), {"stack": stack.numpy()}
        index = torch.arange(len(greedy), device=self._device)
        chosen, best = output.distribution[index, actions], output.distribution[index, greedy]
        extras = {"chosen": chosen, "greedy": best, **output.extras}
        arrays = {name: tensor.cpu().numpy() for name, tensor in extras.items()}
        return ActorOutput(actions.cpu().numpy(), arrays, self.version), {"stack": stack.numpy()}

    def _explored(self, greedy: Tensor, step: int | None, places: Array | None) -> Tensor:
        """Return the greedy actions [E], or random ones in the place of some."""
        begins = step is not None and step < self._learning.learn_start
        if not begins and not self._options.explores(step):
            return greedy
        nb_actions = self.network.nb_actions
        if begins:
            return torch.randint(nb_actions, greedy.shape, generator=self.generator, device=self._device)
        if step is None:
            return explored(greedy, EVALUATION_EPSILON, nb_actions, self.generator)
        numbers = self._slot.places(len(greedy), places)  # [E]
        epsilon = exploration_rates(numbers, self._slot.total, step, self._options).to(self._device)
        return explored(greedy, epsilon, nb_actions, self.generator)

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        if self._options.explores(None):
            return ActingProtocol("more random actions (--epsilon-end)", epsilon=EVALUATION_EPSILON)
        return ActingProtocol("actions under the same noise, and random ones (--epsilon-end)", noise=True)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection | None:
        """Return the distributions under the present noise; None before the first `act`."""
        if self._weights is None:
            return None
        return self.inspection(self._push(rows, state).to(self._device), self._weights)

    def _push(self, rows: Rows, state: Arrays) -> Tensor:
        obs = torch.from_numpy(rows.obs)  # [E, ...]
        if state:
            stack = torch.from_numpy(state["stack"])
        else:
            stack = obs.new_zeros((len(obs), self.spec.stack, *obs.shape[1:]))  # [E, S, ...]
        return push_frame(stack, obs, torch.from_numpy(rows.step_type == StepType.FIRST))

    def initial_priorities(self, rows: Arrays) -> Array:
        """Return loss^omega of a chunk's rows, from the outputs at rows t and t + n that acting has kept.

        Where new rows have the largest priority, these are its shares: 1.
        """
        if self.new_at_largest:
            return np.ones(self.spec.length, np.float32)
        start = torch.arange(self.spec.prefix, self.spec.prefix + self.spec.length)
        index = start + torch.arange(self._multi_step + 1)[:, None]  # [n + 1, B]
        output = {name.removeprefix("extras."): torch.tensor(rows[name]) for name in rows if name.startswith("extras.")}
        reward, discount, step_type = (torch.tensor(rows[name])[index] for name in ("reward", "discount", "step_type"))
        ahead = self._n_step(reward, discount, step_type)
        losses = self.initial_losses(
            {name: tensor[start] for name, tensor in output.items()}, output["greedy"][start + ahead.steps], ahead
        )
        return (losses**self.priority_exponent).numpy().astype(np.float32)

    @classmethod
    def sizes_of(cls, weights: dict[str, Tensor]) -> dict[str, Any]:
        """Return agent, sizes of the network and number of actions, as the weights' shapes show them.

        Snapshots of other programs hold no settings. Raises ValueError if these are not the layers of Rainbow-IQN or
        Rainbow.
        """
        quantiles = "iqn_fc.weight" in weights
        outputs, hidden_size = _shape(weights, "fcnoisy_z_v.weight_mu", 2)
        advantages, _ = _shape(weights, "fcnoisy_z_a.weight_mu", 2)
        sizes: dict[str, Any] = {
            "agent": "rainbow_iqn" if quantiles else "rainbow",
            "hidden_size": hidden_size,
            "nb_actions": advantages // outputs,
        }
        if quantiles:
            sizes["quantile_embedding_dim"] = _shape(weights, "iqn_fc.weight", 2)[1]
        else:
            sizes["atoms"] = outputs
        if "conv1.weight" in weights:
            _, sizes["history_length"], *kernel = _shape(weights, "conv1.weight", 4)
            first = {name: TRUNKS[name](1)[0] for name in PUBLISHED}
            fitting = [name for name, layer in first.items() if getattr(layer, "kernel_size", ()) == tuple(kernel)]
            if not fitting:
                raise ValueError(f"no architecture has a kernel like conv1.weight's, {shape_text(kernel)}")
            sizes["architecture"] = fitting[-1]
        return sizes

    # --- learning ---

    def update(self, batch: Batch, progress: float | Tensor = 0.0) -> Update:
        """Make one step of Adam on mean(weight · loss); the priorities come from the unweighted losses."""
        losses, values = self.losses(*self._take(batch))
        weighted = losses if batch.weights is None else batch.weights * losses  # [B]
        if self._options.rate_decay:
            self._adam.anneal(progress)
        self._step([Objective(weighted.mean(), self._learned)])
        losses = losses.detach()
        return Update(losses**self.priority_exponent, {"value": values.detach().mean(), "loss": losses.mean()})

    def update_bytes(self, batch_size: int) -> int:
        """Estimate the bytes of an update's activations beyond those for which the learner's budget has room."""
        return max(0, self.network.trunk_bytes(batch_size) + batch_size * self.head_bytes - _ROOM)

    def expect(self, batch: Batch, step: int) -> None:
        """Let the target network see the next batch while an update is made, unless it is renewed first.

        The main thread then seldom waits for the target network, which sees that batch in a second thread (`beside`).
        """
        if not self._renews_target(step):
            self._expected = batch

    def begin_next(self) -> None:
        """Begin with the batch of the next update, if it is known: when all is drawn for the present one."""
        expected, self._expected = self._expected, None
        if expected is not None:
            self._begun = expected, self._begin(expected)

    def _take(self, batch: Batch) -> Begun:
        """Return what was begun with this very batch, or begin now."""
        before, self._begun = self._begun, None
        return before[1] if before and before[0] is batch else self._begin(batch)

    def _begin(self, batch: Batch) -> Begun:
        transitions = self.transitions(batch)
        return transitions, self.target_pass(transitions)

    def _renews_target(self, step: int) -> bool:
        return step // self._target_period > (step - self._update_steps) // self._target_period

    def count_update(self, step: int) -> None:
        """Copy the online network to the target network whenever `step` passes a multiple of target-update."""
        if self._renews_target(step):
            with torch.no_grad():
                copies, originals = (list(acting_tensors(network).values()) for network in (self.target, self.network))
                torch._foreach_copy_(copies, originals)

    def transitions(self, batch: Batch) -> Transitions:
        """Cut n-step transitions out of sampled windows."""
        if (cut := batch.cut) is not None:  # the same, bit for bit, without copying the windows
            found = cut(self._multi_step, self._learning.discount, self._raw_clip)
            return found._replace(return_=self._scaled(found.return_))
        prefix = self.spec.prefix
        window = slice(prefix, prefix + self._multi_step + 1)
        ahead = self._n_step(batch.reward[window], batch.discount[window], batch.step_type[window])
        now = torch.full_like(ahead.steps, prefix)
        return Transitions(
            obs=stack_at(batch.obs, batch.step_type, now, self.spec.stack),
            action=batch.action[prefix].long(),
            return_=ahead.return_,
            discount=ahead.discount,
            next_obs=stack_at(batch.obs, batch.step_type, now + ahead.steps, self.spec.stack),
        )

    def _n_step(self, reward: Tensor, discount: Tensor, step_type: Tensor) -> NStep:
        ahead = n_step(clip_reward(reward, self._raw_clip), discount, step_type, self._learning.discount)
        return ahead._replace(return_=self._scaled(ahead.return_))

    @property
    def _raw_clip(self) -> float:
        """The bound of a raw reward, to which `--reward-clip` brings the scaled one."""
        return self._learning.reward_clip / self._learning.reward_scale

    def _scaled(self, return_: Tensor) -> Tensor:
        """Return sums of raw rewards in the unit of the scaled ones."""
        scale = self._learning.reward_scale
        return return_ if scale == 1 else return_ * scale

    def noisy(self, network: DuellingNetwork) -> Weights:
        """Return weights of a network under noise of their own: each forward pass of a loss draws anew."""
        network.draw_noise(self.generator)
        return network.weights()

    def sample_taus(self, *shape: int) -> Tensor:
        """Draw uniformly in [0, 1)."""
        return torch.rand(shape, generator=self.generator, device=self._device)

    # --- what an agent adds ---

    priority_exponent: float  # omega
    head_bytes: int  # that an update holds at once for a sample, behind the trunk

    @abstractmethod
    def policy_output(self, stack: Tensor, weights: Weights) -> PolicyOutput:
        """Return the acting network's output for stacks [E, S, ...]."""

    @abstractmethod
    def inspection(self, stack: Tensor, weights: Weights) -> Inspection:
        """Return the acting network's distributions for one stack [1, S, ...], and draw nothing."""

    @abstractmethod
    def target_pass(self, transitions: Transitions) -> Callable[[], Tensor]:
        """Draw, and begin what the targets need of the target network; the returned function waits for it."""

    @abstractmethod
    def losses(self, transitions: Transitions, target: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Draw, call `begin_next`, and return losses [B] and the values [B] of the actions taken."""

    @abstractmethod
    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """Return losses [B] of rows, from the output there and that of the greedy action at the bootstrap row."""


def _shape(weights: dict[str, Tensor], name: str, axes: int) -> list[int]:
    if name not in weights:
        raise ValueError(f"{name} is missing")
    shape = list(weights[name].shape)
    if len(shape) != axes or min(shape) < 1:
        raise ValueError(f"{name} is {shape_text(shape)}")
    return shape
