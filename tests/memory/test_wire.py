import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.rows import DTYPES, Array, Arrays
from rainbow_iqn_apex.memory.wire import Packet, Tag, WireError, decode, encode
from tests.fuzz.mutate import seal
from tests.refusals.packets import frame, header_of

META: dict[str, Any] = {"round": 3, "deep": [{"a": None}], "text": "γ"}
ARRAYS: Arrays = {"obs": np.arange(6, dtype=np.uint8).reshape(2, 3), "r": np.array([0.5, -1.5], np.float32)}
Decode = Callable[[bytes], Packet]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
array_values = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
views = st.sampled_from(
    [lambda a: a, np.transpose, lambda a: a[..., ::-1] if a.ndim else a, lambda a: a[::2] if a.ndim else a]
)


def check_round_trip(
    meta: dict[str, Any], arrays: Arrays, compress: bool, encode: Callable[..., bytes] = encode
) -> None:
    packet = decode(encode(Tag.STATE, meta, arrays, compress=compress))
    assert packet.tag is Tag.STATE
    assert packet.meta == meta
    assert list(packet.arrays) == list(arrays)
    for name, array in arrays.items():
        found = packet.arrays[name]
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.tobytes() == array.tobytes()  # in C order, and NaNs bit for bit
        assert not found.flags.writeable


@settings(max_examples=100)
@given(
    st.dictionaries(st.text(max_size=4), json_values, max_size=3),
    st.dictionaries(st.text(max_size=4), st.builds(lambda view, array: view(array), views, array_values), max_size=3),
    st.booleans(),
)
def test_round_trip(meta: dict[str, Any], arrays: Arrays, compress: bool) -> None:
    check_round_trip(meta, arrays, compress)


def test_the_round_trip_check_notices_another_order() -> None:
    def fortran(tag: Tag, meta: dict[str, Any], arrays: Arrays, *, compress: bool) -> bytes:
        return encode(tag, meta, {k: a.T.ravel().reshape(a.shape) for k, a in arrays.items()}, compress=compress)

    with pytest.raises(AssertionError):
        check_round_trip(META, ARRAYS, True, fortran)


@pytest.mark.parametrize("dtype", [object, "U3", bool, "float16", "complex64", "datetime64[s]", "uint64", ">f4"])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="'wrong'"):
        encode(Tag.STATE, {}, {"wrong": np.zeros(2, dtype)})


def test_too_much_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_PAYLOAD_BYTES", 100)
    with pytest.raises(WireError):
        encode(Tag.STATE, {}, {"a": np.zeros(101, np.uint8)})
    with pytest.raises(WireError):
        encode(Tag.CHUNK, {"long": "x" * wire.MAX_HEADER_BYTES})


def test_a_state_has_room_for_the_names_of_many_environments() -> None:
    # Mutations: bound the header of a state as that of a chunk; let a state that an actor logs have as large a one.
    names = {f"rows{env}.{name}.and so on": np.zeros(3, np.uint8) for env in range(10_000) for name in "abcdefghij"}
    data = encode(Tag.STATE, {}, names)
    kept = wire._read_table.cache_info().currsize
    assert wire.decode(data, max_header=wire.MAX_STATE_HEADER_BYTES).arrays.keys() == names.keys()
    assert wire._read_table.cache_info().currsize == kept, "large tables are not kept"
    with pytest.raises(WireError, match="message claims a header"):
        wire.decode(data)
    with pytest.raises(WireError):
        encode(Tag.STATE, {"long": "x" * (1 << 23)})


# --- damage ---


def damaged(data: bytes) -> list[bytes]:
    """Every byte changed in three ways, every truncation, and one byte too many."""
    flipped = [data[:i] + bytes([data[i] ^ mask]) + data[i + 1 :] for i in range(len(data)) for mask in (1, 128, 255)]
    return flipped + [data[:i] for i in range(len(data))] + [data + b"\0", b"\0" + data]


def check_damage_is_noticed(data: bytes, decode: Decode = decode) -> None:
    for wrong in damaged(data):
        try:
            decode(wrong)
        except WireError:
            continue
        raise AssertionError(f"decoded: {wrong!r}")


@pytest.mark.parametrize("compress", [False, True])
def test_every_damage_is_noticed(compress: bool) -> None:
    check_damage_is_noticed(encode(Tag.CHUNK, META, ARRAYS, compress=compress))


def test_the_damage_check_notices_a_missing_checksum() -> None:
    with pytest.raises(AssertionError):
        check_damage_is_noticed(encode(Tag.CHUNK, META, ARRAYS), lambda data: decode(seal(data[:-4])))


# --- bombs ---

BOMB_BYTES = 1 << 26
ALLOWED = 1 << 16


def peak_of_refusal(data: bytes, decode: Decode) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def bombs() -> dict[str, bytes]:
    zeros = np.zeros(BOMB_BYTES, np.uint8).tobytes()
    honest = zstandard.ZstdCompressor(level=1).compress(zeros)
    silent = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(zeros)
    announced = struct.pack("<I", BOMB_BYTES)
    assert honest.count(announced) == 1
    lying = honest.replace(announced, struct.pack("<I", 40))
    header = header_of({}, [["a", "uint8", [40]]])
    return {
        "announces too much": frame(header, honest, BOMB_BYTES, 1),
        "differs from its header": frame(header, honest, 40, 1),
        "announces nothing": frame(header, silent, 40, 1),
        "expands to more than it announces": frame(header, lying, 40, 1),
        "array beyond the payload": frame(header_of({}, [["a", "float64", [1 << 23]]]), bytes(40)),
    }


BOMBS = bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_allocate_nothing(name: str) -> None:
    assert peak_of_refusal(BOMBS[name], lambda data: decode(data, ALLOWED)) < 8 * ALLOWED


def test_the_bomb_check_notices_an_allocation() -> None:
    def trusting(data: bytes) -> Packet:
        frame_start = data.index(b"\x28\xb5\x2f\xfd")
        zstandard.ZstdDecompressor().decompress(data[frame_start:-4])
        raise WireError("too late")

    assert peak_of_refusal(BOMBS["announces too much"], trusting) > BOMB_BYTES


def test_arrays_are_views_of_the_message() -> None:
    array: Array = np.zeros(1 << 22, np.uint8)
    data = encode(Tag.WEIGHTS, {}, {"a": array}, compress=False)
    tracemalloc.start()
    kept = decode(data).arrays["a"]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.nbytes == 1 << 22
    assert size < 1.5 * kept.nbytes  # the payload is cut out of the message once, and not copied again
