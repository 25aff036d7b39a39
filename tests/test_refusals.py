"""What comes from outside and is no value of ours is refused, in one line that says why: the table of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.refusals.addresses import ADDRESSES
from tests.refusals.chunks import CHUNK_READERS
from tests.refusals.files import FILES
from tests.refusals.packets import PACKETS
from tests.refusals.reader import Place, Reader
from tests.refusals.records import RECORDS

TABLE = [*ADDRESSES, *PACKETS, *CHUNK_READERS, *RECORDS, *FILES]
ROWS = [
    pytest.param(reader, value, says, id=f"{reader.name}-{says}-{number}")
    for reader in TABLE
    for says, values in reader.refused.items()
    for number, value in enumerate(values)
]


@pytest.fixture
def place(tmp_path: Path, run_name: str, request: pytest.FixtureRequest) -> Place:
    return Place(tmp_path, run_name, request)


@pytest.mark.redis
@pytest.mark.parametrize(("reader", "value", "says"), ROWS)
def test_a_value_that_is_none_of_ours_is_refused(place: Place, reader: Reader, value: Any, says: str) -> None:
    with pytest.raises(reader.error) as caught:
        reader.read(value, place)
    told = str(caught.value)
    assert re.search(says, told), told
    assert len(told.splitlines()) == 1 and len(told) < 1000


@pytest.mark.redis
@pytest.mark.parametrize("reader", TABLE, ids=lambda reader: reader.name)
def test_a_good_value_is_read(place: Place, reader: Reader) -> None:
    """Or the refusals above show nothing."""
    reader.read(reader.good, place)
