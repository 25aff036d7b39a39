"""As `launch`, but REINFORCE's updates have metrics of all kinds of names, and more of them than are kept."""

import runpy
import sys
from itertools import count

import torch
from torch import Tensor

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex.agents.interface import Update
from rainbow_iqn_apex.agents.reinforce.agent import Reinforce
from rainbow_iqn_apex.memory.batch import Batch

SHOWN = {  # by the agent's names
    "loss of/the critic α": "train/loss_of/the_critic_α",
    "loss_of/the_critic_α": "train/loss_of/the_critic_α_2",
    "n_updates": "train/n_updates_2",
    "version": "train/version_2",
    "": "train/_",
    '<b>"bold"</b>\n\x1b[2J\ud800': 'train/<b>"bold"</b>__[2J_',
    "long" * 1000: "train/" + "long" * 13 + "lo",
    "long" * 2000: "train/" + "long" * 13 + "_2",
}
_UPDATES = count()

if __name__ == "__main__":
    update = Reinforce.update

    def named(self: Reinforce, batch: Batch, progress: float | Tensor) -> Update:
        made, number = update(self, batch, progress), next(_UPDATES)
        own = {name: torch.tensor(place) for place, name in enumerate(SHOWN, 1)}  # whole numbers
        own |= {"seldom": torch.tensor(0.5)} if number % 7 == 3 else {}
        own |= {f"{number} of many": torch.tensor(0.25)} if number else {}  # another with each update
        return made._replace(metrics=made.metrics | own)

    Reinforce.update = named  # type: ignore[method-assign]
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
