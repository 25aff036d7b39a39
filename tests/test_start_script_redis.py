"""start_learning_atari.sh and the Redis server: its own, another's, and one that asks for a password."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.deadline import wait_until
from tests.processes import Processes
from tests.servers import BUNDLED
from tests.start_script import Workplace, is_listening, processes_in


@pytest.fixture
def other_redis(workplace: Workplace, processes: Processes) -> Iterator[redis.Redis]:
    """A Redis server of somebody else on the workplace's port, with a key in it."""
    words = ["--port", workplace.port, "--bind", "127.0.0.1", "--save", ""]
    server = processes.start(*words, program=BUNDLED, cwd=Path("/"))
    server.wait_until(lambda: is_listening(workplace.port), "the other Redis server")
    with redis.Redis(port=workplace.port) as client:
        client.set("mine", "untouched")
        yield client
        assert server.exit_code is None
        assert client.get("mine") == b"untouched"


def test_a_redis_that_is_there_is_left_alone(workplace: Workplace, other_redis: redis.Redis) -> None:
    assert workplace.run("--windows", "none") == 2
    assert "a Redis server is already at" in workplace.output
    assert "--use-running-redis" in workplace.output
    assert other_redis.keys() == [b"mine"]


def test_a_redis_that_is_there_is_used_on_request(workplace: Workplace, other_redis: redis.Redis) -> None:
    workplace.begin("--use-running-redis")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert sorted(other_redis.keys()) == [b"mine", b"saved by actor0", b"saved by learner"]
    wait_until(lambda: not processes_in(workplace.folder), "no process left", 5)


def test_no_redis_where_one_should_be(workplace: Workplace) -> None:
    assert workplace.run("--windows", "none", "--use-running-redis") == 2
    assert "no Redis server answers" in workplace.output
    advice = f"start one with `redis-server redis_rainbow_6379.conf --port {workplace.port} --appendfilename redis_"
    assert advice in workplace.output
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_a_redis_that_cannot_start_says_why(workplace: Workplace) -> None:
    # Mutation: the script does not print why.
    with (workplace.folder / "redis_rainbow_6379.conf").open("a") as conf:
        conf.write("no-such-setting 1\n")
    assert workplace.run("--windows", "none") == 1
    assert "no-such-setting" in workplace.output and "Traceback" not in workplace.output
    workplace.assert_nothing_left()


@pytest.fixture
def guarded_redis(workplace: Workplace, processes: Processes) -> str:
    """A Redis server that asks for a password, on the workplace's port; returns the password."""
    word = "s3cret-of-nobody"
    words = ["--port", workplace.port, "--bind", "127.0.0.1", "--save", "", "--requirepass", word]
    server = processes.start(*words, program=BUNDLED, cwd=Path("/"))
    server.wait_until(lambda: is_listening(workplace.port), "the guarded Redis server")
    return word


@pytest.mark.slow
@pytest.mark.parametrize("by", ["REDIS_PASSWORD", "REDIS_URL"])
def test_a_guarded_server_is_used(workplace: Workplace, guarded_redis: str, by: str) -> None:
    url = f"redis://:{guarded_redis}@localhost:{workplace.port}/2"
    workplace.environment[by] = guarded_redis if by == "REDIS_PASSWORD" else url
    workplace.address = ["--port-redis", str(workplace.port)] if by == "REDIS_PASSWORD" else []
    workplace.start("--game", "pong", "--windows", "none")
    for name, first in {"learner": ["launch_learner.py"], "actor0": ["launch_actor.py", "--id-actor", "0"]}.items():
        assert workplace.argv(name) == [*first, *workplace.address, *workplace.preset, "--game", "pong"]
        assert guarded_redis in (workplace.folder / f"{name}.env").read_text(), "the variables reach the programs"
    assert f"Redis: using the server that runs at localhost:{workplace.port}" in workplace.output
    assert not any(guarded_redis in line for line in processes_in(workplace.folder).values())
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert guarded_redis not in workplace.output
    assert list(workplace.temporary.glob("rainbow.*")) == [], "nor does a file with the variables stay"


@pytest.mark.slow
def test_a_guarded_server_that_refuses_is_told_in_one_line(workplace: Workplace, guarded_redis: str) -> None:
    workplace.address = ["--redis-url", f"redis://localhost:{workplace.port}"]
    for password in ("", f"not-{guarded_redis}"):
        workplace.environment["REDIS_PASSWORD"] = password
        assert workplace.run() == 2
        assert "REDIS_USERNAME and REDIS_PASSWORD" in workplace.output.splitlines()[-1]
        assert "Traceback" not in workplace.output
        assert guarded_redis not in workplace.output
