"""Continue from snapshots in a new process: python -m tests.environments.resume <folder with them>."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import Row
from tests.processes import run
from tests.saber.reference import play


class Played(NamedTuple):
    """An environment in the middle of something, and the actions that are to follow."""

    environment: Environment
    env: str
    game: str
    future: list[Any]


def check_new_process(played: list[Played], folder: Path) -> list[list[Row]]:
    """Let another process continue all of them as well; return the rows, which are the same in both, byte for byte."""
    for number, (environment, env, game, future) in enumerate(played):
        snapshot: dict[str, Any] = environment.snapshot()
        np.savez(folder / f"{number}.snapshot.npz", env=env, game=game, future=future, **snapshot)
    code, _, errors = run("-m", "tests.environments.resume", folder, seconds=300)
    assert code == 0, errors
    return [_check_rows(each, folder / f"{number}.rows.npz") for number, each in enumerate(played)]


def _check_rows(played: Played, continued: Path) -> list[Row]:
    rows = play(played.environment, played.future)
    with np.load(continued) as result:
        for name, array in _arrays(played.environment, rows).items():
            assert np.array_equal(result[name], array), (played.env, played.game, name)
    return rows


def _arrays(environment: Environment, rows: list[Row]) -> dict[str, Any]:
    numbers = [[row.step_type, row.reward, row.discount] for row in rows]
    snapshot = {f"snapshot.{name}": array for name, array in environment.snapshot().items()}
    return {"obs": [row.obs for row in rows], "numbers": numbers, **snapshot}


def _continue(saved: Path) -> None:
    with np.load(saved) as file:
        arrays = dict(file)
    settings = EnvironmentSettings(env=str(arrays.pop("env")), game=str(arrays.pop("game")))
    print("continuing", settings.env, settings.game, file=sys.stderr)  # for whoever reads why it has failed
    environment = make_environment(settings, seed=0)
    actions = arrays.pop("future").tolist()
    environment.restore(arrays)
    rows = play(environment, actions)
    np.savez(saved.with_name(saved.name.replace("snapshot", "rows")), **_arrays(environment, rows))


if __name__ == "__main__":
    for path in Path(sys.argv[1]).glob("*.snapshot.npz"):
        _continue(path)
