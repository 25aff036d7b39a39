"""Continue from a snapshot in this new process: python -m tests.environments.resume snapshot.npz rows.npz."""

import sys
from typing import Any

import numpy as np

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from tests.saber.reference import play

with np.load(sys.argv[1]) as file:
    arrays = dict(file)
settings = EnvironmentSettings(env=str(arrays.pop("env")), game=str(arrays.pop("game")))
environment = make_environment(settings, seed=0)
actions = arrays.pop("future").tolist()
environment.restore(arrays)
rows = play(environment, actions)
snapshot: dict[str, Any] = {f"snapshot.{name}": array for name, array in environment.snapshot().items()}
np.savez(
    sys.argv[2],
    obs=[row.obs for row in rows],
    numbers=[[row.step_type, row.reward, row.discount] for row in rows],
    **snapshot,
)
