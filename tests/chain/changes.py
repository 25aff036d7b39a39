"""Changes to the programs that tests want, each made in a process before its program begins; all add the chain."""

import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.interface import Update
from rainbow_iqn_apex.agents.networks.core import RecurrentState
from rainbow_iqn_apex.agents.on_policy.agent import OnPolicy, Step
from rainbow_iqn_apex.agents.on_policy.losses import RoundRows
from rainbow_iqn_apex.agents.reinforce.agent import Reinforce
from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.broker import actor_client, connection
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker import scripts as lua
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.messages import Message, encode_message
from rainbow_iqn_apex.memory.rows import Row
from rainbow_iqn_apex.programs.learner import checkpointer, results_folder
from tests.chain.environment import ChainEnvironment

TTL_S = 3.0  # of leases that end soon
HELD_AT = 460  # steps of one actor
REQUEST_S = 4.0  # deadline of a request, which exceeds a blocking read
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


def nothing() -> None:
    """Change nothing."""


def silent() -> None:
    """Let IMPALA give no metrics."""
    update = Impala.update
    Impala.update = lambda *given: update(*given)._replace(metrics={})  # type: ignore[method-assign]


def ahead() -> None:
    """Set the clock of an actor an hour ahead of the learner's and of the Redis server's."""
    if sys.argv[0] == "launch_actor.py":
        exact = time.time
        time.time = lambda: exact() + 3600


def corrupting() -> None:
    """Damage an actor's messages now and then, whatever they hold; its own state stays whole."""
    dice = random.Random(1)

    def encode(message: Message) -> bytes:
        data = encode_message(message)
        return data if dice.random() > 0.15 else data[: len(data) // 2]

    actor_client.encode_message = encode  # type: ignore[attr-defined]


def disturbed() -> None:
    """Let leases end soon, the actors' clocks be ahead, and the learner die at its end."""
    hurried()
    ahead()
    dying()


def dying() -> None:
    """Kill the first learner of a folder just before it would write that its run has finished."""
    write = LearnerClient.write_progress

    def die_at_the_end(self: LearnerClient, status: str, *rest: Any, **named: Any) -> None:
        died = Path(sys.argv[sys.argv.index("--path-to-results") + 1], "died")
        if status == "finished" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, status, *rest, **named)

    LearnerClient.write_progress = die_at_the_end  # type: ignore[method-assign]


def hasty() -> None:
    """Give a server up that is away for five seconds."""
    sys.argv += ["--redis-timeout", "5"]


def held() -> None:
    """Let actor 0 wait before a step until its run's folder has a file `go`, so that the run is not over before."""
    if sys.argv[:3] != ["launch_actor.py", "--id-actor", "0"]:
        return
    step, steps, folder = ChainEnvironment.step, count(1), sys.argv[sys.argv.index("--path-to-results") + 1]

    def hold(self: ChainEnvironment, action: int) -> Row:
        if next(steps) == HELD_AT:
            while not Path(folder, "go").exists():
                time.sleep(0.01)
        return step(self, action)

    ChainEnvironment.step = hold  # type: ignore[method-assign, assignment]


def hurried() -> None:
    """Let leases end soon, deadlines too, and save often, as the log is trimmed with each checkpoint."""
    _replace(lease, "TTL_MS", int(TTL_S * 1000))
    _replace(connection, "_SOCKET_TIMEOUT_S", REQUEST_S)
    _replace(lua, "COMMIT", lua.COMMIT.replace("'PX', 10000", f"'PX', {int(TTL_S * 1000)}"))
    _replace(checkpointer, "_INTERVAL_S", 1.0)


def _replace(module: object, name: str, value: object) -> None:
    assert getattr(module, name) != value, f"{name} is what it was"
    setattr(module, name, value)


def impatient() -> None:
    """Print what is waited for each second."""
    _replace(waiting, "INTERVAL_S", 1.0)


def naming() -> None:
    """Give REINFORCE's updates metrics of all kinds of names, and more of them than are kept."""
    update, updates = Reinforce.update, count()

    def named(self: Reinforce, batch: Batch, progress: float | Tensor) -> Update:
        made, number = update(self, batch, progress), next(updates)
        own = {name: torch.tensor(place) for place, name in enumerate(SHOWN, 1)}  # whole numbers
        own |= {"seldom": torch.tensor(0.5)} if number % 7 == 3 else {}
        own |= {f"{number} of many": torch.tensor(0.25)} if number else {}  # another with each update
        return made._replace(metrics=made.metrics | own)

    Reinforce.update = named  # type: ignore[method-assign]


def saving_often() -> None:
    """Do whatever a clock decides at every opportunity: snapshots after each round, and plots."""
    checkpointer._INTERVAL_S = 0.0
    results_folder._PLOT_INTERVAL_S = 0.0


def slow() -> None:
    """Let every update of IMPALA take as long as some hundred of the actors' steps."""
    update = Impala.update

    def slowly(self: Impala, batch: Batch, progress: float | Tensor) -> Update:
        time.sleep(0.05)
        return update(self, batch, progress)

    Impala.update = slowly  # type: ignore[method-assign]


def telling() -> None:
    """Print before each update of the on-policy family the largest |log pi - log mu| among its rows."""
    step = OnPolicy._step

    def told(self: OnPolicy, rows: RoundRows, recurrent: RecurrentState, places: Tensor) -> Step:
        begun = tuple(part[places[0]] for part in recurrent)
        with torch.no_grad():
            pi = self._policy.distribution(self.network(rows.inputs, begun)[0])
        log_ratio = pi.log_prob(rows.raw) - self._policy.distribution(rows.parameters).log_prob(rows.raw)
        print(f"Largest log ratio {log_ratio[rows.learnable].abs().max().item():.9f}", flush=True)
        return step(self, rows, recurrent, places)

    OnPolicy._step = told  # type: ignore[method-assign]
