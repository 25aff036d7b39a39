"""Texts for sentences."""

import random

import pytest

from rainbow_iqn_apex.common.text import name_error, one_line


def test_a_line_has_what_fits_of_a_long_word() -> None:
    # Mutation: textwrap.shorten, which drops a word that does not fit.
    assert name_error(ValueError("expected:" + "x" * 400)) == "ValueError: expected:" + "x" * 285 + " [...]"
    assert one_line("文" * 100).startswith("\\u6587\\u6587")
    assert one_line("a b   c\n d", 8) == "a b c d" and one_line("a b c dd e", 9) == "a b [...]"
    assert one_line(KeyError()) == "KeyError"


@pytest.mark.parametrize("seed", range(20))
def test_a_line_is_printable_and_short_enough(seed: int) -> None:
    draws = random.Random(seed)
    text = "".join(chr(draws.choice([draws.randrange(128), draws.randrange(0xD800)])) for _ in range(200))
    line = one_line(text, most := draws.randrange(6, 400))
    assert len(line) <= most and line.isprintable() and line.isascii()
