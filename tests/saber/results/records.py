"""Episodes for the tests of logs and plots."""

import random

from rainbow_iqn_apex.environments.scores import EpisodeRecord


def stream(count: int, seed: int = 0) -> list[EpisodeRecord]:
    """Random episodes of 3 actors with 2 environments each, with ties and disorder in the agent steps."""
    rng = random.Random(seed)
    records, steps = [], 0
    for index in range(count):
        steps += rng.choice([0, 1, 700, 9000])
        late = max(0, steps - rng.choice([0, 0, 500]))  # actors overtake each other
        score = rng.choice([float(rng.randrange(-20, 5000)), rng.uniform(-1, 1)])
        worker = index % 6
        records.append(
            EpisodeRecord(
                late, late // 4, worker // 2, worker % 2, index // 6, score / 4, score / 2, score,
                rng.randrange(1, 9999), rng.choice(["game_over", "stuck"]),
            )
        )  # fmt: skip
    return records
