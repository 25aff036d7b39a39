"""When a batch begins, by a clock that the test has."""

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.programs.inference.batching import BatchRule

_EPSILON = 1e-9


def asked_by(clients: int, groups: tuple[int, ...] = (0,)) -> BatchRule:
    """A rule whose batches take half a second, when the first has begun, for which all groups asked at 0."""
    rule = BatchRule()
    rule.end(0.5)
    for client, group in itertools.product(range(clients), groups):
        rule.ask(client, group, 0.0)
    rule.begin()
    return rule


# A mutation that fails here: `leave` that forgets the requests alone.
def test_a_client_that_has_gone_is_not_waited_for_though_it_had_asked_nothing() -> None:
    rule = asked_by(3, groups=(0, 4))
    rule.ask(0, 0, 0.1)
    rule.ask(1, 0, 0.1)
    assert rule.wait_s(0.1) > 0
    rule.leave(1)
    assert rule.wait_s(0.1) > 0, "two clients are left, four groups"
    rule.leave(2)
    assert rule.wait_s(0.1) == 0.0, "one of the two that are left waits"
    rule.leave(0)
    assert rule.wait_s(0.1) == float("inf")


# A mutation that fails here: a `leave` after which the time goes on from the first request, whosever it was.
def test_a_request_does_not_begin_a_batch_for_one_that_has_gone() -> None:
    rule = asked_by(8)
    rule.ask(0, 0, 0.1)
    rule.ask(1, 0, 0.4)
    rule.leave(0)
    assert abs(rule.wait_s(0.6) - 0.3) < _EPSILON


def test_the_mean_begins_with_the_first_batch_and_follows_the_others() -> None:
    rule = BatchRule()
    rule.end(2.0)
    assert rule.mean_s == 2.0
    for _ in range(100):
        rule.end(0.25)
    assert abs(rule.mean_s - 0.25) < 0.001


# Mutations that fail here: `2 * len(self._waiting) > len(self._asked)`; `self._waiting[-1][1]`, the time of the newest
# request; `2 * self.mean_s`; `_LIVE_S = 10`; a `leave` that keeps the requests.
@given(st.integers(0, 2**32), st.integers(1, 9), st.integers(0, 25))
def test_a_request_waits_for_half_of_the_askers_or_one_mean_time(seed: int, clients: int, mean: int) -> None:
    rng = random.Random(seed)
    rule = BatchRule()
    rule.end(mean / 64)  # sums of such numbers are exact
    now, since, last = 0.0, 0.0, dict[int, float]()
    waiting: list[tuple[int, float]] = []  # clients, and when they have asked
    for _ in range(60):
        now += rng.choice((0, 1, 3, 20, 90)) / 64
        client = rng.randrange(clients)
        if rng.random() < 0.2:
            rule.leave(client)
            last.pop(client, None)
            waiting = [(who, at) for who, at in waiting if who != client]
        else:
            rule.ask(client, 0, now)
            last[client] = now
            since = since if waiting else now
            waiting.append((client, now))
        wait = rule.wait_s(now)
        assert (wait == float("inf")) == (not waiting)
        if not waiting:
            continue
        live = sum(now - at < 1 for at in last.values())
        if 2 * len(waiting) >= live + sum(1 <= now - at < 1.2 for at in last.values()):
            assert wait == 0.0, "half wait, of those that may count as live"
        if len(waiting) < live / 2 and now - since < rule.mean_s:
            assert wait > 0.0
        # The loop is idle: it comes back when this time is over, if nothing comes before that.
        assert wait == 0.0 or min(at for _, at in waiting) + rule.mean_s >= now + wait
        if wait == 0.0 or rng.random() < 0.1:
            rule.begin()
            waiting.clear()
