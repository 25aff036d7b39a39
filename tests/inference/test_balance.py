"""Clients go to a server that has less to do, but not all of them at once."""

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.programs.inference import client as remote
from rainbow_iqn_apex.programs.inference.client import ServerFinder
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from tests.inference.serving import KEY, RUN_ID

pytestmark = pytest.mark.redis
FINDERS = 200


def going(client: Client, run_name: str, *clients: int) -> list[int]:
    """Count, for each of servers that so many clients ask, how many of FINDERS clients would leave it."""
    servers = InferenceServers(client, run_name, RUN_ID, 1)
    addresses = [Address(number, "", 1, "localhost", 1, KEY, count) for number, count in enumerate(clients)]
    for address in addresses:
        servers.enlist(address.number)
        servers.announce(address)
    finders = [ServerFinder(servers, ClientId(0, evaluates=False), lambda: None) for _ in range(FINDERS)]
    return [sum(finder.knows_better(address) for finder in finders) for address in addresses]


def test_half_of_the_difference_goes(client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: all clients of a full server go; none does.
    monkeypatch.setattr(remote, "_BALANCE_S", 0.0)
    full, empty = going(client, run_name, 20, 0)
    assert empty == 0
    assert 60 < full < 140, "half of them, of which five standard deviations are 35"


def test_nobody_goes_for_the_sake_of_one_client(client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: go for any difference.
    monkeypatch.setattr(remote, "_BALANCE_S", 0.0)
    assert going(client, run_name, 11, 10) == [0, 0]


def test_nobody_looks_all_the_time(client: Client, run_name: str) -> None:
    assert going(client, run_name, 20, 0) == [0, 0]
