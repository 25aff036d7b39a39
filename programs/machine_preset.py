"""The preset of a run whose command chooses none: a machine without a GPU begins with the small one."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from rainbow_iqn_apex import args
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.options.environment_names import check_actors


@cache
def count_gpus() -> int:
    """Return how many CUDA devices PyTorch finds."""
    import torch  # takes seconds

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def check_device(option: str, number: int, there: int) -> None:
    """Raise UserError for the number of a CUDA device that is not among those `there`."""
    if number >= there:
        advice = f"choose from 0 to {there - 1}" if there else "leave it out to compute on the CPU"
        raise UserError(f"{option}: PyTorch finds no CUDA device {number} here, {there} in all; {advice}")


def preset_for(given: Mapping[str, Any], count_gpus: Callable[[], int] = count_gpus) -> str:
    """Return the preset that the start script adds to these options, by name; empty if none."""
    return "" if given.get("disable_cuda") or "preset" in given or count_gpus() else "cpu"


def parse_for_start(words: Sequence[str]) -> Args:
    """Return what options come to for the start script; raises UserError with all mistakes in them.

    GPUs are counted only where other defaults might accept what these do not. The rest comes from the program itself.
    """
    try:
        return _parsed(words)
    except UserError:
        given, _, _ = args.read(words)
        if not (preset := preset_for(given)):
            raise
        return _parsed([*words, f"--preset={preset}"])


def _parsed(words: Sequence[str]) -> Args:
    found = args.parse(words, "", "")
    check_actors(found.env, found.game, found.nb_actor)
    return found
