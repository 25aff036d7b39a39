"""Lines of the random agent, the human and the record, where they do not flatten the scores."""

import pytest

from rainbow_iqn_apex.saber.results.atari_scores import read_scores
from rainbow_iqn_apex.saber.results.reference_lines import reference_lines

PONG = read_scores()["pong"]  # random -20.7, human 14.6, record 21


def test_lines_near_the_scores_are_drawn() -> None:
    # Mutations: the margin of below; the name of the random agent at the start.
    lines = reference_lines(PONG, -21, 18)
    assert [shape["label"]["text"] for shape in lines.shapes] == ["random -20.7", "human 14.6", "world record 21.0"]
    assert [shape["label"]["textposition"] for shape in lines.shapes] == ["end", "middle", "start"]
    low, high = lines.y_axis["range"]
    assert lines.beyond == "" and low < -21
    assert 110 * (high - 21) / (high - low) > 12, "pixels above the topmost line of a plot on paper, for 10 of a name"


def test_lines_that_would_flatten_the_scores_are_named() -> None:
    # Mutation: draw all lines.
    lines = reference_lines(PONG, -21, -19)
    assert [shape["name"] for shape in lines.shapes] == ["random"]
    assert lines.beyond == "above: human 14.6, world record 21.0"
    low, high = lines.y_axis["range"]
    assert -22 < low < -21 and -19 < high < -18
    assert reference_lines(PONG, 10_000, 10_001).beyond.startswith("below: random -20.7, human")


@pytest.mark.parametrize("value", [0.0, -20.7, 1e15])
def test_equal_scores_have_an_axis(value: float) -> None:
    lines = reference_lines(PONG, value, value)
    if lines.shapes:
        assert lines.y_axis["range"][0] < value < lines.y_axis["range"][1]


def test_games_without_references_have_none() -> None:
    assert reference_lines(None, 0, 1) == ([], "", {})
    assert "world record" not in [shape["name"] for shape in reference_lines(read_scores()["surround"], -10, 10).shapes]
