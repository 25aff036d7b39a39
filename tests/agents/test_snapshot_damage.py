"""Snapshots whose bytes have changed since they were written: none is taken for what it was."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.programs import snapshot
from tests.agents.test_published_snapshots import published, saved
from tests.ground_truth.published_network import snapshot_of


def flip(path: Path, at: int, count: int) -> None:
    """Invert `count` bytes of a file, from `at` on."""
    content = bytearray(path.read_bytes())
    content[at : at + count] = bytes(byte ^ 0xFF for byte in content[at : at + count])
    path.write_bytes(content)


def test_bytes_inside_a_weight_are_verified(tmp_path: Path) -> None:
    # Mutation: leave `_check_record` out, and finite weights that nobody has learned are taken.
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
