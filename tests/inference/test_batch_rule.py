"""When a batch begins, by a clock that the test has."""

import random

from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.programs.inference.services import BatchRule


def test_the_mean_begins_with_the_first_batch_and_follows_the_others() -> None:
    rule = BatchRule()
    rule.end(2.0)
    assert rule.mean_s == 2.0
    for _ in range(100):
        rule.end(0.25)
    assert abs(rule.mean_s - 0.25) < 0.001


# Mutations that fail here: `2 * len(self._waiting) > len(self._asked)`; `self._waiting[-1][1]`, the time of the newest
# request; `2 * self.mean_s`; `_LIVE_S = 10`; a `leave` that keeps the requests, or forgets the requests alone.
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(0, 25))
def test_a_request_waits_for_half_of_the_askers_or_one_mean_time(seed: int, clients: int, mean: int) -> None:
    rng = random.Random(seed)
    rule = BatchRule()
    rule.end(mean / 64)  # sums of such numbers are exact
    now, last = 0.0, dict[tuple[int, int], float]()  # when each group of each client has last asked
    waiting: list[tuple[int, float]] = []  # clients, and when they have asked
    for _ in range(60):
        now += rng.choice((0, 1, 3, 20, 90)) / 64
        client = rng.randrange(clients)
        if rng.random() < 0.2:
            rule.leave(client)
            last = {who: at for who, at in last.items() if who[0] != client}
            waiting = [(who, at) for who, at in waiting if who != client]
        else:
            group = rng.choice((0, 4))
            rule.ask(client, group, now)
            last[client, group] = now
            waiting.append((client, now))
        wait = rule.wait_s(now)
        if not waiting:
            assert wait == float("inf")
            continue
        live = sum(now - at < 1 for at in last.values())
        rest = max(0.0, waiting[0][1] + rule.mean_s - now)  # of the oldest request's time
        if 2 * len(waiting) < live:
            assert wait == rest
        elif 2 * len(waiting) >= live + sum(1 <= now - at < 1.2 for at in last.values()):
            assert wait == 0.0, "half wait, of those that may count as live"
        else:
            assert wait in (0.0, rest)
        if wait == 0.0 or rng.random() < 0.1:
            rule.begin()
            waiting.clear()
