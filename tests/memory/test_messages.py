from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.messages import MOST, Episode, Joined, Message, RoundEnd, decode_message, encode_message
from rainbow_iqn_apex.memory.wire import Tag, WireError

LIMIT = 1 << 16
PRIORITIES = np.array([0.5, 0.0], np.float32)
CHUNK = Chunk(
    env=2,
    version=5,
    rows={
        "obs": np.arange(12, dtype=np.uint8).reshape(4, 3),
        "extras.q": np.arange(8.0, dtype=np.float32).reshape(4, 2),
    },
    state={"memory": np.ones(7, np.float32)},
    priorities=PRIORITIES,
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


NO_NUMBERS: list[dict[str, Any]] = [
    {},
    *({"round": wrong} for wrong in (-1, MOST, True, False, 1.0, "1", None, [1], {"a": 1}, float("nan"))),
]


@pytest.mark.parametrize("tag", [Tag.JOINED, Tag.ROUND_END])
@pytest.mark.parametrize("meta", NO_NUMBERS, ids=str)
def test_rounds_must_be_whole_numbers(tag: Tag, meta: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        decode_message(wire.encode(tag, meta), LIMIT)


@pytest.mark.parametrize("wrong", [-1, MOST, True, 1.0, "1", None, [1]])
@pytest.mark.parametrize("name", ["env", "version"])
def test_chunk_numbers_must_be_whole(name: str, wrong: Any) -> None:
    arrays = {"priorities": PRIORITIES}
    with pytest.raises(WireError):
        decode_message(wire.encode(Tag.CHUNK, {"env": 0, "version": 0, name: wrong}, arrays), LIMIT)


@pytest.mark.parametrize("meta", [{"version": 0}, {"env": 0}])
def test_incomplete_chunks(meta: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        decode_message(wire.encode(Tag.CHUNK, meta, {"priorities": PRIORITIES}), LIMIT)


@pytest.mark.parametrize("wrong", [None, [1], {"score": 1}])
def test_an_episode_holds_plain_values(wrong: Any) -> None:
    with pytest.raises(WireError):
        decode_message(wire.encode(Tag.EPISODE, {"good": 1, "wrong": wrong}), LIMIT)


@pytest.mark.parametrize("tag", [Tag.STATE, Tag.WEIGHTS])
def test_other_messages_do_not_belong_here(tag: Tag) -> None:
    with pytest.raises(WireError, match=tag.name):
        decode_message(wire.encode(tag, {"round": 1}), LIMIT)


def test_a_message_may_not_exceed_its_limit() -> None:
    data = encode_message(CHUNK)
    payload = sum(array.nbytes for array in (*CHUNK.rows.values(), *CHUNK.state.values(), PRIORITIES))
    decode_message(data, payload)
    with pytest.raises(WireError):
        decode_message(data, payload - 1)
