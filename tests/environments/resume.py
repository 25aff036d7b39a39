"""Continue from a snapshot in a new process: python -m tests.environments.resume snapshot.npz rows.npz."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import Row
from tests.processes import run
from tests.saber.reference import play


def check_new_process(environment: Environment, env: str, game: str, future: list[Any], folder: Path) -> list[Row]:
    """Let another process continue as well; return the rows that are the same in both, byte for byte."""
    saved, continued = folder / "snapshot.npz", folder / "rows.npz"
    snapshot: dict[str, Any] = environment.snapshot()
    np.savez(saved, env=env, game=game, future=future, **snapshot)
    code, _, errors = run("-m", "tests.environments.resume", saved, continued)
    assert code == 0, errors
    rows = play(environment, future)
    with np.load(continued) as result:
        for name, array in _arrays(environment, rows).items():
            assert np.array_equal(result[name], array)
    return rows


def _arrays(environment: Environment, rows: list[Row]) -> dict[str, Any]:
    numbers = [[row.step_type, row.reward, row.discount] for row in rows]
    snapshot = {f"snapshot.{name}": array for name, array in environment.snapshot().items()}
    return {"obs": [row.obs for row in rows], "numbers": numbers, **snapshot}


if __name__ == "__main__":
    with np.load(sys.argv[1]) as file:
        arrays = dict(file)
    settings = EnvironmentSettings(env=str(arrays.pop("env")), game=str(arrays.pop("game")))
    environment = make_environment(settings, seed=0)
    actions = arrays.pop("future").tolist()
    environment.restore(arrays)
    rows = play(environment, actions)
    np.savez(sys.argv[2], **_arrays(environment, rows))
