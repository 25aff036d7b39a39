"""What somebody else may have written instead of an address."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from tests.inference.serving import EACH, KEY, RUN_ID, Served, Stream, client_of, together

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]
GOOD = Address(3, "here", 4000, "localhost", 5000, KEY, 2)
BAD: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"\xff\xfe",
    "deep": b"[" * 1000,
    "another number": asdict(GOOD) | {"number": 4},
    "number beyond all": asdict(GOOD) | {"number": MAX_ACTORS},
    "port beyond all": asdict(GOOD) | {"port": 1 << 16},
    "port of a text": asdict(GOOD) | {"port": "80"},
    "no port of its machine": asdict(GOOD) | {"local_port": 0},
    "a key that is none": asdict(GOOD) | {"key": "x" * 64},
    "a key too short": asdict(GOOD) | {"key": "0" * 63},
    "host beyond all": asdict(GOOD) | {"host": "x" * 256},
    "clients below all": asdict(GOOD) | {"clients": -1},
    "clients that are NaN": json.dumps(asdict(GOOD)).replace("2}", "NaN}").encode(),
    "another field": asdict(GOOD) | {"more": 1},
    "no host": {name: value for name, value in asdict(GOOD).items() if name != "host"},
    "too large": json.dumps(asdict(GOOD)).encode() + b" " * 1024,
    "far too large": json.dumps(asdict(GOOD)).encode() + b" " * (1 << 22),
}


@pytest.fixture
def servers(client: Client, run_name: str) -> InferenceServers:
    return InferenceServers(client, run_name, RUN_ID, 1)


def key(run_name: str, number: int) -> str:
    return f"riqx:{{{run_name}}}:{RUN_ID}:inference:actor:{number}:address"


# Mutations that fail here: an address whose number is not compared; `get` in the place of `getrange`.
@pytest.mark.parametrize("name", BAD)
def test_a_damaged_address_counts_as_none(servers: InferenceServers, client: Client, run_name: str, name: str) -> None:
    for number in (3, 5):
        servers.enlist(number)
    servers.announce(other := Address(5, "there", 1, "localhost", 1, KEY, 0))
    servers.announce(GOOD)
    assert servers.found() == [GOOD, other]
    client.set(key(run_name, 3), BAD[name] if isinstance(BAD[name], bytes) else json.dumps(BAD[name]))
    assert servers.found() == [other]
    servers.withdraw(5)
    assert servers.found() == []


PLACES: dict[str, dict[str, Any]] = {
    "a port of this machine where nobody is": {"machine": this_host()},
    "a host that is none": {"host": "nowhere.invalid", "port": 9},
    "a host with a part that is empty": {"host": "a..b", "port": 9},
    "a host with a part beyond all": {"host": "x" * 255, "port": 9},
    "a host of letters that are no text": {"host": "\ud800", "port": 9},
    "a host with a zero": {"host": "a\0b", "port": 9},
    "a port where nobody is": {"host": "localhost", "port": 1},
    "nowhere at all": {},
}


# A mutation that fails here: `find` that passes ValueError on.
@pytest.mark.parametrize("name", PLACES)
def test_an_address_that_leads_nowhere_is_passed_over(redis_port: int, run_name: str, name: str) -> None:
    with Served(together("ppo"), redis_port, run_name, clients=5) as served:
        served.servers.enlist(1)
        good: dict[str, Any] = asdict(GOOD) | {"number": 1, "local_port": 1, "host": "", "port": 0, "clients": 0}
        served.servers.announce(Address(**(good | PLACES[name])))
        assert len(served.servers.found()) == 2, "it is well-formed"
        with client_of(served) as policy:
            assert policy.act(Stream(1).rows(), {}, 5)[0].actions.shape == (EACH,)


def test_a_server_that_redis_has_forgotten_is_found_again(own_client: Client) -> None:
    # Mutation: announce the address alone.
    (mine, of_actors) = (InferenceServers(own_client, "run", RUN_ID, 1) for _ in range(2))
    mine.announce(GOOD)
    assert of_actors.found() == [GOOD]
    own_client.flushall()
    mine.announce(GOOD)
    assert of_actors.found() == [GOOD]


def test_keys_of_another_type_are_one_line(servers: InferenceServers, client: Client, run_name: str) -> None:
    servers.enlist(3)
    client.rpush(key(run_name, 3), "x")
    with pytest.raises(RunError, match="holds another type of value") as error:
        servers.found()
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
