"""Training whose loss is not finite ends, and leaves a checkpoint from before."""

from pathlib import Path

import pytest
import torch

from tests.small import FAMILIES, SHORT_CHAIN, TINY
from tests.system import LEARNER, System


def assert_snapshots_are_finite(folder: Path) -> None:
    for path in folder.glob("*.pth"):
        weights = torch.load(path, weights_only=True)["model_state_dict"]
        assert all(tensor.isfinite().all() for tensor in weights.values()), path


@pytest.mark.redis
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ([*SHORT_CHAIN, *TINY, "--lr-IQN", "1e14"], "a priority"),
        ([*FAMILIES["impala"], "--lr-IMPALA", "1e14"], "the value"),
    ],
    ids=["rainbow_iqn", "impala"],
)
def test_a_loss_that_is_not_finite_ends_the_learner(
    redis_port: int, run_name: str, tmp_path: Path, words: list[str], what: str
) -> None:
    # Mutations: a learner that writes a checkpoint at every RunError; no look at metrics, which is all that IMPALA has.
    with System(redis_port, run_name, tmp_path, words) as system:
        assert system.learner.finish(120) == 2, "the start script must not start it again"
    *_, last = system.printed(LEARNER).splitlines()
    assert last.startswith(f"launch_learner.py: error: {what} is not finite, so training has diverged")
    assert "Traceback" not in system.printed(LEARNER)
    assert_snapshots_are_finite(tmp_path)


@pytest.mark.redis
def test_weights_that_are_not_finite_are_neither_published_nor_saved_whatever_the_metrics(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutations: look at metrics alone; look at what is saved alone.
    words = [*FAMILIES["impala"], "--lr-IMPALA", "1e14", "--T-max", "100000"]
    with System(redis_port, run_name, tmp_path, words, change="silent") as system:
        assert system.learner.finish(120) == 2
    assert "error: a weight is not finite, so training has diverged" in system.printed(LEARNER)
    assert_snapshots_are_finite(tmp_path)
