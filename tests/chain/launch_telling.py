"""As `launch`, but the on-policy family's learner tells how far its policy is from the one that acted.

A line for each update: the largest |log pi - log mu| among its rows, before it.
"""

import runpy
import sys

import torch
from torch import Tensor

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.agents.networks.core import RecurrentState
from rainbow_iqn_apex.agents.on_policy.agent import OnPolicy, Step
from rainbow_iqn_apex.agents.on_policy.rounds import Played

step = OnPolicy._step


def told(self: OnPolicy, rows: Played, recurrent: RecurrentState, places: Tensor) -> Step:
    begun = tuple(part[places[0]] for part in recurrent)
    with torch.no_grad():
        pi = self._policy.distribution(self.network(rows.inputs, begun)[0])
    log_ratio = pi.log_prob(rows.raw) - self._policy.distribution(rows.parameters).log_prob(rows.raw)
    print(f"Largest log ratio {log_ratio[rows.learnable].abs().max().item():.9f}", flush=True)
    return step(self, rows, recurrent, places)


if __name__ == "__main__":
    OnPolicy._step = told  # type: ignore[method-assign]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
