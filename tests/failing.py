"""An environment of a user's whose code fails: where the variable FAILS_IN says, in the method's n-th call."""

import multiprocessing
import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

CLOSED = "The environment is closed"


class Failing(gymnasium.Env[Any, Any]):
    """Episodes of five steps, of which there are no pictures."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces.Box(0, 1, (3,)), spaces.Discrete(2)
        self._calls: dict[str, int] = {}
        self._step = 0
        if os.environ.get("FAILS_IN") == "child" and multiprocessing.parent_process():
            raise ImportError("no module for levels")
        self._may_fail("constructor")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._may_fail("reset")
        self._step = 0
        return self._seen(), {}

    def step(self, _action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._may_fail("step")
        self._step += 1
        return self._seen(), 1.0, self._step == 5, False, {}

    def render(self) -> None: ...

    def close(self) -> None:
        print(CLOSED, flush=True)

    def _seen(self) -> Any:
        return np.full(3, self._step / 5, np.float32)

    def _may_fail(self, method: str) -> None:
        self._calls[method] = call = self._calls.get(method, 0) + 1
        if os.environ.get("FAILS_IN") == f"{method} {call}":
            raise LookupError(f"no level file\n for {method}")


gymnasium.register("Failing-v0", Failing)  # type: ignore[arg-type]
FAILING = "--env gymnasium:tests.failing:Failing-v0"
