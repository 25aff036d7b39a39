"""What the tests of the broker share."""

import pytest

from rainbow_iqn_apex.memory.broker.keys import Keys


@pytest.fixture
def keys(run_name: str) -> Keys:
    return Keys(run_name, "id")
