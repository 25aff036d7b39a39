"""Where all random numbers begin: each process derives its seeds from that of the run."""

import numpy as np


def derive_seed(seed: int, *path: int) -> int:
    """Return a seed for one purpose of one process: independent of those of other paths."""
    return int(np.random.SeedSequence([seed, *path]).generate_state(1, np.uint32)[0])
