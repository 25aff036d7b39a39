"""Whole runs on a CUDA device: what is stopped there goes on there, is learned further there, and plays there."""

import signal
from pathlib import Path

import pytest
import torch

from tests.small import FAMILIES, SHORT_CHAIN
from tests.system import EVALUATION, LEARNER, System

T_MAX = 3000
DEVICE = "cuda:0"


@pytest.mark.gpu
@pytest.mark.redis
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "family",
    ["rainbow", "rainbow_iqn", "btr", "r2d2", "sac-lstm", "impala-mix", "pqn", "ppo", "vmpo-lstm", "reinforce"],
)
def test_a_run_of_a_gpu_goes_on_and_is_evaluated(redis_port: int, run_name: str, tmp_path: Path, family: str) -> None:
    words = FAMILIES.get(family, [*SHORT_CHAIN, "--agent", family])
    words = [*words, *f"--disable-cuda False --learn-start 600 --T-max {T_MAX}".split()]
    with System(redis_port, run_name, tmp_path, words) as system:
        system.wait_for(LEARNER, f"/ {T_MAX}", 8)
        system.restart(LEARNER, signal.SIGTERM)
        system.finish()
        printed = system.printed(LEARNER)
        assert f"on {DEVICE}" in printed and "Resuming from" in printed, printed
        assert ("update and replay" in printed) == ("queue on" not in printed), "chunks of a queue are on the host"
        played = system.start(
            EVALUATION, "--model", str(tmp_path), *"--evaluation-episodes 3 --evaluation-workers 1".split()
        )
        assert played.finish(200) == 0, system.last_words()
        assert f"on {DEVICE}" in system.printed(EVALUATION)
    with System(redis_port, f"{run_name}-2", tmp_path / "2", [*words, "--model", str(tmp_path)]) as system:
        system.finish()
        assert "Starting from the weights of" in system.printed(LEARNER)
