"""The list of metrics, and what is made of their values: shares of a loop's time, and rates."""

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.loop_clock import LoopClock, Shares
from rainbow_iqn_apex.monitoring.metrics import METRICS, MOST_TAGS, Rate, Tags, check_names, is_given, known, table

PARTS = ("other", "act", "send", "wait")


class Hands:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr("rainbow_iqn_apex.common.loop_clock.time.perf_counter", hands)
    return hands


def test_every_metric_has_one_name_a_unit_and_a_meaning() -> None:
    assert all(name == metric.name and name.count("/") == 1 for name, metric in METRICS.items())
    assert all(metric.unit and metric.meaning for metric in METRICS.values())


def test_an_unknown_name_is_an_error() -> None:
    check_names({"train/loss", "train/lost"})
    with pytest.raises(ValueError, match=r"no such metrics: 'time/lost'; monitoring/metrics\.py lists them"):
        check_names({"train/loss", "time/lost"})


class Overwriting(Tags):
    """The mutation: two metrics get one name."""

    def _free(self, tag: str) -> str:
        return tag[:60]


def odd_names(rng: random.Random) -> Iterator[str]:
    """Yield names that are made of few characters, so that many are alike as soon as these are replaced."""
    while True:
        yield "".join(rng.choice("/ \n_\x00α\ud800") for _ in range(rng.choice((0, 1, 2, 80))))


def are_sound(tags: Tags, rng: random.Random) -> bool:
    given = {name: tags.of(name) for name in ["loss", *islice(odd_names(rng), 200)]}
    kept = [tag for tag in given.values() if tag]
    assert len(kept) == MOST_TAGS and given["loss"] == "train/loss"
    assert all(tag == "train/loss" or is_given(tag) for tag in kept) and known(kept) == kept
    assert {name: tags.of(name) for name in given} == given, "a name stays"
    return len(set(kept)) == len(kept)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_an_agent_calls_a_metric_it_has_a_name_of_its_own(seed: int) -> None:
    assert are_sound(Tags(), random.Random(seed))
    assert not are_sound(Overwriting(), random.Random(seed))


@pytest.mark.parametrize("name", ["timesteps", "n_updates", "updates_per_second", "version"])
def test_an_agent_cannot_replace_what_the_learner_counts(name: str) -> None:
    assert Tags().of(name) == f"train/{name}_2"


class Forgetful(LoopClock):
    """The mutation: a block within another ends that one, too."""

    def enter(self, part: str) -> str:
        super().enter(part)
        return PARTS[0]


def spend(clock: LoopClock, hands: Hands, rng: random.Random, part: str, depth: int) -> dict[str, float]:
    """Spend time in a part and in parts within it, and return the time of each."""
    spent = dict.fromkeys(PARTS, 0.0)
    with clock.part(part):
        for _ in range(rng.randrange(4)):
            step = rng.randrange(1, 100) / 64
            hands.now += step
            spent[part] += step
            if depth and rng.random() < 0.5:
                within = spend(clock, hands, rng, rng.choice(PARTS), depth - 1)
                spent = {name: spent[name] + within[name] for name in PARTS}
    return spent


def nested_spending(clock_type: type[LoopClock], hands: Hands, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    clock, rng = clock_type(*PARTS), random.Random(seed)
    spent = [spend(clock, hands, rng, rng.choice(PARTS), 3) for _ in range(20)]
    return clock.seconds(), {name: sum(one[name] for one in spent) for name in PARTS}


@pytest.mark.parametrize("seed", range(5))
def test_every_moment_belongs_to_the_innermost_part(hands: Hands, seed: int) -> None:
    counted, spent = nested_spending(LoopClock, hands, seed)
    assert counted == spent
    counted, spent = nested_spending(Forgetful, hands, seed)
    assert counted != spent


def test_a_part_belongs_to_its_block_even_if_that_fails(hands: Hands) -> None:
    clock = LoopClock(*PARTS)
    with pytest.raises(RuntimeError), clock.part("act"):
        hands.now += 2
        raise RuntimeError
    hands.now += 1
    assert clock.seconds() == {"other": 1, "act": 2, "send": 0, "wait": 0}


def test_shares_are_those_of_the_newest_readings(hands: Hands) -> None:
    clock = LoopClock(*PARTS)
    shares = Shares(clock, readings=2)
    assert shares.read() == dict.fromkeys(PARTS, 0.0)
    with clock.part("act"):
        hands.now += 3
        assert shares.read()["act"] == 1  # the part under way counts
    for _ in range(3):
        hands.now += 1
        newest = shares.read()
    assert newest == {"other": 1, "act": 0, "send": 0, "wait": 0}


class Interrupted(dict[str, float]):
    """A clock's seconds, within whose change and copy something else happens, as another thread may make it happen."""

    changed: Callable[[], object] = staticmethod(lambda: None)
    copied: Callable[[], object] = staticmethod(lambda: None)

    def __setitem__(self, part: str, seconds: float) -> None:
        super().__setitem__(part, seconds)
        self.changed()

    def copy(self) -> dict[str, float]:
        self.copied()
        return dict(self)


def test_a_moment_counts_once_where_another_thread_reads_meanwhile(hands: Hands) -> None:
    # Mutations: add to what `_seconds` holds of the part under way; return the first copy.
    clock = LoopClock(*PARTS)
    seconds = clock._seconds = Interrupted(clock._seconds)
    read: list[float] = []
    seconds.changed = lambda: read.append(sum(clock.seconds().values()))
    hands.now = 3
    clock.enter("act")
    assert read == [3]

    def go_on() -> None:
        seconds.copied = seconds.changed = lambda: None
        clock.enter("send")
        hands.now += 2
        clock.enter("act")

    seconds.changed, seconds.copied = lambda: None, go_on
    assert clock.seconds() == {"other": 3, "act": 0, "send": 2, "wait": 0}


def test_a_clock_costs_microseconds() -> None:
    clock = LoopClock(*PARTS)
    before = time.thread_time()
    for _ in range(10_000):
        with clock.part("act"):
            pass
    assert time.thread_time() - before < 1.0  # 100 µs each; a few in truth


def test_a_rate_is_that_of_the_newest_seconds(hands: Hands) -> None:
    speed = Rate(10, hands)
    assert speed.per_second(5) is None
    hands.now = 2
    assert speed.per_second(9) == 2
    for second in range(3, 20):
        hands.now = second
        newest = speed.per_second(9 + 7 * (second - 2))
    assert newest == 7


def test_a_wait_before_the_first_growth_slows_no_rate(hands: Hands) -> None:
    # Mutation: count from the first reading on.
    speed = Rate(600, hands)
    for second in range(100):
        hands.now = second
        assert speed.per_second(500) is None, "as of a resumed run, whose actors start"
    hands.now = 101
    assert speed.per_second(520) == 10
    hands.now = 109
    assert speed.per_second(520) == 2, "a later wait counts"


def test_a_count_that_falls_begins_anew(hands: Hands) -> None:
    speed = Rate(10, hands)
    speed.per_second(100)
    hands.now = 1
    assert speed.per_second(40) is None
    hands.now = 3
    assert speed.per_second(50) == 5


def test_the_document_lists_them() -> None:
    document = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    assert document.endswith(f"\n{table()}\n"), "write it anew: python -m rainbow_iqn_apex.monitoring.metrics"
