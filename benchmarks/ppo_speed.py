"""How fast PPO trains on Atari: our system as its users start it against Stable-Baselines3, in frames a second.

All have the network of DQN's paper with 512 features, 8 environments that play 128 steps a round, 4 epochs of 4
updates, 18 actions, and sticky actions. They run in turn, each for a while in every repeat, as whole programs: Redis,
learner and actors of ours, one process of the peer or nine. Only whole rounds after a warm-up count. "environment" is
our environment alone with random actions, on one core, in the same repeat.
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from benchmarks.environment import play_together, players
from benchmarks.harness import Comparison, beside_first
from benchmarks.harness import add_options as add_common_options
from benchmarks.peer_environment import peer_python
from benchmarks.processes import Passed, watch_start_script
from rainbow_iqn_apex.common.checkout import ROOT

GAME = "space_invaders"
ROUND = 1024  # agent steps
FRAMES = 4  # of an agent step
WANTED = 1.3  # least ratio to the fastest peer
_SYSTEM = f"--agent ppo --game {GAME} --disable-cuda --log-interval {ROUND} --windows none"
# Two actors play on both cores while the learner waits; together they have as many environments.
OURS = {
    "ours": "--precision float32",
    "ours, 2 actors": "--precision float32 --nb-actor 2 --nb-env-per-actor 4",
    "ours, 2 actors, bfloat16 if there is": "--precision auto --nb-actor 2 --nb-env-per-actor 4",
}
PEERS = {"SB3, one process": "one-process", "SB3, SubprocVecEnv": "subprocesses", "SB3, ale-py's vector": "ale-vector"}
_BEST = "the fastest peer"
_LEAST_LINES = 3  # of the learner: one before the warm-up, two around a round


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare ours with the fastest peer of each repeat."""
    warm_up_s, seconds = (1.0, 3.0) if args.quick else (args.warm_up, args.seconds)
    works: dict[str, Callable[[], float]] = {
        name: partial(trained, f"{_SYSTEM} {options}", args.port, warm_up_s, seconds) for name, options in OURS.items()
    }
    works |= {name: partial(peer, kind, warm_up_s, seconds) for name, kind in PEERS.items()}
    with players(1) as pool:
        works["environment"] = partial(play_together, pool, 1, min(seconds, 10.0))
        measured = in_turn(works, args.repeats)
    return [beside_best("training PPO", measured, PEERS, {"ours": WANTED, "ours, 2 actors": WANTED})]


def beside_best(
    name: str, measured: dict[str, list[float]], peers: Iterable[str], wanted: dict[str, float]
) -> Comparison:
    """Compare what was measured with the fastest of the peers in each repeat."""
    best = [max(each) for each in zip(*(measured[peer] for peer in peers), strict=True)]
    return beside_first(name, "frames/s", {_BEST: best} | measured, wanted)


def in_turn(works: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Return each work's frames a second, one for each repeat, in which they run one after the other."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for number in range(repeats):
        for name, work in works.items():
            found[name].append(work())
            print(f"repeat {number + 1}, {name}: {found[name][-1]:,.0f} frames/s", flush=True)
    return found


def peer(kind: str, warm_up_s: float, seconds: float) -> float:
    """Return the frames a second of Stable-Baselines3."""
    words = [kind, "--game", GAME, "--seconds", str(seconds), "--warm-up", str(warm_up_s)]
    command = [str(peer_python()), "-P", str(ROOT / "benchmarks" / "sb3_speed.py"), *words]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def trained(words: str, port: int, warm_up_s: float, seconds: float) -> float:
    """Return the frames a second of our system between two lines of its learner; the warm-up begins at the first."""

    def is_over(passed: list[Passed]) -> bool:
        return passed[-1].seconds > passed[0].seconds + warm_up_s + seconds and len(passed) >= _LEAST_LINES

    with tempfile.TemporaryDirectory(prefix="ppo_speed_") as folder:
        place = ["--path-to-results", folder, "--port-redis", str(port)]
        passed = watch_start_script([*words.split(), *place], is_over)
    begun = min(passed[0].seconds + warm_up_s, passed[-2].seconds)  # at least one round, on a machine that is busy
    first, *_, last = [line for line in passed if line.seconds >= begun]
    return FRAMES * (last.steps - first.steps) / (last.seconds - first.seconds)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common_options(parser)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement [%(default)s]")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before each measurement [%(default)s]")
    parser.add_argument("--port", type=int, default=6400, help="for our system's Redis server [%(default)s]")
