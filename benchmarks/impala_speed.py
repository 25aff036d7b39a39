"""How fast IMPALA trains on Atari: our system as its users start it against Sample Factory's APPO, in frames a second.

Both have the network of DQN's paper with 512 features, 32 environments, updates from 32 sequences of 20 steps, each
learned from once, 18 actions, sticky actions, and float32. They run in turn, each for a while in every repeat, as whole
programs; what was learned from after a warm-up counts. The environments are each system's own: ours with SABER's rules,
the peer's that of gymnasium's wrappers, faster than those of its examples (`appo_speed`).
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial

from benchmarks.harness import Comparison
from benchmarks.peer_environment import peer_python
from benchmarks.ppo_speed import GAME, add_options, beside_best, in_turn, trained
from rainbow_iqn_apex.common.checkout import ROOT

__all__ = ["add_options", "measure"]
_UPDATE = 640  # agent steps
_SYSTEM = f"--agent impala --game {GAME} --disable-cuda --log-interval {4 * _UPDATE} --windows none"
OURS = {
    "ours": "--precision float32 --nb-actor 2 --nb-env-per-actor 16",
    "ours, bfloat16 if there is": "--precision auto --nb-actor 2 --nb-env-per-actor 16",
}
PEERS = {"Sample Factory, 1 worker": 1, "Sample Factory, 2 workers": 2}


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare ours with the peer of each repeat."""
    warm_up_s, seconds = (1.0, 3.0) if args.quick else (args.warm_up, args.seconds)
    works: dict[str, Callable[[], float]] = {
        name: partial(peer, workers, warm_up_s, seconds) for name, workers in PEERS.items()
    }
    works |= {
        name: partial(trained, f"{_SYSTEM} {options}", args.port, warm_up_s, seconds) for name, options in OURS.items()
    }
    return [beside_best("training IMPALA", in_turn(works, args.repeats), PEERS, {})]


def peer(workers: int, warm_up_s: float, seconds: float) -> float:
    """Return the frames a second of Sample Factory's APPO."""
    words = ["--workers", str(workers), "--game", GAME, "--seconds", str(seconds), "--warm-up", str(warm_up_s)]
    command = [str(peer_python("appo")), "-P", str(ROOT / "benchmarks" / "appo_speed.py"), *words]
    with tempfile.TemporaryFile("w+") as log:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=True)
    return float(ended.stdout.split()[-1])
