"""The whole update, from sampled rows to the new weights and priorities, equals a reference in float64.

Tolerances, as parts of the largest value compared: the agent computes in float32, whose numbers have a relative error
of 6e-8. A hidden unit sums 3136 products and a gradient passes through ten layers there and back: 5e-6 was measured,
and 3e-6 for losses, after two updates have added theirs. Adam divides by |g| + eps, which turns an error of a gradient
into one of a step, but a step is a tenth of a weight at most: 9e-6. Allowed is some ten times as much, which is far
less than the mistakes that this test is for.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.rows import Array, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.ground_truth.episodes import Stream, random_stream
from tests.ground_truth.published_network import PublishedNetwork
from tests.ground_truth.whole_update import Noise, Pass, Passes, ReferenceLearner, Result, Sample, Settings
from tests.specs import discrete

STACK, ACTIONS, HIDDEN, EMBEDDING, ATOMS, K, M, N = 4, 6, 13, 9, 11, 8, 5, 7
OPTIONS = (
    f"--history-length {STACK} --hidden-size {HIDDEN} --noisy-std 0.5 --quantile-embedding-dim {EMBEDDING} "
    f"--num-quantile-samples {K} --num-tau-prime-samples {M} --num-tau-samples {N} --atoms {ATOMS} --lr-IQN 1e-2 "
    "--lr-Rainbow 1e-2 --adam-eps-Rainbow 3.125e-4 --precision float32"
)
SIZES = {"rainbow_iqn": {"embedding": EMBEDDING}, "rainbow": {"atoms": ATOMS}}
CASES: dict[str, tuple[str, str, Settings]] = {
    "Rainbow-IQN": ("rainbow_iqn", "", Settings()),
    "Rainbow-IQN with another kappa and omega, two convolutions": (
        "rainbow_iqn",
        "--kappa 0.3 --priority-exponent-IQN 0.7 --architecture data-efficient",
        Settings(kappa=0.3, omega=0.7),
    ),
    "Rainbow-IQN with a clipped gradient, other rewards and discount": (
        "rainbow_iqn",
        "--max-gradient-norm 0.05 --reward-clip 0.5 --discount 0.8",
        Settings(max_norm=0.05, reward_clip=0.5, gamma=0.8),
    ),
    "Rainbow-IQN with a gradient too short to be clipped": (
        "rainbow_iqn",
        "--max-gradient-norm 100",
        Settings(max_norm=100),
    ),
    "Rainbow-IQN whose target network follows after two updates": (
        "rainbow_iqn",
        "--target-update 8 --replay-frequency 4",
        Settings(target_period=2),
    ),
    "Rainbow": ("rainbow", "", Settings(omega=0.5)),
    "Rainbow on a short support, two convolutions": (
        "rainbow",
        "--V-min -1 --V-max 1.5 --architecture data-efficient",
        Settings(omega=0.5, v_min=-1, v_max=1.5),
    ),
    "Rainbow with a clipped gradient and a following target": (
        "rainbow",
        "--max-gradient-norm 0.05 --target-update 4 --priority-exponent-Rainbow 0.9",
        Settings(omega=0.9, max_norm=0.05, target_period=1),
    ),
}


# --- rows ---


def pick(stream: Stream) -> list[int]:
    """Rows to learn from: all ways in which an episode can be near its begin or its end."""
    prefix, n = STACK - 1, Settings().n
    rows = [t for t in range(prefix, len(stream.step_type) - n) if stream.step_type[t] != StepType.LAST]
    wanted: list[Any] = [lambda _, left, __: left > n]
    for steps in range(1, n + 1):  # a true end and a truncation, 1, 2 and 3 steps ahead
        wanted += [lambda _, left, end, m=steps, e=end: (left, end) == (m, e) for end in (0, 1)]
    wanted += [lambda step, left, _, first=first: step == first and left > n for first in range(STACK)]  # stacks
    wanted += [lambda step, left, end, e=end: (step, left, end) == (0, 1, e) for end in (0, 1)]  # episodes of one step
    picked = []
    for fits in wanted:
        places = {t: stream.places[t] for t in rows if t not in picked}
        lengths = {t: (step, len(e.rewards) - step, e.discounts[-1]) for t, (e, step) in places.items()}
        picked.append(next(t for t, place in lengths.items() if fits(*place)))
    return picked


def batch_of(stream: Stream, rows: list[int], actions: list[int], weights: Array) -> Batch:
    """The rows as replay gives them: windows side by side."""
    window = np.array(rows) + np.arange(1 - STACK, Settings().n + 1)[:, None]  # [T, B]
    action = np.full(window.shape, -9, np.int32)  # at other rows than the sampled one nobody may look at it
    action[STACK - 1] = actions
    columns = {
        "obs": torch.from_numpy(stream.obs[window]),
        "step_type": torch.from_numpy(stream.step_type[window]),
        "reward": torch.from_numpy(stream.reward[window]).float(),
        "discount": torch.from_numpy(stream.discount[window]).float(),
        "action": torch.from_numpy(action),
    }
    places = torch.zeros(len(rows))
    return Batch(columns, {}, torch.from_numpy(weights).float(), indices=places, generations=places)


# --- what the agent draws ---


class Recorder:
    """Notes what an agent draws, and the losses of single samples, which `update` does not return."""

    def __init__(self, agent: QLearningAgent) -> None:
        self.noise: list[tuple[str, Noise]] = []
        self.taus: list[Tensor] = []
        self.losses = torch.empty(0)
        sample_taus, losses = agent.sample_taus, agent.losses

        def noting_taus(*shape: int) -> Tensor:
            self.taus.append(sample_taus(*shape))
            return self.taus[-1]

        def noting_losses(transitions: Any, target: Any) -> Any:
            result = losses(transitions, target)
            self.losses = result[0].detach()
            return result

        agent.sample_taus, agent.losses = noting_taus, noting_losses  # type: ignore[method-assign]
        self._note_noise("online", agent.network)
        self._note_noise("target", agent.target)

    def _note_noise(self, name: str, network: Any) -> None:
        draw = network.draw_noise

        def noting(generator: torch.Generator) -> None:
            draw(generator)
            layers = [key.removesuffix(".bias_mu") for key, _ in network.named_parameters() if key.endswith("bias_mu")]
            parts = {layer: getattr(network, layer) for layer in layers}
            noise = {key: (part.weight_epsilon.clone(), part.bias_epsilon.clone()) for key, part in parts.items()}
            self.noise.append((name, noise))

        network.draw_noise = noting

    def take(self, quantiles: bool, batch: int) -> Passes:
        """The draws of one update, which must be as many as the formulas need, and all different."""
        assert [name for name, _ in self.noise] == ["target", "online", "online"]
        noises = [noise for _, noise in self.noise]
        assert [tuple(taus.shape) for taus in self.taus] == ([(M, batch), (K, batch), (N, batch)] if quantiles else [])
        values = [value for noise in noises for value in noise["fcnoisy_h_v"][1].tolist()]
        values += [value for taus in self.taus for value in taus.flatten().tolist()]
        assert len(set(values)) == len(values) > 0, "every number is drawn for one use"
        taus = [taus.double().numpy() for taus in self.taus] or [np.empty((0, batch))] * 3
        self.noise, self.taus = [], []
        target, policy, online = (Pass(noise, tau) for noise, tau in zip(noises, taus, strict=True))
        return Passes(policy, target, online)


# --- the comparison ---


def pair_of(case: str) -> tuple[QLearningAgent, ReferenceLearner]:
    """An agent whose target network is not its online one, and a reference with the same weights."""
    name, more, settings = CASES[case]
    args = options.parse([*OPTIONS.split(), *more.split(), "--rainbow-only", str(int(name == "rainbow"))], "test", "")
    agent = make_agent(args, discrete((84, 84), "uint8", ACTIONS), torch.device("cpu"), learns=True, seed=1)
    other = make_agent(args, discrete((84, 84), "uint8", ACTIONS), torch.device("cpu"), learns=True, seed=2)
    assert isinstance(agent, QLearningAgent) and isinstance(other, QLearningAgent)
    agent.target.load_state_dict(other.network.state_dict())
    networks = []
    for ours in (agent.network, agent.target):
        networks.append(
            PublishedNetwork(STACK, ACTIONS, HIDDEN, **SIZES[name], architecture=args.get("architecture"), std=0.5)
        )
        networks[-1].load_state_dict(ours.state_dict())
    online, target = networks
    return agent, ReferenceLearner(online, target, settings)


def compare(case: str, what: str, ours: Any, wanted: Array, tolerance: float) -> None:
    """Within a part of the largest value."""
    error = np.abs(np.asarray(ours, np.float64) - wanted).max() / np.abs(wanted).max()
    assert error < tolerance, f"{case}: {what} is off by {error:.2g} of its largest value"


def check(agent: QLearningAgent, reference: ReferenceLearner, case: str, result: Result, update: Any) -> None:
    compare(case, "a priority", update.priorities, result.priorities, 1e-5)
    compare(case, "the mean loss", update.metrics["loss"], result.losses.mean(), 1e-5)
    compare(case, "the mean value", update.metrics["value"], result.values.mean(), 1e-4)
    for name, parameter in agent.network.named_parameters():
        compare(case, f"the gradient of {name}", parameter.grad, result.gradients[name], 5e-5)
        compare(case, name, parameter.detach(), reference.parameters[name].detach().numpy(), 1e-4)
    for name, parameter in agent.target.named_parameters():
        wanted = dict(reference.target.named_parameters())[name].detach().numpy()
        compare(case, f"the target's {name}", parameter, wanted, 1e-4)


@pytest.mark.parametrize("case", CASES)
def test_updates_equal_the_reference(case: str) -> None:
    agent, reference = pair_of(case)
    # Of some seeds a unit of a convolution is so near 0 that float32 gives it a gradient, and float64 none.
    recorder, rng = Recorder(agent), np.random.default_rng(7)
    norms = []
    for number in (1, 2, 3):
        stream = random_stream(rng, 600, (84, 84))
        rows = pick(stream)
        actions, weights = [int(a) for a in rng.integers(ACTIONS, size=len(rows))], rng.uniform(0.2, 1, len(rows))
        samples = [Sample(*stream.places[t], action) for t, action in zip(rows, actions, strict=True)]
        update = agent.update(batch_of(stream, rows, actions, weights))
        agent.count_update(4 * number)  # the default replay frequency
        result = reference.update(samples, weights, recorder.take(bool(reference.network.embedding), len(rows)))
        assert result.margin > 1e-5, "or float32 might choose another action"
        compare(case, "a loss", recorder.losses, result.losses, 1e-5)
        check(agent, reference, case, result, update)
        norms.append(result.norm)
    if limit := reference.settings.max_norm:
        assert (max(norms) > limit) == ("clipped gradient" in case), norms
