"""Networks that read sequences: an encoder, perhaps an LSTM, which sees last action and reward, and a policy's head.

Rule 4 of the rows: the recurrent state is reset at FIRST. The same code runs for one row, when acting, and for many.
Letters: T rows, B batch, S stack, F features, H units of the LSTM, P parameters of a policy's distribution.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.distributions import PolicySpec
from rainbow_iqn_apex.agents.networks.encoder import Encoder, EncoderSpec
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete

_LSTM_NUMBERS = 12  # that a unit keeps of a row: its gates, cell and output, and gradients of the gates

RecurrentState = tuple[Tensor, ...]  # hidden and cell state, [B, H] each; empty without an LSTM
LOWEST_LOG_STD, HIGHEST_LOG_STD = -5.0, 2.0  # of a policy's head
POLICY_GAIN, VALUE_GAIN = 0.01, 1.0  # of orthogonal first weights of the heads (Andrychowicz et al. 2020)


class Inputs(NamedTuple):
    """Holds the rows of a sequence as a network sees them."""

    obs: Tensor  # [T, B, S, ...]
    first: Tensor  # [T, B] bool: rows that open an episode
    reward: Tensor  # [T, B] float32, the last reward as the network shall see it
    action: Tensor  # [T, B, ...] the last action, as the environment's spec describes it; ignored at FIRST

    def rows(self, start: int, stop: int | None = None) -> "Inputs":
        """Return a part of the sequence."""
        return Inputs(*(part[start:stop] for part in self))


@dataclass(frozen=True)
class CoreSpec:
    """Sizes of a core."""

    torso: EncoderSpec
    action: ActionSpec
    lstm: int  # H; 0: none
    initial_time_scale: int  # rows that the LSTM may remember at first


class Core(nn.Module):
    """Features [T, B, `nb_features`] of a sequence, and the recurrent state after it."""

    def __init__(self, spec: CoreSpec) -> None:
        super().__init__()
        self._action = spec.action
        self.torso = Encoder(spec.torso)
        inputs = spec.torso.features + 1 + action_numbers(spec.action)
        self.lstm = _lstm(inputs, spec.lstm, spec.initial_time_scale) if spec.lstm else None
        if self.lstm is not None and not spec.torso.learns:  # their bytes are what a row costs, as in the encoder
            for weight in (self.lstm.weight_ih_l0, self.lstm.weight_hh_l0):
                weight.data = weight.data.to(self.torso.precision)
        self.nb_features = spec.lstm or spec.torso.features
        self._lstm_numbers = inputs + _LSTM_NUMBERS * spec.lstm if spec.lstm else 0

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return features, and the recurrent state after the last row; `recurrent` is that before the first row."""
        T, B = inputs.first.shape
        features = self.torso(inputs.obs.flatten(0, 1)).view(T, B, -1)  # [T, B, F]
        if self.lstm is None:
            return features, ()
        known = ~inputs.first.unsqueeze(2)  # [T, B, 1] at FIRST there is no last action
        action = shown_action(inputs.action, self._action) * known  # [T, B, A]
        x = torch.cat((features, inputs.reward.unsqueeze(2) * known, action), 2)  # [T, B, F + 1 + A]
        return self._remember(self.lstm, x, inputs.first, recurrent)

    def update_bytes(self, rows: int, learned: int, beside: int = 0) -> int:
        """Estimate the bytes that an update holds at once for so many rows, `learned` of them with gradient."""
        return self.torso.update_bytes(rows, learned, beside) + 4 * learned * self._lstm_numbers

    def _remember(
        self, lstm: nn.LSTM, x: Tensor, first: Tensor, recurrent: RecurrentState
    ) -> tuple[Tensor, RecurrentState]:
        """Run the LSTM over stretches of rows, of which only the first can open an episode."""
        outputs = []
        (hidden, cell) = recurrent
        starts = _starts(first)
        for start, stop in zip(starts, [*starts[1:], len(first)], strict=True):
            kept = ~first[start].unsqueeze(1)  # [B, 1]
            output, (hidden, cell) = _run(lstm, x[start:stop], (hidden * kept, cell * kept))
            outputs.append(output)
        return torch.cat(outputs), (hidden, cell)


def action_numbers(spec: ActionSpec) -> int:
    """Count the numbers of an action as a network gets it."""
    if isinstance(spec, Discrete):
        return spec.count
    return spec.size if isinstance(spec, Box) else sum(spec.counts)


