"""What is really written, on the wire and on the disk, holds no pickle but the one that PyTorch's format prescribes."""

import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.programs import snapshot
from tests.test_chain import run_system

pytestmark = pytest.mark.redis
SHORT = "--learn-start 600 --T-max 1200 --memory-capacity 1000".split()
# What `torch.load(weights_only=True)` allows, and of that only what builds tensors and dictionaries.
BUILDERS = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2"}
STORAGES = {f"torch {kind}Storage" for kind in ("Float", "Long", "Int", "Byte", "Double", "Bool")}


def is_pickle(data: bytes) -> bool:
    """Whether it reads as a pickle up to its end."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in what happens to look like a string
            return [place for _, _, place in pickletools.genops(data)][-1] == len(data) - 1
    except ValueError:
        return False


def names_in(pickled: bytes) -> set[str]:
    """Everything that a pickle would look up and call."""
    operations = list(pickletools.genops(pickled))
    assert not {op.name for op, _, _ in operations} & {"INST", "OBJ", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"}
    return {str(argument) for op, argument, _ in operations if op.name == "GLOBAL"}


def values_of(client: Client, key: bytes) -> list[bytes]:
    """All values under a key, whatever its kind."""
    match client.type(key):
        case b"string":
            return [client.get(key)]  # type: ignore[list-item]
        case b"hash":
            return list(client.hvals(key))  # type: ignore[arg-type]
        case b"stream":
            entries: Any = client.xrange(key)
            return [value for _, fields in entries for value in fields.values()]
        case kind:
            raise AssertionError(f"{key!r} is a {kind!r}")


@pytest.mark.slow
def test_neither_redis_nor_the_results_hold_a_pickle(
    client: Client, redis_port: int, run_name: str, tmp_path: Path
) -> None:
    run_system(redis_port, run_name, tmp_path / "results", *SHORT)
    keys: Any = client.keys(f"riqx:{{{run_name}}}*")
    found = {key: values_of(client, key) for key in keys}
    whats = {key.rsplit(b":", 2)[-2] for key in found}
    assert {b"log", b"state", b"weights"} <= whats, "the whole run is still there"
    for key, values in found.items():
        for value in values:
            assert value.startswith(b"RIQX") or (len(value) < 5000 and value.isascii()), key
            assert not is_pickle(value), key
    assert not any(is_pickle(path.read_bytes()) for path in (tmp_path / "results").iterdir() if path.is_file())
    path = snapshot.last_models(tmp_path / "results", "chain")[0]
    torch.load(path, weights_only=True)
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if is_pickle(archive.read(name))]
        assert [name.rpartition("/")[2] for name in pickles] == ["data.pkl"]
        assert names_in(archive.read(pickles[0])) <= BUILDERS | STORAGES


class _Code:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path, ("x",)


def test_the_check_notices_a_pickle(tmp_path: Path) -> None:
    torch.save({"x": _Code()}, tmp_path / "x.pth")
    with zipfile.ZipFile(tmp_path / "x.pth") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        pickled = archive.read(name)
    assert is_pickle(pickled) and not names_in(pickled) <= BUILDERS | STORAGES
    assert not is_pickle(b"RIQX" + pickled)
