from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.common.schema import MOST_COUNTED as MOST
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, RoundEnd, decode_message, encode_message

LIMIT = 1 << 16
CHUNK = Chunk(
    env=2,
    version=5,
    rows={
        "obs": np.arange(12, dtype=np.uint8).reshape(4, 3),
        "extras.q": np.arange(8.0, dtype=np.float32).reshape(4, 2),
    },
    state={"memory": np.ones(7, np.float32)},
    priorities=np.array([0.5, 0.0], np.float32),
)


def check_round_trip(message: Message, encode: Callable[[Message], bytes] = encode_message) -> None:
    found = decode_message(encode(message), LIMIT)
    if isinstance(message, Chunk):
        assert isinstance(found, Chunk)
        assert (found.env, found.version) == (message.env, message.version)
        for a, b in ((found.rows, message.rows), (found.state, message.state)):
            assert list(a) == list(b)
            assert all(a[k].dtype == b[k].dtype and np.array_equal(a[k], b[k]) for k in a)
        assert (found.priorities is None) == (message.priorities is None)
        np.testing.assert_array_equal(found.priorities, message.priorities)
    else:
        assert found == message


records = st.dictionaries(st.text(max_size=4), st.integers() | st.floats(allow_nan=False) | st.text(max_size=4))


@given(st.integers(0, MOST - 1).map(Joined) | st.integers(0, MOST - 1).map(RoundEnd) | records.map(Episode))
def test_small_messages_round_trip(message: Message) -> None:
    check_round_trip(message)


def test_a_chunk_round_trips() -> None:
    check_round_trip(CHUNK)
    check_round_trip(Chunk(0, 0, CHUNK.rows, {}, CHUNK.priorities))
    check_round_trip(Chunk(0, 0, CHUNK.rows, CHUNK.state, None))


def test_the_round_trip_check_notices_exchanged_numbers() -> None:
    def exchanged(message: Message) -> bytes:
        assert isinstance(message, Chunk)
        return encode_message(Chunk(message.version, message.env, message.rows, message.state, message.priorities))

    with pytest.raises(AssertionError):
        check_round_trip(CHUNK, exchanged)
