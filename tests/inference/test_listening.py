"""The socket on which an inference server listens."""

import resource
import socket
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs.inference.server import listening
from tests.inference.serving import EACH, Served, Stream, client_of, together


def test_a_host_that_cannot_be_listened_on_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        places: dict[str, tuple[str, int]] = {
            rf"^--inference-port: cannot listen on 127.0.0.1:{port} \(Address already in use\)$": ("127.0.0.1", port),
            r"^--inference-host: 'nowhere.invalid' cannot be found \(.*\)$": ("nowhere.invalid", 0),
            r"^--inference-host: 'a\.\.b' cannot be found \(.*\)$": ("a..b", 0),
        }
        for error, place in places.items():
            with pytest.raises(UserError, match=error), listening(*place):
                pass


def test_an_address_of_another_network_means_all_of_this_machine() -> None:
    with listening("192.0.2.1", 0) as place, socket.create_connection(("127.0.0.1", place.port), 10):
        assert place.port != place.local_port


# A mutation that fails here: a Unix socket, for which ZeroMQ ends the process.
@pytest.mark.redis
@pytest.mark.usefixtures("one_thread")
def test_a_server_that_may_open_no_more_files_serves_its_clients(redis_port: int, run_name: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Served(together("ppo"), redis_port, run_name) as served, client_of(served) as policy, ExitStack() as stack:
        stream, state, links = Stream(1), policy.act(Stream(1).rows(), {}, 5)[1], list[Any]()
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        with closing(socket.socket()) as last:
            resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 8, limits[1]))
        with suppress(OSError):
            while True:
                links.append(stack.enter_context(closing(socket.socket())))
        for _ in range(3):
            stack.enter_context(links.pop())
        for link in links[-2:]:
            link.setblocking(False)
            with suppress(BlockingIOError):
                link.connect(("127.0.0.1", served.address.local_port))
        for _ in range(20):
            output, state = policy.act(stream.rows(), state, 5)
            assert output.actions.shape == (EACH,)
