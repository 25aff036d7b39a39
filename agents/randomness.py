"""Where all random numbers begin: seeds of processes, and generators that snapshots hold."""

import numpy as np
import torch


def derive_seed(seed: int, *path: int) -> int:
    """A seed for one purpose of one process: independent of those of other paths."""
    return int(np.random.SeedSequence([seed, *path]).generate_state(1, np.uint32)[0])


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Go on drawing where a snapshot was taken, unless that was on another kind of device."""
    if len(state) == len(generator.get_state()):
        generator.set_state(state.cpu())
    else:
        print(f"Random numbers begin anew: the snapshot's are not those of {generator.device}", flush=True)
