"""Numbers for people: short, also where somebody has written others into Redis than the programs do."""

import pytest

from rainbow_iqn_apex.monitoring import formats

HOSTILE = (0.0, -1.0, 1e-300, 1e300, -1e300, 999.95, 1e12)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (59.7, "1 min"),
        (750, "12 min"),
        (3599, "1 h 00 min"),
        (12000, "3 h 20 min"),
        (2 * 86400 - 1, "2 d 0 h"),
        (2 * 86400 + 3600, "2 d 1 h"),
        (1e9, "over a year"),
    ],
)
def test_a_time_span_has_two_units(seconds: float, text: str) -> None:
    # Mutation: choose the unit before rounding.
    assert formats.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (999.96, "1.0 kB"), (1500, "1.5 kB"), (99_960, "100 kB"), (999_960, "1.0 MB"),
        (123_456_789, "123 MB"), (2.5e9, "2.5 GB"), (1e15, "1,000.0 TB"),
    ],
)  # fmt: skip
def test_a_size_has_a_unit(count: float, text: str) -> None:
    assert formats.size(count) == text


def test_rates_and_shares() -> None:
    assert [formats.rate(value) for value in (0.04, 9.23, 1234.5)] == ["0.0", "9.2", "1,234"]
    assert (formats.share(0.413), formats.share(0.413, 1)) == ("41 %", "41.3 %")


@pytest.mark.parametrize("value", HOSTILE)
def test_every_number_is_short(value: float) -> None:
    written = (formats.number(value, 2), formats.rate(value), formats.share(value), formats.size(value))
    assert max(map(len, [*written, formats.duration(value)])) <= 20
