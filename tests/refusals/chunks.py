"""Chunks that no agent's settings, environment and network can have made."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from rainbow_iqn_apex.memory.chunk import LAST_ACTION, Chunk, ChunkSpec, check_chunk
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, EnvironmentSpec, Field, pack, packed
from rainbow_iqn_apex.memory.messages import encode_message
from rainbow_iqn_apex.memory.rows import Array, Arrays
from rainbow_iqn_apex.programs.learner.ingest import actor_messages
from tests.refusals.reader import Reader, Refused, of
from tests.specs import discrete

# --- shapes, dtypes and ranges ---

SPEC = ChunkSpec(3, 1, 4, 2, 2, 4, extras=(("q", Field((5,), "float32")),), state=(("h", Field((7,), "float32")),))
FIELDS = SPEC.row_fields(discrete((2, 3), "uint8", 18))


def zeros_of(spec: ChunkSpec, environment: EnvironmentSpec) -> Arrays:
    fields = spec.row_fields(environment).items()
    return {name: np.zeros((spec.window, *field.shape), field.dtype) for name, field in fields}


ONES = np.ones(SPEC.samples, np.float32)
GOOD = Chunk(0, 0, zeros_of(SPEC, discrete((2, 3), "uint8", 18)), {"h": np.zeros(7, np.float32)}, ONES)


def _rows(**changes: Array) -> Chunk:
    return replace(GOOD, rows=GOOD.rows | {name.replace("_q", ".q"): array for name, array in changes.items()})


def _full(number: float, *shape: int, dtype: Any = np.float32) -> Array:
    return np.full((SPEC.window, *shape), number, dtype)


CHUNKS: Refused = {
    "chunk rows: ": [
        _rows(obs=GOOD.rows["obs"][1:]), _rows(obs=_full(0, 3, 2, dtype=np.uint8)), _rows(action=_full(0, dtype=int)),
        replace(GOOD, rows={name: array for name, array in GOOD.rows.items() if name != "extras.q"}),
        _rows(strange=_full(0)),
    ],
    "chunk state: h is ": [replace(GOOD, state=state) for state in ({}, {"h": np.zeros(8, np.float32)})],
    "unknown step type": [_rows(step_type=_full(3, dtype=np.uint8))],
    "chunk has no priorities": [replace(GOOD, priorities=None)],
    "priorities must be 1 finite float32, none below 0": [
        replace(GOOD, priorities=priorities)
        for priorities in (ONES[1:], ONES[:, None], -ONES, ONES * np.nan, ONES * np.inf, ONES.astype(float))
    ],
    "a priority to LAST rows": [_rows(step_type=_full(2, dtype=np.uint8))],
    "a number in reward that is not finite": [_rows(reward=_full(np.nan)), _rows(reward=_full(np.inf))],
    "a number in discount that is not finite": [_rows(discount=_full(np.nan))],
    "a number in discount outside 0 to 1": [_rows(discount=_full(2)), _rows(discount=_full(-1))],
    "a number in extras.q beyond": [_rows(extras_q=_full(-3e38, 5))],
    "a number in reward beyond": [_rows(reward=_full(2e9))],
    "a number in h beyond": [replace(GOOD, state={"h": np.full(7, -2e9, np.float32)})],
}  # fmt: skip

# --- what the learner of a run decodes ---

BOXES = ChunkSpec(2, 0, 4, 1, 4, 1, prioritised=False)
RECURRENT = ChunkSpec(1, 0, 4, 1, 4, 4, state=((LAST_ACTION, Box(2).field),), prioritised=False)
TWO = EnvironmentSpec(Field((3,), "uint8"), Box(2))


def boxed(spec: ChunkSpec, wrong: float = 0.5, place: int = 0, shape: tuple[int, ...] = (2,)) -> Chunk:
    """Make a chunk with actions of a Box, one number of them `wrong`; at place -1 that of the recurrent state."""
    actions = np.linspace(-1, 1, spec.window * int(np.prod(shape)), dtype=np.float32).reshape(spec.window, *shape)
    state = {LAST_ACTION: np.array([1, -1], np.float32)} if spec.state else {}
    if place >= 0:
        actions.reshape(spec.window, -1)[place, 0] = wrong
    else:
        state[LAST_ACTION][1] = wrong
    return Chunk(0, 0, zeros_of(spec, TWO) | {"action": actions}, state, None)


def _boxes(spec: ChunkSpec) -> Refused:
    """Return chunks with a number beyond the box, wherever it stands."""
    numbers, places = (np.nan, np.inf, -np.inf, 1.5, -1.0000001, 1e30), range(-1 if spec.state else 0, spec.window)
    beyond = [encode_message(boxed(spec, number, place)) for number, place in product(numbers, places)]
    return {r"^chunk has (an action outside \[-1, 1\]|a number in .*action )": beyond}


PIXELS = EnvironmentSpec(packed(Field((4, 4), "uint8"), Field((2,), "float32")), Discrete(2))
PICTURES = ChunkSpec(1, 0, 2, 1, 2, 2, prioritised=False)
WHOLE = ChunkSpec(2, 0, 4, 1, 4, 1)


def _picture(number: float) -> bytes:
    """Return a chunk with numbers beside its pictures."""
    seen = pack([np.ones((4, 4), np.uint8), np.array([1, number], np.float32)])
    return encode_message(Chunk(0, 0, zeros_of(PICTURES, PIXELS) | {"obs": np.stack([seen] * 3)}, {}, None))


def _whole(env: int, priorities: Array | None) -> bytes:
    return encode_message(Chunk(env, 0, zeros_of(WHOLE, discrete((3,), "uint8", 5)), {}, priorities))


CHUNK_READERS = [
    Reader("chunk", of(lambda chunk: check_chunk(chunk, SPEC, FIELDS)), GOOD, ValueError, CHUNKS),
    Reader(
        "chunk without priorities", of(lambda chunk: check_chunk(chunk, replace(SPEC, prioritised=False), FIELDS)),
        replace(GOOD, priorities=None), ValueError, {"chunk has unwanted priorities": [GOOD]},
    ),
    Reader(
        "chunk of an actor", of(actor_messages(WHOLE, discrete((3,), "uint8", 5), nb_env=3).decode),
        _whole(2, np.ones(WHOLE.samples, np.float32)), ValueError,
        {"beyond the 3 of an actor": [_whole(3, np.ones(WHOLE.samples, np.float32))]},
    ),
    Reader(
        "chunk with a box", of(actor_messages(BOXES, TWO, nb_env=3).decode), encode_message(boxed(BOXES)), ValueError,
        {
            **_boxes(BOXES),
            "^chunk rows: ": [
                _whole(0, None), *(encode_message(boxed(BOXES, shape=shape)) for shape in ((), (1,), (3,), (2, 1))),
            ],
        },
    ),
    Reader(
        "chunk with boxes and a state", of(actor_messages(RECURRENT, TWO, nb_env=3).decode),
        encode_message(boxed(RECURRENT)), ValueError, _boxes(RECURRENT),
    ),
    Reader(
        "chunk with pictures and numbers", of(actor_messages(PICTURES, PIXELS, nb_env=1).decode), _picture(0.5),
        ValueError,
        {"^chunk has a number in obs ": [_picture(wrong) for wrong in (np.nan, np.inf, 1e30)]},
    ),
]  # fmt: skip
