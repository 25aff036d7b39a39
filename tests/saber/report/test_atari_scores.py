"""The table of published scores, and what is said of its columns."""

import pytest

from rainbow_iqn_apex.saber.results.task import (
    BASELINES,
    COLUMNS,
    NO_OP,
    PATH,
    REFERENCES,
    STICKY,
    UNSTATED,
    format_frames,
    read_scores,
)


def test_the_table_is_read_cell_by_cell() -> None:
    # Mutation: `float(row[name] or 0)`.
    table = read_scores()
    assert len(table) == 62 and sum(game.in_atari57 for game in table.values()) == 57
    alien = table["alien"]
    assert (alien.random, alien.human, alien.world_record) == (227.8, 7127.7, 251916.0)
    assert alien.published["rainbow_noop_200m"] == 9491.7 and alien.published["agent57_100b"] == 297638.17
    cells = [line.split(",") for line in PATH.read_text().splitlines()]
    assert len(cells[0]) == 2 + len(BASELINES) + len(COLUMNS)
    for name, _, random, human, record, *published in cells[1:]:
        row = table[name]
        assert [row.random, row.human, row.world_record] == [float(c) if c else None for c in (random, human, record)]
        assert [row.published.get(column) for column in COLUMNS] == [float(c) if c else None for c in published]


def test_the_references_normalise_to_0_and_1() -> None:
    assert BASELINES.keys() == {"random", *REFERENCES} and set(REFERENCES) == {"human", "world_record"}
    for game in read_scores().values():
        for reference, best in (("human", game.human), ("world_record", game.world_record)):
            if best is None:
                assert game.normalised(5.0, reference) is None
            else:
                assert game.normalised(game.random, reference) == 0
                assert game.normalised(best, reference) == pytest.approx(1)
    below = read_scores()["skiing"].normalised(-30_000.0, "human")
    assert below is not None and below < 0


def test_a_column_is_never_named_without_its_protocol() -> None:
    protocols = {"noop": NO_OP, "sticky": STICKY}
    for name, column in COLUMNS.items():
        stated = next((protocol for word, protocol in protocols.items() if f"_{word}_" in name), UNSTATED)
        assert column.protocol == stated and stated in column.label and column.source
        unit = format_frames(column.frames).replace(" ", "").lower()
        assert unit in name or f"{column.frames // 10**6}m" in name
