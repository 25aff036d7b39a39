"""The n-step return of one step of one whole episode, term by term (arXiv 1710.02298, equation 2)."""

from tests.ground_truth.episodes import Episode


def n_step(episode: Episode, step: int, n: int, gamma: float) -> tuple[float, float, int]:
    """Return (return, bootstrap discount, steps taken) of the action chosen at `step`."""
    steps = min(n, len(episode.rewards) - step)
    total = 0.0
    for k in range(steps):
        weight = gamma**k
        for earlier in range(k):
            weight *= episode.discounts[step + earlier]
        total += weight * episode.rewards[step + k]
    bootstrap = gamma**steps
    for k in range(steps):
        bootstrap *= episode.discounts[step + k]
    return total, bootstrap, steps
