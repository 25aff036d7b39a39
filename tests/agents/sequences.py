"""Agents that learn from sequences, small, and what these and other agents play in random episodes."""

from typing import Any, NamedTuple

import numpy as np
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.sequences import SequenceAgent
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Arrays, Row, Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.specs import discrete

CPU = torch.device("cpu")
ACTIONS = 3
ENVIRONMENT = discrete((5,), "uint8", ACTIONS)
SETTINGS = {
    "impala": "--agent impala --unroll-length 7 --hidden-size 9 --batch-size 4",
    "impala-lstm": "--agent impala --unroll-length 7 --hidden-size 9 --lstm-size 6 --batch-size 4",
    "impala-mix": "--agent impala --unroll-length 7 --hidden-size 9 --lstm-size 6 --batch-size 4 --replay-mix "
    "queue:0.5,elite:0.25:30,prioritised:0.25:20 --policy-cloning-cost 0.2 --value-cloning-cost 0.3 "
    "--trust-threshold 0.5 --impact-target-period 2 --feature-projection 4",
    "pqn": "--agent pqn --unroll-length 7 --hidden-size 9 --minibatches 2",
    "ppo": "--agent ppo --unroll-length 7 --mlp-size 9 --minibatches 2 --epochs 2",
    "vmpo-lstm": "--agent vmpo --unroll-length 7 --hidden-size 9 --lstm-size 6 --minibatches 2 --epochs 2 "
    "--minibatch-split sequences",
    "sac-lstm": "--agent sac --burn-in 4 --sequence-length 7 --sequence-period 5 --multi-step 2 --hidden-size 9 "
    "--lstm-size 6 --batch-size 4 --learn-start 60 --memory-capacity 400",
    "r2d2": "--agent r2d2 --burn-in 4 --sequence-length 8 --sequence-period 4 --multi-step 3 --hidden-size 9 "
    "--lstm-size 6 --batch-size 4 --learn-start 60 --memory-capacity 400",
}


class Played(NamedTuple):
    """What an agent played in one environment."""

    chunks: list[Chunk]
    rows: list[Row]
    actions: list[Any]
    states: list[Arrays]  # before each row


def agent_of(name: str, *more: str, learns: bool = True, seed: int = 3) -> Any:
    """Make a small agent; `more` are options."""
    args = options.parse([*SETTINGS[name].split(), "--history-length", "3", *more], "test", "")
    agent = make_agent(args, ENVIRONMENT, CPU, learns=learns, seed=seed)
    assert isinstance(agent, SequenceAgent)
    if isinstance(agent, Impala):
        with torch.no_grad():
            agent.network.policy.weight.mul_(100)  # it begins nearly uniform, which would hide mistakes
        if learns and agent._target:
            agent._target.load_state_dict(agent.network.state_dict())
    return agent


def random_row(rng: np.random.Generator, before: StepType, left: int) -> Row:
    """Draw a row that may follow one of this step type, with so many actions left."""
    step_type = StepType.FIRST if before == StepType.LAST else StepType.LAST if left == 0 else StepType.MID
    discount = float(rng.integers(2)) if step_type == StepType.LAST else 1.0
    reward = 0.0 if step_type == StepType.FIRST else float(rng.normal())
    return Row(rng.integers(0, 256, 5, dtype=np.uint8), step_type, reward, discount)


def play(agent: Agent, steps: int, seed: int = 0, longest: int = 9, T: int = 10**6, dtype: str = "uint8") -> Played:
    """Play episodes of 1 to `longest` actions, which end truly or by truncation, at step T of the run."""
    rng = np.random.default_rng(seed)
    assembler = Assembler(agent.spec, 0, agent.initial_priorities)
    played, state, left, step_type = Played([], [], [], []), Arrays(), 0, StepType.LAST
    blank = {name: np.zeros(field.shape, field.dtype) for name, field in agent.spec.state}
    for _ in range(steps):
        if step_type == StepType.LAST:
            left = int(rng.integers(1, longest + 1))
        row = random_row(rng, step_type, left)
        row = row._replace(obs=row.obs.astype(dtype))
        left, step_type = left - 1, row.step_type
        kept = {name: state[name][0] for name in blank} if state else blank
        output, state = agent.act(Rows.stack([row]), state, T)
        extras = {name: array[0] for name, array in output.extras.items()}
        chunk = assembler.add(row, output.actions[0], extras, kept)
        played.chunks.extend([chunk] if chunk else [])
        played.rows.append(row)
        played.actions.append(output.actions[0])
        played.states.append(kept)
    return played


def replay_with(agent: Agent, environment: EnvironmentSpec, chunks: list[Chunk], capacity: int = 4000) -> Replay:
    """Return a replay that holds these chunks."""
    replay = Replay(agent.spec, environment, capacity, torch.Generator().manual_seed(1), CPU)
    for number, chunk in enumerate(chunks):
        replay.add(ChunkId(0, number), chunk)
    return replay
