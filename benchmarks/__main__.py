"""Runs one benchmark by its name: a module of this folder, which `harness.run` describes."""

import argparse
import sys
from importlib import import_module

from rainbow_iqn_apex.programs import process

TABLE = {
    "speed": "environment, replay, networks, transport and system, one after the other: eight minutes",
    "environment": "frames a second of the Atari environment, beside the bare emulator and other environments",
    "replay": "samples and new priorities a second of replay, beside a bare gather and other replays",
    "networks": "how fast the paper's network acts and learns, beside its matrix products",
    "transport": "transitions a second from actors through Redis into the replay, and their bytes",
    "system": "agent steps a second of learner, actor and Redis together, and how idle the learner is",
    "gpu": "updates and frames a second of each agent's preset on a GPU; `bash benchmarks/gpu.sh` runs tests, too",
    "inference": "agent steps a second of inference on a server, beside inference in actors, and how long answers take",
    "learners": "updates and agent steps a second of one learner, and of two that share its batch",
    "soak": "whether memory and file descriptors of a long run stay flat",
    "learning": "whether agents learn: named runs of ours and of Stable-Baselines3, baselines, and their report",
    "clock": "what each agent's cpu preset learns in equal minutes, by the episodes that its last weights play",
    "ppo_speed": "frames a second of PPO's training, beside Stable-Baselines3",
    "impala_speed": "frames a second of IMPALA's training, beside Sample Factory's APPO",
    "peer_environment": "makes .venv-peers, in which Stable-Baselines3 runs for three of these, or .venv-appo",
}


def main() -> None:
    """Read the name, and run that benchmark with the words that follow."""
    process.prepare_processor()  # before torch is imported: OpenMP reads how long its idle threads spin only once
    width = max(map(len, TABLE))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        usage="%(prog)s NAME [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:{width}}  {sentence}" for name, sentence in TABLE.items()),
    )
    parser.add_argument("name", choices=TABLE, metavar="NAME", help="one of those below; --help after it: its options")
    name = parser.parse_args(sys.argv[1:2] or ["--help"]).name
    import_module("benchmarks.harness").run(name, sys.argv[2:])


if __name__ == "__main__":
    main()
