"""What this machine has for a run: CUDA devices, and so the preset of a command that chooses none; memory and disk."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rainbow_iqn_apex import args
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.options.environment_names import check_actors
from rainbow_iqn_apex.programs.process import has_worked

_ACTOR_BYTES = 350_000_000  # with PyTorch, as of an inference server
_ASKING_BYTES = 120_000_000  # without it
_MEMINFO = Path("/proc/meminfo")
CONTROL_GROUP = Path("/sys/fs/cgroup")  # of a container


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


@dataclass(frozen=True)
class Need:
    """Bytes that something needs, and bytes that are there for it."""

    what: str
    needed: int
    there: int
    where: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {gigabytes(self.needed)} of {gigabytes(self.there)} {self.where}"


def actor_bytes(args: Args) -> int:
    """Return the bytes that an actor with these settings needs beside its weights."""
    return _ACTOR_BYTES if args.inference == "local" else _ASKING_BYTES


def own_server_bytes(args: Args, weights: int) -> int:
    """Return the bytes of the inference server that a learner starts, whose policies have so many bytes of weights."""
    if args.inference != "learner":
        return 0
    alone = args.nb_eval_actors + args.nb_actor * args.synchronize_actors_with_learner  # each with its own policy
    return _ACTOR_BYTES + weights * (1 + alone)


def check_actor(args: Args) -> None:
    """Raise UserError if an actor does not fit into this machine's memory and --force is not given."""
    needed = actor_bytes(args)
    there = available_memory()
    refuse([Need("actor", needed, there, "free here", "start fewer actors on this machine")], args)


def available_memory() -> int:
    """Return the bytes that this process may still use of the machine's memory, or of its container's (Linux)."""
    try:
        free = int(_MEMINFO.read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    except OSError:  # no Linux: all that the machine has
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit, used = ((CONTROL_GROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return free
    return free if limit == "max" else min(free, int(limit) - int(used) + _cached())


def _cached() -> int:
    """Return the bytes of files that count as used by the container, and that the kernel gives back when it must."""
    with suppress(OSError):
        if found := re.search(r"(?m)^inactive_file (\d+)$", (CONTROL_GROUP / "memory.stat").read_text()):
            return int(found[1])
    return 0


def refuse(needs: list[Need], args: Args) -> None:
    """Raise UserError if there is less than a process needs, it has not worked before, and --force is not given."""
    errors = [f"{need.remedy}: {need}" for need in needs if need.needed > need.there]
    if errors and has_worked():  # since then, others have taken what is missing, and may give it back
        print("\n".join(errors), flush=True)
    elif errors and not args.force:
        raise UserError("\n".join(f"{error}; --force starts all the same" for error in errors))


def gigabytes(count: int) -> str:
    """Write a number of bytes, as in "1.5 GB"."""
    return f"{max(count, 0) / 1e9:.1f} GB"
