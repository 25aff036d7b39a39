"""Snapshots whose bytes have changed since they were written: none is taken for what it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.programs import snapshot
from tests.agents.test_published_snapshots import published, saved
from tests.ground_truth.published_network import snapshot_of
from tests.processes import run


def flip(path: Path, at: int, count: int) -> None:
    """Invert `count` bytes of a file, from `at` on."""
    content = bytearray(path.read_bytes())
    content[at : at + count] = bytes(byte ^ 0xFF for byte in content[at : at + count])
    path.write_bytes(content)


def test_bytes_inside_a_weight_are_verified(tmp_path: Path) -> None:
    # Mutation: do not read the records to their ends, and finite weights that nobody has learned are taken.
    content = snapshot_of(published("rainbow_iqn"))
    path = saved(tmp_path / "x.pth", content)
    weight = content["model_state_dict"]["fcnoisy_h_v.weight_mu"].numpy().tobytes()
    flip(path, path.read_bytes().index(weight) + 1000, 400)
    with pytest.raises(snapshot.DamagedError) as caught:
        snapshot.load(path, "--model")
    assert str(caught.value) == (
        f"--model: {path} cannot be read as a snapshot (its content has changed since it was written: a checksum in it "
        "does not fit; use another copy)"
    )


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    weights, others = one["model_state_dict"], other["model_state_dict"]
    return (
        {name: value for name, value in one.items() if value is not weights}
        == {name: value for name, value in other.items() if value is not others}
        and weights.keys() == others.keys()
        and all(torch.equal(weights[name], others[name]) for name in weights)
    )


@pytest.mark.parametrize("mask", [0x10, *(pytest.param(mask, marks=pytest.mark.slow) for mask in (0xFF, 0x01))])
def test_any_changed_byte_is_refused_or_does_not_matter(tmp_path: Path, mask: int) -> None:
    # 0x10 among an entry's attributes makes a folder of it, whose tensor torch.load leaves as memory was before.
    content = {"T_learner": 7, "model_state_dict": {"a": torch.randn(5, 7), "b": torch.randn(64)}, "settings": "{}"}
    path = saved(tmp_path / "x.pth", content)
    good, taken = path.read_bytes(), 0
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes((good[at] ^ mask,)) + good[at + 1 :])
        try:
            loaded = snapshot.load(path, "--model")
        except snapshot.DamagedError as error:
            assert len(str(error).splitlines()) == 1
        else:
            taken += 1
            assert is_same(loaded, content), f"byte {at}"
    assert taken < len(good) / 2, "padding, dates, and what is said twice"


class Made:
    """What a pickle makes of a number: so many elements, or bytes."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __reduce__(self) -> Any:
        return self.kind, (MANY,)


MANY = 10**8
ONE, TABLE = torch.ones(1), torch.zeros(1000)
TOO_LARGE: dict[str, Any] = {
    "expanded": ONE.expand(MANY),
    "of one byte": torch.ones(1, dtype=torch.bool).expand(MANY),
    "along one axis": torch.ones(4, 1).expand(4, MANY),
    "overlapping": TABLE.as_strided((2, 999), (1, 1)),
    "a window": TABLE.unfold(0, 500, 1),
    "in a list": [TABLE, (ONE.expand(MANY),)],
    "of an optimiser": {"state": {0: {"exp_avg": ONE.expand(MANY)}}},
    "a parameter": torch.nn.Parameter(ONE.expand(MANY)),
    "without values": torch.zeros(3, device="meta"),
    "a thousand views": [TABLE[start:] for start in range(1000)],
    "made of a number": Made(torch.FloatTensor),
}
AS_STORED: dict[str, Any] = {
    "transposed": torch.arange(12).view(3, 4).t(),
    "a part": TABLE.view(10, 100)[2:5, ::2],
    "channels last": torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "shared": [TABLE, TABLE.view(10, 100).t(), TABLE.view(20, 50), TABLE],
    "without elements": ONE[:0].expand(5, 0),
    "a row of one": TABLE.as_strided((1, 5), (0, 1)),
    "a number": torch.tensor(1.0),
}


def with_more(path: Path, more: Any, *, legacy: bool) -> Path:
    return saved(path, {"model_state_dict": {"weight": torch.zeros(3)}, "more": more}, legacy=legacy)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_tensor_is_no_larger_than_what_is_stored_of_it(tmp_path: Path, legacy: bool) -> None:
    # Mutations: leave out a condition of `_oversized`.
    for name, more in AS_STORED.items():
        found = snapshot.load(with_more(tmp_path / "x.pth", more, legacy=legacy), "--model")["more"]
        assert not isinstance(more, Tensor) or torch.equal(found, more), name
    for name, more in TOO_LARGE.items():
        path = with_more(tmp_path / "x.pth", more, legacy=legacy)
        with pytest.raises(snapshot.DamagedError) as caught:
            snapshot.load(path, "--model")
        told = str(caught.value)
        assert told.startswith(f"--model: {path} cannot be read as a snapshot (its tensor"), name
        assert told.endswith("more elements than are stored)") and len(told.splitlines()) == 1, name
    with pytest.raises(snapshot.DamagedError):
        snapshot.load(with_more(tmp_path / "x.pth", Made(bytearray), legacy=legacy), "--model")


MEASURE = """
import resource, sys
from pathlib import Path
from rainbow_iqn_apex.programs import snapshot
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB
before, refused = peak(), 0
for path in map(Path, sys.argv[1:]):
    try:
        snapshot.load(path, "--model")
    except snapshot.DamagedError:
        refused += 1
print(refused, peak() - before < 50_000)
"""


def test_it_is_refused_before_it_takes_memory(tmp_path: Path) -> None:
    # Mutation: look at the tensors behind `check_weights`, which takes 400 MB of each.
    paths = [
        saved(tmp_path / "weights.pth", {"model_state_dict": {"weight": ONE.expand(MANY)}}),
        with_more(tmp_path / "bytes.pth", Made(bytearray), legacy=False),
        with_more(tmp_path / "old_bytes.pth", Made(bytearray), legacy=True),
        with_more(tmp_path / "made.pth", Made(torch.FloatTensor), legacy=False),
    ]
    ended = run("-c", MEASURE, *paths, fresh=True)
    assert ended.out.split() == [str(len(paths)), "True"], ended.errors
