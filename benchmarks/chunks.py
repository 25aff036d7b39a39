"""Chunks of random play, as actors send them, and of noise."""

import random
from functools import cache

import numpy as np

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, StepType
from rainbow_iqn_apex.saber.atari import NB_ACTIONS

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
