"""Actions of every kind travel from an environment to the replay, and none that an environment could not take."""

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec, check_chunk
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, EnvironmentSpec, Field, MultiDiscrete
from rainbow_iqn_apex.memory.messages import decode_message, encode_message
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Array, Row, StepType

SPEC = ChunkSpec(stack=2, burn_in=0, length=6, bootstrap_rows=1, period=6, sample_length=1)
ACTIONS: dict[str, tuple[ActionSpec, Array]] = {
    "discrete": (Discrete(5), np.arange(20) % 5),
    "several discretes": (MultiDiscrete((3, 2)), np.stack([np.arange(20) % 3, np.arange(20) % 2], 1)),
    "box": (Box(3), np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3)),
}


def chunk_of(environment: EnvironmentSpec, actions: Array) -> Chunk:
    assembler = Assembler(SPEC, 0, lambda _: np.ones(SPEC.samples))
    for t, action in enumerate(actions):
        row = Row(np.full(2, t, np.uint8), StepType.MID if t else StepType.FIRST, 0.5, 1.0)
        if chunk := assembler.add(row, action, {}, {}):
            message = decode_message(encode_message(chunk), 10_000)
            assert isinstance(message, Chunk)
            check_chunk(message, SPEC, SPEC.row_fields(environment))
            return message
    raise AssertionError("no chunk")


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_travel_to_the_replay_as_they_were_chosen(name: str) -> None:
    action, actions = ACTIONS[name]
    environment = EnvironmentSpec(Field((2,), "uint8"), action)
    chunk = chunk_of(environment, actions)
    assert action.error(chunk.rows["action"]) == ""
    replay = Replay(SPEC, environment, 60, torch.Generator().manual_seed(0), torch.device("cpu"))
    replay.add(ChunkId(0, 1), chunk)
    batch = replay.sample(11, 0.4)
    rows = batch.obs[SPEC.prefix, :, 0].long()  # [B] the number of each sample's row
    np.testing.assert_array_equal(batch.action[SPEC.prefix].numpy(), actions[rows.numpy()].astype(action.field.dtype))


@pytest.mark.parametrize(
    ("action", "wrong", "told"),
    [
        (Discrete(5), np.array([0, 5], np.int32), "an action beyond the 5 that there are"),
        (Discrete(5), np.array([-1], np.int32), "an action beyond the 5 that there are"),
        (MultiDiscrete((3, 2)), np.array([[2, 2]], np.int32), "an action beyond the (3, 2)"),
        (MultiDiscrete((3, 2)), np.array([[-1, 0]], np.int32), "an action beyond the (3, 2)"),
        (Box(1), np.array([[1.01]], np.float32), "an action outside [-1, 1]"),
        (Box(1), np.array([[np.nan]], np.float32), "an action outside [-1, 1]"),
    ],
)
def test_an_action_that_no_environment_takes_is_named(action: ActionSpec, wrong: Array, told: str) -> None:
    assert action.error(wrong) == told
