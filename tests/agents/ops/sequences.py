"""Random sequences as a batch holds them, for functions over rows."""

import numpy as np
import torch
from torch import Tensor

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
