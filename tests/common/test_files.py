import io
import random
import time
from pathlib import Path

import pytest
import torch

from rainbow_iqn_apex.common.files import replace_file
from tests.processes import Processes

SIZE, PIECES = 1 << 20, 32

# Replaces the file for ever, by content that is all of one letter; says when it is in the middle of a write.
WRITER = f"""
import itertools, sys
from pathlib import Path
from rainbow_iqn_apex.common.files import replace_file
for number in itertools.count():
    with replace_file(Path(sys.argv[1])) as file:
        for piece in range({PIECES}):
            file.write(bytes([97 + number % 26]) * ({SIZE} // {PIECES}))
            if piece == {PIECES} // 2:
                print("half", flush=True)
"""


def test_kill_9_leaves_the_old_file_or_the_new_one(processes: Processes, tmp_path: Path) -> None:
    # Mutation: yield `path.open("wb")` instead of the file aside.
    path = tmp_path / "snapshot.pth"
    path.write_bytes(b"A" * SIZE)
    rng = random.Random(0)
    interrupted = tries = 0
    while tries < 20 or (interrupted < 5 and tries < 300):  # on a busy machine most kills come too early or too late
        tries += 1
        writer = processes.start("-c", WRITER, path)
        writer.wait_for("half")
        time.sleep(rng.uniform(0, 0.01))
        writer.kill()
        content = path.read_bytes()
        assert len(content) == SIZE
        assert content == content[:1] * SIZE
        leftovers = [child for child in tmp_path.iterdir() if child != path]
        interrupted += len(leftovers)
        for child in leftovers:
            assert child.name.startswith(".snapshot.pth.")
            assert child.suffix == ".tmp"
            child.unlink()
    assert interrupted >= 5  # else the kills came too late to show anything


def test_the_file_stays_old_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "plot.html"
    path.write_bytes(b"old")
    with replace_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    # Mutation: leave out `aside.unlink`.
    path = tmp_path / "plot.html"
    path.write_bytes(b"old")
    with pytest.raises(error), replace_file(path) as file:
        file.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_matches_no_pattern_of_a_snapshot(tmp_path: Path) -> None:
    # Mutation: leave out the first or the last dot of its name.
    with replace_file(tmp_path / "last_model_pong_1000.pth"):
        assert len(list(tmp_path.iterdir())) == 1
        for pattern in ("last_model_pong_*", "*.pth"):
            assert not list(tmp_path.glob(pattern))


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with replace_file(tmp_path / "replaced"):
        pass
    assert (tmp_path / "replaced").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_torch_saves_into_it(tmp_path: Path) -> None:
    with replace_file(tmp_path / "model.pth") as file:
        torch.save({"T_actors": 7, "weight": torch.arange(5)}, file)
    state = torch.load(io.BytesIO((tmp_path / "model.pth").read_bytes()), weights_only=True)
    assert state["T_actors"] == 7
    assert state["weight"].tolist() == [0, 1, 2, 3, 4]
