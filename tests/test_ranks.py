"""Several learners of one run over processes: they learn the same, save together, and none waits for one that is gone."""

from pathlib import Path

import pytest

from tests.ranks import Ranks
from tests.small import FAMILIES, SHORT_CHAIN
from tests.system import Result

RUNS = {"rainbow_iqn": SHORT_CHAIN, **FAMILIES}
SMALL = "--T-max 1600 --memory-capacity 4000".split()


def result_of(port: int, name: str, folder: Path, words: list[str], actors: int = 2) -> Result:
    with Ranks(port, name, folder, [*words, *SMALL], actors=actors) as system:
        return system.finish()


@pytest.mark.redis
@pytest.mark.parametrize("family", ["rainbow_iqn"])
def test_the_same_seed_gives_the_same_bytes(redis_port: int, run_name: str, tmp_path: Path, family: str) -> None:
    first, second = (
        result_of(redis_port, f"{run_name}-{turn}", tmp_path / turn, RUNS[family], actors=4) for turn in ("a", "b")
    )
    assert first == second
    assert first.scores.count(b"\n") > 20