def shown_action(action: Tensor, spec: ActionSpec) -> Tensor:
    """Return actions [...] of a spec as a network gets them, [..., `action_numbers`] float32.

    A choice is one-hot, several choices are that one after the other, and the numbers of a Box stay as they are.
    """
    if isinstance(spec, Box):
        return action
    if isinstance(spec, Discrete):
        return _one_hot(action, spec.count)
    return torch.cat([_one_hot(action[..., k], count) for k, count in enumerate(spec.counts)], -1)


def _one_hot(choice: Tensor, count: int) -> Tensor:
    return (choice.unsqueeze(-1) == torch.arange(count, device=choice.device)).float()


def _run(lstm: nn.LSTM, x: Tensor, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
    """Return an LSTM's outputs for x [T, B, ...], and its recurrent state after them."""
    if len(x) == 1:  # a CPU's library for sequences would sort the weights first: with 512 units, for ten times as long
        after = _step(lstm, x[0], recurrent)
        return after[0].unsqueeze(0), after
    hidden, cell = recurrent
    output, (hidden, cell) = lstm(x, (hidden.unsqueeze(0), cell.unsqueeze(0)))
    return output, (hidden[0], cell[0])


def _step(lstm: nn.LSTM, x: Tensor, recurrent: RecurrentState) -> RecurrentState:
    """Return the state after one row x [B, ...]; only products are computed in the precision of the weights."""
    hidden, cell = recurrent
    w_x, w_h, b_x, b_h = lstm.all_weights[0]
    if w_x.dtype == x.dtype:
        return torch.lstm_cell(x, recurrent, w_x, w_h, b_x, b_h)
    gates = functional.linear(x.to(w_x.dtype), w_x).float() + functional.linear(hidden.to(w_h.dtype), w_h).float()
    entry, kept, new, shown = (gates + b_x + b_h).chunk(4, 1)  # [B, H] each
    cell = kept.sigmoid() * cell + entry.sigmoid() * new.tanh()
    return shown.sigmoid() * cell.tanh(), cell


def _lstm(inputs: int, units: int, rows: int) -> nn.LSTM:
    """Return an LSTM whose units at first remember for 1 to `rows` rows (Tallec and Ollivier 2018, arXiv 1804.11188).

    Forget gates of a usual bias have halved a memory after one or two rows: no gradient finds what was 20 rows before.
    """
    lstm = nn.LSTM(inputs, units)
    bias = torch.empty(units).uniform_(1, max(2, rows - 1)).log()
    with torch.no_grad():  # PyTorch's order of gates: input, forget, cell, output
        lstm.get_parameter("bias_hh_l0")[:units] = -bias
        lstm.get_parameter("bias_hh_l0")[units : 2 * units] = bias
    return lstm


def _starts(first: Tensor) -> list[int]:
    """Return the rows at which an episode begins, and row 0; on a GPU all rows, as no value may be looked at there."""
    if not first.is_cpu or len(first) == 1:
        return list(range(len(first)))
    rows: list[int] = first.any(1).nonzero().flatten().tolist()
    return rows if rows[:1] == [0] else [0, *rows]


class PolicyHead(nn.Module):
    """Parameters [..., P] float32 of a `PolicySpec`'s distribution, from features [..., F].

    The standard deviations of a Box are learned numbers beside the network, which begin with 1, or with
    `state_dependent_std` outputs of it. These are bounded: log std = -5 + 3.5 (tanh(x) + 1), as in Yarats and
    Kostrikov's SAC (github.com/denisyarats/pytorch_sac). SAC's own clamp has no gradient that leads back from beyond
    a bound; tanh's grows small, but does not end at it.
    """

    def __init__(self, features: int, spec: PolicySpec, *, state_dependent_std: bool = False) -> None:
        super().__init__()
        numbers = spec.action.size if isinstance(spec.action, Box) else 0
        self._bounded = numbers if state_dependent_std else 0  # outputs that are logarithms of standard deviations
        free = numbers - self._bounded
        self.linear = nn.Linear(features, spec.nb_parameters - free)
        self.log_std = nn.Parameter(torch.zeros(free)) if free else None

    def forward(self, features: Tensor) -> Tensor:
        """Return parameters [..., P]."""
        output: Tensor = self.linear(features)  # [..., P], or [..., K] beside a log_std
        if self.log_std is not None:
            return torch.cat((output, self.log_std.expand_as(output)), -1)
        if self._bounded:
            mean, x = output.chunk(2, -1)  # [..., K] each
            half = (HIGHEST_LOG_STD - LOWEST_LOG_STD) / 2
            return torch.cat((mean, LOWEST_LOG_STD + half * (x.tanh() + 1)), -1)
        return output
