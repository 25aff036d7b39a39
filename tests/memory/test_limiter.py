import random
from dataclasses import replace
from functools import partial

import pytest

from rainbow_iqn_apex.memory.limiter import Crew, RateLimiter, check_crews


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
                assert min(self.played) >= self.round - self.limiter.max_policy_lag
            self.round += 1
            self.unread = [self._rng.choice([0, unread]) for unread in self.unread]
        else:
            self.played[who] += 1
            self.unread[who] += self._rng.randint(1, 9)

    def check(self) -> None:
        if self.limiter.synchronize:
            # The actors play round r while the learner trains in round r; either may be the first to finish.
            assert max(self.played) <= self.round
            if not self.limiter.max_policy_lag:
                assert min(self.played) >= self.round - 1
            assert min(self.played) >= self.round - 2
            assert max(self.played) - min(self.played) <= 2
        else:
            assert max(self.unread) <= self.limiter.max_unread + 9


def check_any_order(limiter: RateLimiter, seed: int) -> None:
    rng, rounds = random.Random(seed), 30
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


LOCKSTEP = RateLimiter(True, wanted_steps=15, nb_env_per_actor=1, max_unread=16, crews=(Crew(0, 0, 3, 5),))


@pytest.mark.parametrize("synchronize", [True, False])
def test_nobody_waits_for_ever_and_nobody_runs_away(synchronize: bool) -> None:
    for seed in range(100):
        check_any_order(replace(LOCKSTEP, synchronize=synchronize), seed)
        check_any_order(replace(LOCKSTEP, synchronize=synchronize, max_policy_lag=0), seed)


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
    ("broken", "synchronize"), [(PlaysAhead, True), (TrainsAhead, True), (WaitsForEachOther, True), (NeverFull, False)]
)
def test_the_check_notices(broken: type[RateLimiter], synchronize: bool) -> None:
    with pytest.raises(AssertionError):
        for seed in range(20):
            check_any_order(broken(synchronize, 15, 1, 16, LOCKSTEP.crews), seed)


def test_both_sides_work_at_the_same_time() -> None:
    """Round 1 of the learner does not need the actors' round 1, and the other way round."""
    assert LOCKSTEP.may_play(1, published=1, unread=10**6)
    assert LOCKSTEP.may_train(1, played=0)
    assert not LOCKSTEP.may_play(2, published=1, unread=0)
    assert not LOCKSTEP.may_train(2, played=0)
    assert LOCKSTEP.may_train(0, played=-1)
    assert LOCKSTEP.may_play(0, published=0, unread=0)
    assert not LOCKSTEP.may_play(0, published=-1, unread=0)


def test_without_policy_lag_both_sides_take_turns() -> None:
    """The learner trains in a round on the rows of that round, which were played with the weights that it has."""
    turns = replace(LOCKSTEP, max_policy_lag=0)
    assert turns.may_play(0, published=0, unread=0)
    assert not turns.may_train(0, played=-1)
    assert turns.may_train(0, played=0) and not turns.may_play(1, published=0, unread=0)
    assert turns.may_play(1, published=1, unread=0) and not turns.may_train(1, played=0)


@pytest.mark.parametrize("round_steps", [1, 7, 400])
@pytest.mark.parametrize("nb_env", [1, 3, 8, 500])
def test_a_round_is_as_long_as_was_asked_for(round_steps: int, nb_env: int) -> None:
    limiter = RateLimiter.of(
        synchronize=True, wanted_steps=round_steps, nb_env_per_actor=nb_env, nb_actor=1, max_chunks=99
    )
    assert round_steps <= limiter.round_steps(3) < round_steps + nb_env
    assert limiter.round_steps(3) == limiter.crew_of(3).env_steps * nb_env
    assert limiter.crew_of(3).env_steps >= 1


@pytest.mark.parametrize("nb_actor", [1, 6, 360])
def test_without_lockstep_a_round_does_not_get_shorter_with_more_actors(nb_actor: int) -> None:
    limiter = RateLimiter.of(
        synchronize=False, wanted_steps=401, nb_env_per_actor=2, nb_actor=nb_actor, max_chunks=10**6
    )
    assert limiter.crew_of(7).env_steps == 201
    assert limiter.round_steps(7) == 401


def test_unread_messages_fit_into_the_replay_but_for_a_chunk_of_each_environment() -> None:
    limiter_of = partial(RateLimiter.of, synchronize=False, wanted_steps=400)
    limiter = limiter_of(nb_env_per_actor=1, nb_actor=6, max_chunks=600)
    assert limiter.max_unread == 100
    assert limiter_of(nb_env_per_actor=32, nb_actor=6, max_chunks=6).max_unread == 16 + 32
    assert limiter.may_play(9, published=0, unread=100)
    assert not limiter.may_play(9, published=0, unread=101)
    assert limiter.may_train(9, played=-1)


def limiter_of(nb_actor: int) -> RateLimiter:
    return RateLimiter.of(synchronize=True, wanted_steps=400, nb_env_per_actor=2, nb_actor=nb_actor, max_chunks=99)


def test_another_number_of_actors_begins_with_the_next_round() -> None:
    grown = limiter_of(3).change(10, 10, 5)
    assert grown.crews == (Crew(0, 0, 3, 67), Crew(10, 4020, 3, 67), Crew(11, 4422, 5, 40))
    assert [grown.joining_round(actor) for actor in range(5)] == [0, 0, 0, 11, 11]
    shrunk = limiter_of(3).change(10, 10, 1)
    assert shrunk.crews == (Crew(0, 0, 3, 67), Crew(10, 4020, 1, 67), Crew(11, 4154, 1, 200))
    assert shrunk.change(10, 10, 1) is shrunk
    # Before the round has ended, the number changes again: who left in it does not come back to it.
    assert shrunk.change(10, 10, 3).crews[1:] == (Crew(10, 4020, 1, 67), Crew(11, 4154, 3, 67))
    assert [shrunk.change(10, 10, 3).joining_round(actor) for actor in range(3)] == [0, 11, 11]
    # Rounds that a killed learner had published are played by those that stay.
    assert limiter_of(3).change(9, 12, 1).crews == (Crew(0, 0, 3, 67), Crew(9, 3618, 1, 67), Crew(13, 4154, 1, 200))
    assert replace(LOCKSTEP, synchronize=False).change(10, 10, 7).crews == (Crew(0, 0, 7, 5),), "always one crew"


@pytest.mark.parametrize("seed", range(50))
def test_steps_count_on_over_any_changes(seed: int) -> None:
    """Counted one round after the other, by what each environment of each actor plays."""
    rng = random.Random(seed)
    limiter, round_, steps = limiter_of(3), 0, 0
    for _ in range(40):
        if rng.random() < 0.3:
            limiter = limiter.change(round_, round_ + rng.randint(0, 3), rng.randint(1, 6))
        assert limiter.steps_before(round_) == steps
        crew = limiter.crew_of(round_)
        played = sum(2 * crew.env_steps for actor in range(6) if actor < crew.nb_actor)
        assert limiter.round_steps(round_) == played
        assert check_crews([list(crew) for crew in limiter.crews]) == limiter.crews
        round_, steps = round_ + 1, steps + played
