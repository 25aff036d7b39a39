"""How far a learner takes its actors to have come, by what it and learners before it have published."""

import pytest

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.programs.learner.run import Progress, bound_of_earlier

ROUND = 100  # agent steps
SETTINGS = options.parse(["--T-max", "50000", "--learn-start", "400"], "test", "")
LIMITER = RateLimiter.of(synchronize=True, wanted_steps=ROUND, nb_env_per_actor=1, nb_actor=2, max_chunks=100)


def earlier(*, saved: int, told: int, limiter: RateLimiter = LIMITER) -> tuple[int, int]:
    """Rounds and steps, for a snapshot of this many agent steps."""
    round_, steps, _ = bound_of_earlier(SETTINGS, Progress("id", saved // ROUND, saved), limiter, told)
    return round_, steps


def test_a_run_that_begins_has_come_nowhere() -> None:
    assert earlier(saved=0, told=0) == (2, 0)


@pytest.mark.parametrize("saved", [0, 300, 4000])
def test_a_learner_that_was_killed_has_published_rounds_after_its_snapshot(saved: int) -> None:
    """It had taken in all rounds before round 40, told so, and was publishing version 41, which an actor had got."""
    round_, steps = earlier(saved=saved, told=3900)
    assert 41 <= round_ < 200 and steps >= 3900


def test_where_redis_has_lost_the_record_only_the_length_of_the_run_is_known() -> None:
    round_, steps = earlier(saved=30_000, told=0)
    assert 500 <= round_ < 700 and steps == 50_400


def test_a_replay_that_is_filled_again_may_reach_beyond_the_run() -> None:
    # Mutations: bound rounds, or steps, by T-max.
    refill = options.parse(["--T-max", "50000", "--learn-start", "40000"], "test", "")
    round_, steps, _ = bound_of_earlier(refill, Progress("id", 490, 49_000), LIMITER, 89_000)
    assert (round_, steps) == (890 + 102, 89_000)
    round_, steps, _ = bound_of_earlier(refill, Progress("id", 890, 89_000), LIMITER, 0)
    assert round_ >= 890 + 102 and steps >= 89_000


def test_a_forged_record_reaches_no_further_than_the_run() -> None:
    assert earlier(saved=300, told=2**62)[0] < 700


def test_rounds_are_counted_with_the_actors_that_play_them() -> None:
    more = LIMITER.change(30, 30, 8)  # rounds 31, 32 ... of 13 steps for each of eight
    assert more.round_steps(31) == 104
    for round_ in (0, 29, 30, 31, 32, 99):
        assert more.round_of(more.steps_before(round_)) == round_
        assert more.round_of(more.steps_before(round_) + 99) == round_
    assert earlier(saved=0, told=more.steps_before(80), limiter=more)[0] >= 82


def test_a_learner_without_lockstep_may_have_published_with_each_step() -> None:
    # Mutation: bound the rounds by the steps of a whole round there, too.
    free = RateLimiter.of(synchronize=False, wanted_steps=5000, nb_env_per_actor=1, nb_actor=2, max_chunks=100)
    saved = Progress("id", round=454, T_actors=20_000, T_learner=19_000)
    assert 454 + 3000 <= bound_of_earlier(SETTINGS, saved, free, 22_000).round < 454 + 3300
    assert bound_of_earlier(SETTINGS, saved, free, 22_000, trained=28_000).round >= 454 + 9000, "nothing held it back"
