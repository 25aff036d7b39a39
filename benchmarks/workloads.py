"""Works that several benchmarks measure: acting, updates of the learner, and bare matrix products."""

import random
from dataclasses import replace
from functools import cache

import numpy as np
import torch

from benchmarks.harness import Work
from rainbow_iqn_apex.agents.devices import computes_in_bfloat16
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.budget import make_buffer
from rainbow_iqn_apex.programs.learner.trainers import Turn, make_trainer
from rainbow_iqn_apex.saber.atari import NB_ACTIONS

CPU = torch.device("cpu")
PERIOD = 4  # agent steps of an actor's noise draw, by default
FRAMES = 4  # of an agent step
_GAME = "space_invaders"
_DIFFERENT = 40  # chunks of a buffer, at most


def act_work(settings: Args, environments: int, device: torch.device = CPU, calls: int = PERIOD) -> Work:
    """Return agent steps in each environment, as many as stand for a noise draw by default."""
    agent = make_agent(settings, ATARI, device, learns=False, seed=1)
    frames = np.random.default_rng(0).integers(0, 256, (environments, 84, 84), dtype=np.uint8)
    rows = Rows(
        obs=frames,
        step_type=np.full(environments, StepType.MID, np.uint8),
        reward=np.zeros(environments, np.float32),
        discount=np.ones(environments, np.float32),
    )
    state: Arrays = {}

    def act() -> None:
        nonlocal state
        for _ in range(calls):
            _, state = agent.act(rows, state, 10)

    return act


def update_work(agent: Agent, settings: Args, count: int, device: torch.device = CPU) -> Work:
    """Return an update, with its batch's way out of a buffer of `count` chunks; a queue is filled before each."""
    chunks = random_chunks(_GAME, min(count, _DIFFERENT), agent.spec)
    settings = replace(settings, memory_capacity=count * agent.spec.period)
    buffer = make_buffer(settings, agent, ATARI, torch.Generator(device).manual_seed(1))
    trainer = make_trainer(agent, buffer, settings.update_size, device)

    def fill() -> None:
        for number in range(count):
            buffer.add(ChunkId(0, number), chunks[number % len(chunks)])

    def work() -> None:
        if agent.buffer == "queue":
            fill()
        trainer([Turn(0.4, 1)])

    if agent.buffer == "replay":
        fill()
    return work


def learner(settings: Args, device: torch.device = CPU) -> Agent:
    """Make an agent that learns Atari."""
    return make_agent(settings, ATARI, device, learns=True, seed=1)


def product_work(rows: int, inner: int, columns: int) -> Work:
    """Return a matrix product, in bfloat16 where the processor has it."""
    dtype = torch.bfloat16 if computes_in_bfloat16(CPU) else torch.float32
    a = torch.randn(rows, inner).to(dtype)
    b = torch.randn(inner, columns).to(dtype)
    return lambda: a @ b


GAMES = ("pong", "space_invaders", "breakout", "ms_pacman", "montezuma_revenge")
ATARI = EnvironmentSpec(Field((84, 84), "uint8"), Discrete(NB_ACTIONS))
SPEC = ChunkSpec(
    stack=4, burn_in=0, length=64, bootstrap_rows=3, period=64, sample_length=1
)  # Rainbow-IQN's, with n = 3


def noise_chunks(spec: ChunkSpec, count: int) -> list[Chunk]:
    """Return chunks of random rows in the middle of an episode, each with frames of its own."""
    rng = np.random.default_rng(1)

    def array(field: Field, *shape: int) -> Array:
        return rng.integers(100, size=(*shape, *field.shape), dtype=np.uint8).astype(field.dtype)

    chunks = []
    for _ in range(count):
        rows = {name: array(field, spec.window) for name, field in spec.row_fields(ATARI).items()}
        rows["step_type"][:] = StepType.MID
        priorities = rng.random(spec.samples).astype(np.float32) if spec.prioritised else None
        chunks.append(Chunk(0, 0, rows, {name: array(field) for name, field in spec.state}, priorities))
    return chunks


@cache
def random_chunks(game: str, count: int, spec: ChunkSpec = SPEC) -> tuple[Chunk, ...]:
    """Return the first chunks of a game under random actions; priorities are random, extras and states are 0."""
    rng = random.Random(0)
    priorities = np.random.default_rng(0)
    environment = make_environment(EnvironmentSettings(game=game), seed=0)
    assembler = Assembler(spec, 0, lambda _: priorities.random(spec.samples) + 0.1)
    extras, state = (
        {name: np.zeros(field.shape, field.dtype) for name, field in fields} for fields in (spec.extras, spec.state)
    )
    chunks: list[Chunk] = []
    row = environment.reset()
    while len(chunks) < count:
        action = rng.randrange(NB_ACTIONS)
        if chunk := assembler.add(row, action, extras, state):
            chunks.append(chunk)
        row = environment.reset() if row.step_type == StepType.LAST else environment.step(action)
    return tuple(chunks)
