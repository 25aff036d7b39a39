"""Continue from a snapshot in this new process: python -m tests.saber.resume snapshot.npz rows.npz."""

import sys

import numpy as np

from saber.environment import EnvironmentSettings
from saber.registry import make_environment
from tests.saber.reference import play

with np.load(sys.argv[1]) as file:
    arrays = dict(file)
settings = EnvironmentSettings(**{name: str(arrays.pop(name)) for name in ("env", "game")})
environment = make_environment(settings, seed=0)
actions = arrays.pop("future").tolist()
environment.restore(arrays)
rows = play(environment, actions)
np.savez(
    sys.argv[2],
    obs=[row.obs for row in rows],
    numbers=[[row.step_type, row.reward, row.discount] for row in rows],
    **{f"snapshot.{name}": array for name, array in environment.snapshot().items()},
)
