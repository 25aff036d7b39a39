"""What an inference server does when the run changes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import InferenceServers
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs.agent import make_agent, select_device
from rainbow_iqn_apex.programs.common import open_environment
from rainbow_iqn_apex.programs.inference.program import run_inference
from tests.deadline import wait_until
from tests.small import CARTPOLE, FREE, TINY

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]


# A mutation that fails here: no `run.crews` for the server's client.
def test_a_server_ends_when_the_learner_goes_on_with_other_actors(
    client: Client, redis_port: int, run_name: str
) -> None:
    words = [*CARTPOLE, *TINY, *FREE, "--inference", "server", "--port-redis", str(redis_port), "--run-name", run_name]
    words += ["--nb-actor", "2"]
    args = options.parse(words, "test", "")
    environment = open_environment(args, 1)
    agent = make_agent(args, environment.spec, select_device(args), learns=False, seed=1)
    environment.close()
    crews, stop = (Crew(0, 0, 2, 5),), threading.Event()
    with LearnerClient(client, run_name, args.shared, 2) as learner, ThreadPoolExecutor(1) as thread:
        learner.lead("id", crews)
        learner.write_progress("running", 0, 0, {})
        learner.publish_alone(
            {0: weights_packet.pack({name: each.detach() for name, each in agent.loaded().items()}, 0)}
        )
        serving = thread.submit(run_inference, args, stop)
        try:
            there = InferenceServers(client, run_name, "id", 1)
            wait_until(lambda: serving.done() or bool(there.found()), "the server's address")
            assert not serving.done(), serving.result()
            learner.lead("id", (*crews, Crew(3, 30, 3, 5)))
            with pytest.raises(UserError, match=r"--nb-actor.*start this one again with the same") as error:
                serving.result(60)
            assert "\n" not in str(error.value)
        finally:
            stop.set()
