"""Random sequences as a batch holds them, for functions over rows, and mistakes in what these read of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST, MID
from tests.ground_truth.episodes import random_stream


def random_sequences(rng: np.random.Generator, T: int, B: int) -> dict[str, Tensor]:
    """Draw T + 1 rows of B environments, cut anywhere out of random streams; nothing may read rewards of FIRST."""
    columns = []
    for _ in range(B):
        start = int(rng.integers(0, 20))
        stream = random_stream(rng, start + T + 1)
        window = slice(start, start + T + 1)
        columns.append([stream.reward[window], stream.discount[window], stream.step_type[window].astype(float)])
    reward, discount, step_type = np.moveaxis(np.array(columns), 0, 2)  # [T + 1, B] each
    reward, discount = (np.nan_to_num(numbers, nan=1e6) for numbers in (reward, discount))
    return {
        "value": torch.from_numpy(rng.normal(size=(T + 1, B))),
        "reward": torch.from_numpy(reward),
        "discount": torch.from_numpy(discount),
        "step_type": torch.from_numpy(step_type.astype(np.uint8)),
    }


# Arguments that are wrong so that a function of them has the mistake.
MISTAKES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "shifted rewards": lambda given: {"reward": given["reward"].roll(-1, 0)},
    "sums across ends": lambda given: {"step_type": torch.full_like(given["step_type"], MID)},
    "ends that bootstrap": lambda given: {"discount": given["discount"].clamp(min=0.5)},
    "truncations as deaths": lambda given: {"discount": torch.where(given["step_type"] == LAST, 0, given["discount"])},
    "no bootstrap": lambda given: {"value": torch.cat((given["value"][:-1], given["value"][-1:] * 0))},
}


def mistaken(function: Callable[..., Any], mistake: str) -> Callable[..., Any]:
    """Return the function with a mistake; its arguments are given by name."""
    return lambda **given: function(**given | MISTAKES[mistake](given))
