"""Episodes for the tests of logs and plots."""

import random
from collections.abc import Sequence

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.reward_plot import render_reward_plot
from rainbow_iqn_apex.saber.results.summary import ScoreCurve
from rainbow_iqn_apex.saber.results.task import Task


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


def page_of(
    records: Sequence[EpisodeRecord], task: Task, action_repeat: int = 4, evaluations: Sequence[EpisodeRecord] = ()
) -> str:
    """Render the plot of these episodes."""
    return render_reward_plot(ScoreCurve(records=records), ScoreCurve(records=evaluations), task, action_repeat)
