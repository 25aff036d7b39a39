"""An actor and its inference server on two hosts, whose packets vanish without a reset."""

from contextlib import ExitStack, closing

import pytest

from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.inference_servers import InferenceServers
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference.client import RemotePolicy, ServerFinder
from rainbow_iqn_apex.programs.inference.exchange import ClientId
from tests.deadline import wait_until
from tests.hosts.network import Network, missing
from tests.inference.serving import RUN_ID, VECTOR, Served, Stream, assert_same, make, together, weights_of

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


# A mutation that fails here: `tcp.prepare` without its probes; the server then counts the actor for ever.
def test_an_actor_goes_on_when_packets_vanish_and_the_server_forgets_it(
    redis_port: int, run_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    local = make("impala-lstm")
    local.load(weights_of(local), 1)
    with (
        Network("server", "player") as network,
        Served(
            together("impala-lstm"), redis_port, run_name, 0, host=network["server"].address,
            inside=network["server"].inside,
        ) as far,
        ExitStack() as others,
    ):  # fmt: skip
        client = others.enter_context(closing(connect("127.0.0.1", redis_port)))
        client.ping()  # a connection of its own, as no way leads from inside to the server
        finder = ServerFinder(InferenceServers(client, run_name, RUN_ID, 1), ClientId(0, evaluates=False), lambda: None)
        with network["player"].inside():
            policy = RemotePolicy(finder, 0, VECTOR.action)
        stream, state, expected = Stream(1), Arrays(), Arrays()
        for step in range(12):
            if step == 4:
                network["player"].blackhole()
                others.enter_context(Served(together("impala-lstm"), redis_port, run_name, 1))
            rows = stream.rows()
            output, state = policy.act(rows, state, None)
            wanted, expected = local.act(rows, expected, None)
            assert_same((output, state), (wanted, expected), 1e-5)
        out = capsys.readouterr().out
        assert "Inference server 0 is lost (it has not answered for 5 s)" in out
        assert "Inference server 1 is asked now" in out
        wait_until(lambda: far.server.clients == 0, "the server to forget the actor", 60)
        network["player"].end_blackhole()
        policy._connection.close()
