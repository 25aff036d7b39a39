"""PQN: parallelised Q-network (Gallici et al. 2024, arXiv 2407.04811).

Its actors play a round with the present weights, epsilon-greedily; it makes `epochs` times `minibatches` updates of
what they played, and so on. The targets are lambda-returns of the weights that acted, computed once a round
(algorithm 1: Q(lambda), which is the value that GAE implies, with max_a Q in the place of V). A truncated episode
bootstraps from its last observation; the authors' code (github.com/mttga/purejaxql) takes it for a true end. The trace
is not cut where an action was not the best one (Peng's Q(lambda), as in the paper). It has neither replay nor target
network: layer norm behind every layer but the last keeps it stable.
Not implemented: the paper's recurrent network, and batch norm of the inputs.
Letters: T rows of a sequence, B sequences, E environments, A actions, F features.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.interface import Setup, Stateful, Update
from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, RecurrentState
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.masks import deal_rows, masked_mean
from rainbow_iqn_apex.agents.ops.vtrace import gae
from rainbow_iqn_apex.agents.optimisation import Objective, RAdam
from rainbow_iqn_apex.agents.policy import Acted, ActingProtocol, ActorOutput, Inspection
from rainbow_iqn_apex.agents.pqn.options import PqnOptions
from rainbow_iqn_apex.agents.randomness import EVALUATION_EPSILON, RandomState, explored
from rainbow_iqn_apex.agents.sequences import SequenceAgent, core_spec
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows

_ROWS_AT_ONCE = 4096  # of a round whose values are computed without gradient


class QNetwork(Network):
    """Q-values of sequences: a linear layer behind the core, whose layers are normalised."""

    def __init__(self, spec: CoreSpec, nb_actions: int) -> None:
        super().__init__()
        self.core = Core(replace(spec, torso=replace(spec.torso, normalised=True)))
        for layer in self.core.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):  # as the authors' network begins
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        self.q = nn.Linear(self.core.nb_features, nb_actions)

    def forward(self, inputs: Inputs, recurrent: RecurrentState = ()) -> tuple[Tensor, RecurrentState]:
        """Return Q-values [T, B, A] and the recurrent state after the sequence, which has no numbers."""
        features, recurrent = self.core(inputs, recurrent)
        return self.q(features), recurrent


class Pqn(SequenceAgent):
    """The agent of `--agent pqn`."""

    buffer = "queue"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.own
        assert isinstance(options, PqnOptions)
        self._options = options
        length = options.unroll_length
        self.spec = ChunkSpec(setup.learning.history_length, 0, length, 1, length, length, prioritised=False)
        sizes = core_spec(setup, options.architecture, options.hidden_size, 0, length)
        self.network = QNetwork(sizes, setup.nb_actions).to(self._device)
        self.core = self.network.core
        self.parts: dict[str, Stateful] = {"model": self.network, "generator": RandomState(self.generator)}
        if setup.learns:
            self._learned = list(self.network.parameters())
            self._radam = RAdam(self._learned, options.lr_PQN)
            self._optimise = setup.optimisation(self._radam)
            self.parts["optimiser"] = self._radam

    # --- acting ---

    @torch.inference_mode()
    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:  # noqa: ARG002 - all explore alike
        """Act at random with the probability epsilon of the run's step, or of an evaluation, else greedily."""
        inputs, _, stack = self.acting_inputs(rows, state)
        greedy = self.network(inputs)[0][0].argmax(1)  # [E]
        epsilon = EVALUATION_EPSILON if step is None else self._epsilon(step)
        actions = explored(greedy, epsilon, self.network.q.out_features, self.generator)
        return ActorOutput(actions.cpu().numpy(), {}, self.version), self.next_state(stack, actions, ())

    def _epsilon(self, step: int) -> float:
        share = min(1.0, step / self._options.exploration_steps)
        return 1 + share * (self._options.exploration_end - 1)

    def acting_protocol(self) -> ActingProtocol:
        """Return how an evaluation chooses actions."""
        return ActingProtocol("more random actions (--exploration-end)", epsilon=EVALUATION_EPSILON)

    @torch.inference_mode()
    def inspect(self, rows: Rows, state: Arrays) -> Inspection:
        """Return the Q-values."""
        inputs, _, _ = self.acting_inputs(rows, state)
        return Inspection("values", self.network(inputs)[0][0, 0].cpu().numpy())

    # --- learning ---

    def update(self, batch: Batch, progress: float | Tensor) -> Update:
        """Make the updates of a round."""
        if self._options.rate_decay:
            self._radam.anneal(progress)
        inputs, _ = self.learning_inputs(batch)  # [T + 1, B, ...]
        rows = slice(self.spec.prefix, None)
        reward, discount, step_type = self.shown_reward(batch.reward[rows]), batch.discount[rows], batch.step_type[rows]
        gamma = self._learning.discount
        trace = self._options.trace_lambda
        target = gae(self._best(inputs), reward, discount, step_type, gamma, trace).value.flatten()  # [T * B]
        action = batch.action[rows][:-1].long().flatten()  # [T * B]
        flat = Inputs(*(part[:-1].flatten(0, 1) for part in inputs))  # [T * B, ...]
        learnable = step_type[:-1] != LAST  # [T, B]
        steps: list[dict[str, Tensor]] = []  # metrics of each
        for _ in range(self._options.epochs):
            for places in deal_rows(learnable, self._options.minibatches, self.generator, self._ranks):
                chosen = Inputs(*(part[places] for part in flat))  # [1, n, ...]
                steps.append(self._step(chosen, action[places], target[places]))
        return Update(None, {name: torch.stack([metrics[name] for metrics in steps]).mean() for name in steps[0]})

    def _step(self, inputs: Inputs, action: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Make one step of RAdam on half the mean squared difference of rows [1, n, ...]; returns metrics."""
        q, _ = self.network(inputs)  # [1, n, A]
        value = q.gather(2, action.unsqueeze(2)).squeeze(2)  # [1, n]
        rows = torch.ones_like(value, dtype=torch.bool)
        loss = 0.5 * masked_mean((value - target).square(), rows, self._ranks)
        norm = self._optimise([Objective(loss, self._learned)])
        return {"value": masked_mean(value.detach(), rows, self._ranks), "loss": loss.detach(), "gradient_norm": norm}

    @torch.no_grad()
    def _best(self, inputs: Inputs) -> Tensor:
        """Return the values [T, B] of the best actions, a stretch of rows after the other."""
        T, B = inputs.first.shape
        stretch = max(1, _ROWS_AT_ONCE // B)
        return torch.cat([self.network(inputs.rows(t, t + stretch))[0].amax(2) for t in range(0, T, stretch)])

    def update_bytes(self, batch_size: int) -> int:
        """Estimate the bytes of an update: a round's stacks, and the activations of a minibatch."""
        rows = batch_size * (self.spec.length + 1)
        return self.core.update_bytes(rows, -(-rows // self._options.minibatches))
