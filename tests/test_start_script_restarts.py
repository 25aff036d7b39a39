"""start_learning_atari.sh when a process fails or is killed: who is started again, and who is not."""

import os
import re
import shlex
import signal

import pytest
import redis

from tests.deadline import wait_until
from tests.small import FREE
from tests.start_script import Workplace, go_on_with


@pytest.mark.slow
def test_the_others_go_on_until_the_last_actor_has_died(workplace: Workplace) -> None:
    workplace.begin("--nb-actor", 2, *FREE, who="actor1")
    workplace.tell("actor0", 2)
    workplace.wait_for_line(".*actor 0 has ended with exit code 2; 1 of 2 still run")
    workplace.tell("actor1", 0)
    assert workplace.exit_code() == 2
    line = "start_learning_atari: the run cannot go on without actor 0; its last words: actor0 is here\n"
    assert line in workplace.output
    assert workplace.has_saved("learner")
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_in_lockstep_an_actor_that_fails_for_good_ends_the_run(workplace: Workplace) -> None:
    # Mutations: wait for the others to fail, too; take an actor that was sent home for one that has failed.
    workplace.begin("--nb-actor", 3, who="actor2")
    workplace.argv("actor0")  # it can hear of a stop
    workplace.tell("actor1", 0)
    workplace.wait_for_line(".*actor 1 has ended with exit code 0; 2 of 3 still run")
    workplace.tell("actor2", 7)
    assert workplace.exit_code() == 7
    line = "start_learning_atari: the run cannot go on without actor 2; its last words: actor2 is here\n"
    assert line in workplace.output
    assert workplace.has_saved("learner") and workplace.has_saved("actor0")
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_an_actor_that_lost_its_inference_server_is_started_again_at_once(workplace: Workplace) -> None:
    # Mutation: take it for one that failed at once, and would only fail again.
    workplace.begin()
    workplace.tell("actor0", 3)
    workplace.wait_for_line(".*actor 0 has ended with exit code 3 and is started again")
    again = "actor 0 has ended with exit code 3 and is started again"
    workplace.wait_for(lambda: workplace.output.count(again) > 6, "more than the five times that others are")
    (workplace.folder / "actor0.exit").unlink()
    workplace.stop()


@pytest.mark.slow
def test_evaluation_actors_are_started_and_stopped_with_the_others_and_end_no_run(workplace: Workplace) -> None:
    # Mutations: count them among the actors that a run needs; leave them out of the stop; an actor that ends in good
    # order has no more to do.
    workplace.stop_the_clock()
    program, *options = workplace.begin("--nb-eval-actors", 2, who="evaluator0")
    assert (program, options[:2]) == ("launch_actor.py", ["--id-eval-actor", "0"])
    workplace.argv("evaluator1")
    workplace.argv("actor0")
    workplace.wait_for_line(".*starting the learner and 1 actor.s. and 2 evaluation actor.s.; results go to .*")
    workplace.tell("evaluator0", 2)
    workplace.wait_for_line(".*evaluation actor 0 has ended with exit code 2; 1 of 2 still run")
    workplace.pass_time(1000)
    workplace.tell("actor0", 0)
    workplace.wait_for_line(".* actor 0 has ended with exit code 0; 0 of 1 still run")
    (workplace.folder / "actor0.exit").unlink()
    workplace.pass_time(30)
    workplace.wait_for_line(".* actor 0 has ended with exit code 0 and is started again")
    workplace.wait_for(lambda: workplace.output.count("actor0 is here") == 2, "the actor again")
    workplace.stop()
    assert [workplace.has_saved(name) for name in ("learner", "actor0", "evaluator0", "evaluator1")] == [
        True, True, False, True,
    ]  # fmt: skip


@pytest.mark.slow
def test_an_inference_server_is_started_again_and_stopped_with_the_others(workplace: Workplace) -> None:
    # Mutations: leave alone a server that has ended; leave it out of the stop.
    workplace.stop_the_clock()
    program, *options = workplace.begin("--inference", "server", who="server0")
    assert (program, options[:2]) == ("launch_inference.py", ["--id-inference", "0"])
    workplace.argv("actor0")
    workplace.wait_for_line(".*starting the learner, an inference server and 1 actor.s.; results go to .*")
    (killed,) = workplace.processes("launch_inference.py")
    killed.kill()
    workplace.wait_for_line(".*inference server 0 was killed by SIGKILL and is started again")
    workplace.wait_for(lambda: workplace.output.count("server0 is here") == 2, "the server again")
    workplace.stop()
    assert all(workplace.has_saved(name) for name in ("learner", "actor0", "server0"))


