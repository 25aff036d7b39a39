"""The options of the outward interface, and how a test gives them to the parser."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.args import Args, parse
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import flag_of

# The table of the outward interface: option, default.
INTERFACE: list[tuple[str, Any]] = [
    ("--seed", 123),
    ("--disable-cuda", False),
    ("--disable-cudnn", False),
    ("--game", "space_invaders"),
    ("--proba-sticky-actions", 0.25),
    ("--T-max", 50_000_000),
    ("--history-length", 4),
    ("--action-repeat", 4),
    ("--hidden-size", 512),
    ("--noisy-std", 0.1),
    ("--model", None),
    ("--memory-capacity", 1_000_000),
    ("--replay-frequency", 4),
    ("--priority-weight", 0.4),
    ("--multi-step", 3),
    ("--discount", 0.99),
    ("--target-update", 32_000),
    ("--reward-clip", 1.0),
    ("--batch-size", 32),
    ("--learn-start", 80_000),
    ("--evaluation-interval", 500_000),
    ("--evaluation-episodes", 100),
    ("--evaluation-size", 500),
    ("--log-interval", 25_000),
    ("--render", False),
    ("--host-redis", "localhost"),
    ("--port-redis", 6379),
    ("--weight-synchro-frequency", 400),
    ("--length-actor-buffer", 1000),
    ("--nb-actor", 1),
    ("--id-actor", -1),
    ("--nb-eval-actors", 0),
    ("--id-eval-actor", -1),
    ("--queue-size", 1),
    ("--kappa", 1.0),
    ("--num-tau-samples", 64),
    ("--num-tau-prime-samples", 64),
    ("--num-quantile-samples", 32),
    ("--quantile-embedding-dim", 64),
    ("--priority-exponent-IQN", 0.2),
    ("--lr-IQN", 5e-5),
    ("--adam-eps-IQN", 3.125e-4),
    ("--rainbow-only", False),
    ("--atoms", 51),
    ("--V-min", -10.0),
    ("--V-max", 10.0),
    ("--priority-exponent-Rainbow", 0.5),
    ("--lr-Rainbow", 6.25e-5),
    ("--adam-eps-Rainbow", 1.5e-4),
    ("--gpu-number", 0),
    ("--disable-SABER-mode", False),
    ("--synchronize-actors-with-learner", True),
    ("--path-to-results", Path("results/")),
    ("--force", False),
]
FLAGS = {"--disable-cuda", "--disable-cudnn", "--render", "--disable-SABER-mode", "--force"}
BOOLEANS = sorted(option for option, default in INTERFACE if isinstance(default, bool))
OWN = {name: {flag_of(f.name) for f in dataclasses.fields(entry.options)} for name, entry in AGENTS.items()}
# The commands of the outward interface, word for word.
COMMANDS = [
    "--memory-capacity 100000 --learn-start 8000 --log-interval 2500",
    "--id-actor 0 --memory-capacity 100000 --learn-start 8000 --log-interval 2500",
    "--nb-actor 6 --synchronize-actors-with-learner False",
    "--nb-actor 6 --id-actor 3 --gpu-number 1 --host-redis 10.0.0.7 --synchronize-actors-with-learner False",
    "",
]


def read(*argv: object) -> Args:
    return parse([str(word) for word in argv], "launch_learner.py", "Train.")


def name_of(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def agent_of(option: str) -> list[str]:
    """The words that choose an agent which has the option."""
    return ["--agent", "rainbow"] if option in OWN["rainbow"] - OWN["rainbow_iqn"] else []


def value_of(option: str, *argv: str) -> Any:
    return read(*argv, *agent_of(option)).get(name_of(option))


def errors_of(*argv: object) -> list[str]:
    with pytest.raises(UserError) as caught:
        read(*argv)
    return str(caught.value).splitlines()
