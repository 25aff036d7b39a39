"""Lines of the random agent, the human and the record, where they do not flatten the scores."""

import pytest

from rainbow_iqn_apex.monitoring.view_model import known_scores
from rainbow_iqn_apex.saber.results.figure import reference_label, reference_lines, references
from rainbow_iqn_apex.saber.results.task import read_scores

PONG = read_scores()["pong"]  # random -20.7, human 14.6, record 21


def test_lines_near_the_scores_are_drawn() -> None:
    # Mutation: a label on the line, which a curve may cross.
    lines = reference_lines(PONG, -21, 18)
    assert [line.label for line in lines.lines] == ["random -20.7", "human 14.6", "world record 21.0"]
    assert lines.limits
    low, high = lines.limits
    assert lines.caption == "dotted: random -20.7; dashed: human 14.6; dash-dotted: world record 21.0"
    assert low < -21 and high > 21


def test_a_reference_is_written_in_one_way_everywhere() -> None:
    # Mutations: round halves to even; write the terminal's scores by another function.
    game = read_scores()["crazy_climber"]
    assert game.random == 10780.5
    (line, *_) = reference_lines(game, 10_000, 20_000).lines
    assert line.label == reference_label("random", game.random) == "random 10,781"
    for name in ("crazy_climber", "pong"):
        found = read_scores()[name]
        expected = [reference_label(kind, value) for kind, value in list(references(found).items())[:2]]
        assert known_scores({"game": name}).split(", human ") == [expected[0], expected[1].removeprefix("human ")]


def test_lines_that_would_flatten_the_scores_are_named() -> None:
    # Mutation: draw all lines.
    lines = reference_lines(PONG, -21, -19)
    assert [line.name for line in lines.lines] == ["random"] and lines.limits
    assert lines.caption == "dotted: random -20.7; above: human 14.6, world record 21.0"
    low, high = lines.limits
    assert -22 < low < -21 and -19 < high < -18
    assert reference_lines(PONG, 10_000, 10_001).caption.startswith("below: random -20.7, human")


@pytest.mark.parametrize("value", [0.0, -20.7, 1e15])
def test_equal_scores_have_an_axis(value: float) -> None:
    lines = reference_lines(PONG, value, value)
    if lines.limits:
        assert lines.limits[0] < value < lines.limits[1]


def test_games_without_references_have_none() -> None:
    assert reference_lines(None, 0, 1) == ([], "", None)
    assert "world record" not in [line.name for line in reference_lines(read_scores()["surround"], -10, 10).lines]
