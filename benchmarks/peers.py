"""Does ours learn as well, and as fast, as Stable-Baselines3? Its runs, in the form of those of `benchmarks.learning`.

    python -m benchmarks.peer_environment
    python -m benchmarks.peers sb3-ppo --game pendulum --seed 123
    python -m benchmarks.learning run ppo-pendulum --game pendulum --seed 123
    python -m benchmarks.learning report

Both systems run for the same agent steps and seeds, each tensor operation in one thread. `wall_clock_s` is that of the
whole run, from the command to its end: of ours with Redis, learner and actor, of the peer in its one process.
"""

import argparse
import json
import os
import subprocess
import time
from dataclasses import asdict
from datetime import date
from typing import Any

from benchmarks.environment_info import machine
from benchmarks.learning import summary, thinned, write
from benchmarks.learning_tasks import TASKS
from benchmarks.peer_environment import peer_python, peer_versions
from benchmarks.peer_tasks import PEERS
from rainbow_iqn_apex.saber.results.run_record import ROOT, commit


def run(name: str, game: str, seed: int, steps: int | None = None) -> dict[str, Any]:
    """Train once in the peers' environment; raises RuntimeError if that fails."""
    peer = PEERS[name][game]
    settings = asdict(peer) | {"env": TASKS[game], "steps": steps or peer.steps, "seed": seed}
    about = {
        "configuration": name,
        "game": game,
        "seed": seed,
        "command": f"python -m benchmarks.peers {name} --game {game} --seed {seed}",
        "settings": settings,
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": machine(),
        "versions": peer_versions(),
        "agent_steps": settings["steps"],
    }
    given = settings | {"env": TASKS[game].partition(":")[2]}
    command = [str(peer_python()), "-P", str(ROOT / "benchmarks" / "sb3_learning.py")]
    begun = time.monotonic()
    done = subprocess.run(
        command, input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=False, env=one_thread()
    )
    seconds = time.monotonic() - begun
    if done.returncode:
        raise RuntimeError(f"{name} has ended with exit code {done.returncode}; its message is above")
    found = json.loads(done.stdout)
    return about | {
        "wall_clock_s": round(seconds, 1),
        "last_episodes": summary([score for _, score, _ in found["episodes"][-peer.episodes :]]),
        "episodes": thinned(found["episodes"], peer.episodes),
        "clock": found["clock"],
    }


def one_thread() -> dict[str, str]:
    """Return the environment variables of a process whose libraries compute in one thread."""
    return os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    """Read the command line, train, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration", choices=PEERS)
    parser.add_argument("--game", required=True, choices=sorted({game for games in PEERS.values() for game in games}))
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--steps", type=int, help="other agent steps, to see that it runs; then nothing is written")
    args = parser.parse_args()
    try:
        result = run(args.configuration, args.game, args.seed, args.steps)
    except RuntimeError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    if args.steps:
        print(result["last_episodes"], f"{result['wall_clock_s']} s")
    else:
        write(result)


if __name__ == "__main__":
    main()