@pytest.mark.slow
def test_no_run_goes_on_without_an_inference_server_that_fails_for_good(workplace: Workplace) -> None:
    # Mutation: go on, and the actors would look for a server until Ctrl-C.
    workplace.begin("--inference", "server", who="server0")
    workplace.tell("server0", 2)
    assert workplace.exit_code() == 2
    assert "the run cannot go on without inference server 0; its last words: server0 is here" in workplace.output
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_a_learner_that_fails_later_is_started_again(workplace: Workplace) -> None:
    workplace.stop_the_clock()
    workplace.begin("--path-to-results", "my results")
    workplace.pass_time(5.5)
    workplace.tell("learner", 7)
    workplace.wait_for_line(".*learner has ended with exit code 7 and is started again")
    assert workplace.exit_code() == 7, "it failed at once again"
    assert "the learner has ended with exit code 7" in workplace.output
    assert workplace.has_saved("actor0")
    assert [shlex.split(command) for command in go_on_with(workplace)] == [
        workplace.command("--windows", "none", "--path-to-results", "my results")
    ]
    workplace.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["actor", "learner"])
def test_actors_that_a_learner_sent_home_before_it_failed_come_back_with_it(workplace: Workplace, first: str) -> None:
    # Mutation: Supervisor without _was_sent_home, and the learner would wait for ever.
    workplace.stop_the_clock()
    workplace.begin()
    workplace.pass_time(5.5)
    if first == "learner":
        workplace.processes("launch_learner.py")[0].kill()
        workplace.wait_for_line(".*learner was killed by SIGKILL and is started again")
    workplace.tell("actor0", 0)
    workplace.wait_for_line(".*actor 0 has ended with exit code 0; 0 of 1 still run")
    if first == "actor":
        (workplace.folder / "actor0.exit").unlink()
        workplace.processes("launch_learner.py")[0].kill()
        workplace.wait_for_line(".*learner was killed by SIGKILL and is started again")
    workplace.pass_time(5)
    workplace.wait_for_line(".*actor 0 has ended with exit code 0 and is started again")
    workplace.wait_for(lambda: workplace.output.count("actor0 is here") == 2, "the actor again")
    (workplace.folder / "actor0.exit").unlink(missing_ok=True)
    workplace.tell("actor0", 0)
    left = "actor 0 has ended with exit code 0; 0 of 1 still run"
    workplace.wait_for(lambda: workplace.output.count(left) == 2, "the end of an actor that this learner has sent home")
    workplace.stop()


def test_what_is_killed_is_started_again_without_noise(workplace: Workplace) -> None:
    # Mutation: keep what was meant for the first start, and later delete a successor's run.
    workplace.stop_the_clock()
    assert "--abandon-other-run" in workplace.begin("--abandon-other-run")
    workplace.pass_time(61)
    for name in ("learner", "actor"):
        (killed,) = workplace.processes(f"launch_{name}.py")
        killed.kill()
        workplace.wait_for_line(f".*{name}( 0)? was killed by SIGKILL and is started again")
    with redis.Redis(port=workplace.port) as client:
        client.set("kept", 1)
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    workplace.wait_for_line(".*the Redis server has died and is started again")
    workplace.wait_for(lambda: workplace.output.count("Redis: started") == 2, "Redis again")
    with redis.Redis(port=workplace.port) as client:
        assert client.get("kept") == b"1"
    again = ("learner is here", "actor0 is here")
    workplace.wait_for(lambda: all(workplace.output.count(line) == 2 for line in again), "both again")
    assert "--abandon-other-run" not in workplace.argv("actor0")
    workplace.stop()
    lines = workplace.output.splitlines()
    assert [line for line in lines if not re.match(r"start_learning_atari: |make_environment: |\[", line)] == []
    assert len(go_on_with(workplace)) == 1


@pytest.mark.slow
def test_a_killed_script_takes_learner_and_actors_with_it_and_the_next_takes_redis_back(workplace: Workplace) -> None:
    for launcher in ("launch_learner.py", "launch_actor.py"):
        text = (workplace.folder / launcher).read_text()
        (workplace.folder / launcher).write_text(
            text.replace("while not stop:", "while not stop:\n    print(1, flush=True)")
        )
    workplace.begin()
    workplace.send(signal.SIGKILL)
    assert workplace.exit_code() == -signal.SIGKILL
    wait_until(lambda: not workplace.processes("launch_learner.py") + workplace.processes("launch_actor.py"), "the end")
    for name in ("learner", "actor0"):
        (workplace.folder / f"{name}.argv").unlink()
    with redis.Redis(port=workplace.port) as client:
        client.set("kept", 1)
    workplace.begin()
    assert "taking back the server that a killed start script has left at localhost" in workplace.output
    with redis.Redis(port=workplace.port) as client:
        assert client.get("kept") == b"1"
    workplace.stop()
