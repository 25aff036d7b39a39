import random
from dataclasses import replace

import pytest

from memory.limiter import RateLimiter


class Play:
    """A learner and actors that follow the limiter's two rules in any order of events."""

    def __init__(self, limiter: RateLimiter, actors: int, rng: random.Random) -> None:
        self.limiter = limiter
        self.round = 0  # of the learner, and of the newest weights
        self.played = [-1] * actors  # last round of each actor
        self.unread = [0] * actors
        self._rng = rng

    def may(self, who: int) -> bool:
        if who < 0:
            return self.limiter.may_train(self.round, min(self.played))
        return self.limiter.may_play(self.played[who] + 1, self.round, self.unread[who])

    def go_on(self, who: int) -> None:
        if who < 0:
            if self.limiter.synchronize:  # what it trains on is complete
                assert min(self.played) >= self.round - 1
            self.round += 1
            self.unread = [self._rng.choice([0, unread]) for unread in self.unread]
        else:
            self.played[who] += 1
            self.unread[who] += self._rng.randint(1, 9)

    def check(self) -> None:
        if self.limiter.synchronize:
            # The actors play round r while the learner trains in round r; either may be the first to finish.
            assert max(self.played) <= self.round
            assert min(self.played) >= self.round - 2
            assert max(self.played) - min(self.played) <= 2
        else:
            assert max(self.unread) <= self.limiter.max_unread + 9


def check_any_order(limiter: RateLimiter, seed: int, rounds: int = 30) -> None:
    rng = random.Random(seed)
    actors = rng.randint(1, 5)
    play = Play(limiter, actors, rng)
    speeds = [rng.choice([0.1, 1, 10]) for _ in range(actors + 1)]
    while play.round < rounds:
        ready = [who for who in range(-1, actors) if play.may(who)]
        assert ready, "deadlock"
        play.go_on(rng.choices(ready, [speeds[who + 1] for who in ready])[0])
        play.check()
    if limiter.synchronize:
        assert min(play.played) >= rounds - 2


LOCKSTEP = RateLimiter(True, env_steps=5, round_steps=15, nb_env=3, max_unread=16)


@pytest.mark.parametrize("synchronize", [True, False])
def test_nobody_waits_for_ever_and_nobody_runs_away(synchronize: bool) -> None:
    for seed in range(300):
        check_any_order(replace(LOCKSTEP, synchronize=synchronize), seed)


class PlaysAhead(RateLimiter):
    def may_play(self, round_: int, published: int, unread: int) -> bool:  # noqa: ARG002
        return published >= round_ - 1


class TrainsAhead(RateLimiter):
    def may_train(self, round_: int, played: int) -> bool:
        return played >= round_ - 2


class WaitsForEachOther(RateLimiter):
    def may_play(self, round_: int, published: int, unread: int) -> bool:  # noqa: ARG002
        return published > round_

    def may_train(self, round_: int, played: int) -> bool:
        return played >= round_


class NeverFull(RateLimiter):
    def may_play(self, round_: int, published: int, unread: int) -> bool:  # noqa: ARG002
        return True


@pytest.mark.parametrize(
    ("broken", "synchronize"),
    [(PlaysAhead, True), (TrainsAhead, True), (WaitsForEachOther, True), (NeverFull, False)],
)
def test_the_check_notices(broken: type[RateLimiter], synchronize: bool) -> None:
    with pytest.raises(AssertionError):
        for seed in range(20):
            check_any_order(broken(synchronize, 5, 15, 3, 16), seed)


def test_both_sides_work_at_the_same_time() -> None:
    """Round 1 of the learner does not need the actors' round 1, and the other way round."""
    assert LOCKSTEP.may_play(1, published=1, unread=10**6)
    assert LOCKSTEP.may_train(1, played=0)
    assert not LOCKSTEP.may_play(2, published=1, unread=0)
    assert not LOCKSTEP.may_train(2, played=0)
    assert LOCKSTEP.may_train(0, played=-1)
    assert LOCKSTEP.may_play(0, published=0, unread=0)
    assert not LOCKSTEP.may_play(0, published=-1, unread=0)


@pytest.mark.parametrize("round_steps", [1, 7, 400])
@pytest.mark.parametrize("nb_env", [1, 3, 8, 500])
def test_a_round_is_as_long_as_was_asked_for(round_steps: int, nb_env: int) -> None:
    limiter = RateLimiter.of(synchronize=True, round_steps=round_steps, nb_env=nb_env, nb_actor=1, max_chunks=99)
    assert round_steps <= limiter.round_steps < round_steps + nb_env
    assert limiter.round_steps == limiter.env_steps * nb_env
    assert limiter.env_steps >= 1


@pytest.mark.parametrize("nb_actor", [1, 6, 360])
def test_without_lockstep_a_round_does_not_get_shorter_with_more_actors(nb_actor: int) -> None:
    limiter = RateLimiter.of(
        synchronize=False, round_steps=401, nb_env=2 * nb_actor, nb_actor=nb_actor, max_chunks=10**6
    )
    assert limiter.env_steps == 201
    assert limiter.round_steps == 401


def test_unread_messages_fit_into_the_replay() -> None:
    limits = {"synchronize": False, "round_steps": 400, "nb_env": 6}
    assert RateLimiter.of(**limits, nb_actor=6, max_chunks=600).max_unread == 100
    assert RateLimiter.of(**limits, nb_actor=6, max_chunks=6).max_unread == 16  # but some must be allowed
    limiter = RateLimiter.of(**limits, nb_actor=6, max_chunks=600)
    assert limiter.may_play(9, published=0, unread=100)
    assert not limiter.may_play(9, published=0, unread=101)
    assert limiter.may_train(9, played=-1)
