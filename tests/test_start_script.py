"""start_learning_atari.sh as a person uses it, with stand-ins for the launchers."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import torch

from tests.dashboard import ask, needs_dashboard
from tests.deadline import killed, wait_until
from tests.start_script import REDIS_SERVER, ROOT, STAND_IN, Workplace, copy_project, is_listening, processes_in


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    """The real script, configuration and option parser, between stand-ins for the launchers."""
    folder = tmp_path / "a copy"  # with a space, as people have
    copy_project(folder, STAND_IN)
    (folder / "dashboard.py").write_text("import time\nwhile True:\n    print(flush=True)\n    time.sleep(0.1)\n")
    place = Workplace(folder)
    yield place
    place.close()


@pytest.fixture
def other_redis(workplace: Workplace) -> Iterator[redis.Redis]:
    """A Redis server of somebody else on the workplace's port, with a key in it."""
    command = [REDIS_SERVER, "--port", str(workplace.port), "--bind", "127.0.0.1", "--save", ""]
    with killed(subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL)) as server:
        client = redis.Redis(port=workplace.port)
        wait_until(lambda: is_listening(workplace.port), "the other Redis server")
        client.set("mine", "untouched")
        yield client
        assert server.poll() is None
        assert client.get("mine") == b"untouched"
        client.close()


def test_help_needs_nothing(workplace: Workplace) -> None:
    assert workplace.run("--help") == 0
    assert workplace.output == (ROOT / "programs" / "start" / "help.txt").read_text()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--gpus", "0;1"], "--gpus"),
        (["--windows", "terminal"], "--windows terminal"),
        (["--memory-capacityy", "9"], "--memory-capacity"),
        (["--path-to-results", "args.py"], "--path-to-results: expected a folder to write to, got args.py"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_starts(workplace: Workplace, options: list[str], named: str) -> None:
    assert workplace.run(*options) == 2
    assert named in workplace.output.splitlines()[-1]
    assert "Traceback" not in workplace.output
    assert "Redis: started" not in workplace.output
    workplace.assert_nothing_left()


def test_tensorboard_is_there_as_long_as_the_run(workplace: Workplace) -> None:
    # Mutation: TensorBoard in no session of its own, so that its helper outlives it.
    pytest.importorskip("tensorboard", reason="an extra: pip install -r requirements-extra.txt")
    workplace.start("--tensorboard", "--path-to-results", "results/x y")
    workplace.wait_for_line(r"start_learning_atari: TensorBoard shows this run at http://localhost:\d+/", 60)
    (address,) = re.findall("run at (http.*)", workplace.output)
    with urllib.request.urlopen(f"{address}data/logdir", timeout=30) as answer:
        assert json.load(answer)["logdir"].endswith("results/x y/space_invaders_tensorboard")
    assert "--tensorboard" in workplace.argv("learner")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert "TensorBoard has ended" not in workplace.output
    workplace.assert_nothing_left()


@needs_dashboard
def test_the_dashboard_is_there_as_long_as_the_run(workplace: Workplace) -> None:
    # Mutation: leave out `_end_with_reader` of programs/dashboard/program.py.
    shutil.copy(ROOT / "dashboard.py", workplace.folder)
    for end in (signal.SIGINT, signal.SIGKILL):
        workplace.start("--path-to-results", "results/x y", "--run-name", "mine", "--windows", "none")
        workplace.wait_for_line(r"start_learning_atari: the dashboard shows this run at http://127.0.0.1:\d+/", 60)
        (address,) = re.findall("run at (http.*)", workplace.output)
        wait_until(lambda: "run 'mine'" in ask(address)["problem"], "Redis to answer without a run")  # noqa: B023
        workplace.send(end)
        assert workplace.exit_code() == (0 if end == signal.SIGINT else -end)
        assert "dashboard has ended" not in workplace.output
        wait_until(lambda: not workplace.processes("dashboard.py"), "the end of the dashboard")


@needs_dashboard
def test_a_dashboard_that_is_killed_is_started_again_and_what_it_prints_is_shown(workplace: Workplace) -> None:
    # Mutations: drop the lines without an address; leave a server of pages alone that has ended.
    (workplace.folder / "dashboard.py").write_text(
        "import sys, time\nfrom pathlib import Path\nprint('Traceback: of a thread', file=sys.stderr)\n"
        "print('Dashboard: http://here/', flush=True)\n"
        "while not Path('wrong').exists():\n    print(flush=True)\n    time.sleep(0.1)\nsys.exit(2)\n"
    )
    workplace.start("--windows", "none")
    workplace.wait_for_line(r"\[dashboard\] Traceback: of a thread")
    workplace.wait_for_line(r"start_learning_atari: the dashboard shows this run at http://here/")
    workplace.processes("dashboard.py")[0].kill()
    workplace.wait_for_line(r"start_learning_atari: dashboard has ended with exit code 137 and is started again")
    workplace.wait_for(lambda: workplace.output.count("shows this run at") == 2, "its address again")
    (workplace.folder / "wrong").touch()
    workplace.wait_for_line(r"start_learning_atari: dashboard has ended with exit code 2, and the run goes on")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert not re.search(r"(?m)^\[dashboard\] *$", workplace.output)
    workplace.assert_nothing_left()


def test_a_missing_dashboard_is_named_and_the_run_goes_on(workplace: Workplace) -> None:
    (workplace.folder / "programs" / "dashboard" / "extra.py").write_text("missing = lambda: 'not here'\n")
    workplace.start("--windows", "none")
    workplace.wait_for_line("start_learning_atari: no dashboard: not here")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    workplace.assert_nothing_left()


def test_a_missing_tensorboard_is_named_and_nothing_starts(workplace: Workplace) -> None:
    (workplace.folder / "tensorboard.py").write_text("raise ImportError('not here')")
    assert workplace.run("--tensorboard") == 2
    assert "error: --tensorboard: needs an extra that is missing (not here)" in workplace.output.splitlines()[-1]
    workplace.assert_nothing_left()


def test_a_gpu_that_is_not_there_is_named(workplace: Workplace) -> None:
    workplace.find_gpus(2)
    assert workplace.run("--gpus", "1,2") == 2
    (line,) = [line for line in workplace.output.splitlines() if "error" in line]
    assert line.endswith("--gpus: PyTorch finds no CUDA device 2 here, 2 in all; choose from 0 to 1")
    assert workplace.output.splitlines()[-1] == line
    workplace.assert_nothing_left()


def test_everything_starts_and_ctrl_c_saves_before_redis_stops(workplace: Workplace) -> None:
    workplace.find_gpus(6)
    workplace.start("--game", "pong", "--nb-actor=2", "--gpus", "3,5", "--windows", "none")
    everyone = {
        "learner": ["launch_learner.py"],
        "actor0": ["launch_actor.py", "--id-actor", "0"],
        "actor1": ["launch_actor.py", "--id-actor", "1"],
    }
    for (name, first), gpu in zip(everyone.items(), (3, 5, 3), strict=True):
        passed_on = ["--port-redis", str(workplace.port), *workplace.preset, "--game", "pong", "--nb-actor=2"]
        assert workplace.argv(name) == [*first, *passed_on, f"--gpu-number={gpu}"]
    workplace.wait_for_line(r"\[learner\] learner is here")
    workplace.wait_for_line(r"\[actor 1\] actor1 is here")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert all(workplace.has_saved(name) for name in everyone)
    assert "[actor 1] actor1 has saved" in workplace.output  # the last line is not lost
    assert workplace.has_kept("results")
    workplace.assert_nothing_left()


def test_a_file_of_settings_is_for_all(workplace: Workplace) -> None:
    (workplace.folder / "my.yaml").write_text("game: pong\nnb_actor: 2\npreset: paper\n")
    workplace.preset = []  # the file has it
    workplace.start("--config", "my.yaml", "--windows", "none")
    given = ["--port-redis", str(workplace.port), "--config", "my.yaml"]
    assert workplace.argv("learner") == ["launch_learner.py", *given]
    assert workplace.argv("actor1") == ["launch_actor.py", "--id-actor", "1", *given]
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    (workplace.folder / "my.yaml").write_text("batch_sizes: 7\npreset: paper\n")
    assert workplace.run("--config", "my.yaml") == 2
    assert ".sh: error: my.yaml: batch_sizes: no such option; did you mean " in workplace.output.splitlines()[-1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_small_network_is_taken(workplace: Workplace) -> None:
    workplace.preset = []
    own = ["--hidden-size", "64", "--memory-capacity", "50000", "--T-max", "60000"]  # the last two fit no other preset
    workplace.start(*own)
    given = ["--port-redis", str(workplace.port), *own, "--preset", "cpu"]
    assert workplace.argv("learner") == ["launch_learner.py", *given]
    assert workplace.argv("actor0") == ["launch_actor.py", "--id-actor", "0", *given]
    workplace.wait_for_line("start_learning_atari: no GPU: --preset cpu .* --preset paper .*")


def test_the_same_command_finds_what_redis_held(workplace: Workplace) -> None:
    for start, number in enumerate((signal.SIGTERM, signal.SIGHUP), 1):
        workplace.start("--windows", "none", "--path-to-results", "other results")
        workplace.argv("actor0")
        client = redis.Redis(port=workplace.port)
        assert client.incr("times started") == start
        client.close()
        workplace.send(number)  # as good as Ctrl-C; the latter comes when a terminal is closed
        assert workplace.exit_code() == 0
        for name in ("learner", "actor0"):
            assert workplace.has_saved(name)
            (workplace.folder / f"{name}.saved").unlink()
            (workplace.folder / f"{name}.argv").unlink()
    assert workplace.has_kept("other results")


def test_a_second_ctrl_c_does_not_break_the_saving(workplace: Workplace) -> None:
    workplace.environment["SAVE_SECONDS"] = "1"
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    for _ in range(3):
        time.sleep(0.2)
        workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert workplace.has_saved("learner")
    assert workplace.has_saved("actor0")
    workplace.assert_nothing_left()


def test_ctrl_c_while_redis_starts(workplace: Workplace) -> None:
    workplace.start("--windows", "none")
    wait_until(lambda: is_listening(workplace.port), "Redis")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    workplace.assert_nothing_left()


def test_what_does_not_stop_is_killed(workplace: Workplace) -> None:
    (workplace.folder / "deaf").touch()
    for name in ("launch_learner.py", "launch_actor.py"):
        text = (workplace.folder / name).read_text()
        deaf = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nPath(name + ".argv")'
        (workplace.folder / name).write_text(text.replace('Path(name + ".argv")', deaf))
    workplace.environment["RAINBOW_STOP_SECONDS"] = "1"
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 1
    assert "learner did not stop in 1 s and is killed" in workplace.output
    workplace.assert_nothing_left()


@pytest.mark.parametrize("code", [0, 2, 3])
def test_the_learner_s_exit_code_is_the_script_s(workplace: Workplace, code: int) -> None:
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.tell("learner", code)
    assert workplace.exit_code() == code
    assert f"the learner has ended with exit code {code}" in workplace.output
    assert len(go_on_with(workplace)) == (code == 3), "a finished run and a wrong command do not go on"
    assert workplace.has_saved("actor0")
    workplace.assert_nothing_left()


def test_the_others_go_on_until_the_last_actor_has_died(workplace: Workplace) -> None:
    workplace.start("--windows", "none", "--nb-actor", 2)
    workplace.argv("actor1")
    workplace.tell("actor0", 2)
    workplace.wait_for_line(".*actor 0 has ended with exit code 2; 1 of 2 still run")
    workplace.tell("actor1", 0)
    assert workplace.exit_code() == 2
    assert workplace.has_saved("learner")
    workplace.assert_nothing_left()


def test_evaluation_actors_are_started_and_stopped_with_the_others_and_end_no_run(workplace: Workplace) -> None:
    # Mutations: count them among the actors that a run needs; leave them out of the stop.
    workplace.start("--windows", "none", "--nb-eval-actors", 2)
    program, *options = workplace.argv("evaluator0")
    assert (program, options[:2]) == ("launch_actor.py", ["--id-eval-actor", "0"])
    workplace.argv("evaluator1")
    workplace.argv("actor0")
    workplace.wait_for_line(".*starting the learner and 1 actor.s. and 2 evaluation actor.s.; results go to .*")
    workplace.tell("evaluator0", 2)
    workplace.wait_for_line(".*evaluation actor 0 has ended with exit code 2; 1 of 2 still run")
    workplace.tell("actor0", 0)
    workplace.wait_for_line(".* actor 0 has ended with exit code 0; 0 of 1 still run")
    (workplace.folder / "actor0.exit").unlink()
    workplace.wait_for_line(".* actor 0 has ended with exit code 0 and is started again")
    workplace.wait_for(lambda: workplace.output.count("actor0 is here") == 2, "the actor again")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert [workplace.has_saved(name) for name in ("learner", "actor0", "evaluator0", "evaluator1")] == [
        True, True, False, True,
    ]  # fmt: skip
    workplace.assert_nothing_left()


def go_on_with(workplace: Workplace) -> list[str]:
    """The commands that the script gives for going on."""
    return re.findall("^start_learning_atari: go on from here with: (.*)$", workplace.output, re.MULTILINE)


@pytest.mark.slow
def test_an_actor_that_fails_later_is_started_again(workplace: Workplace) -> None:
    workplace.start("--windows", "none", "--nb-actor", 2)
    workplace.argv("actor1")
    time.sleep(5.5)
    workplace.tell("actor1", 7)
    workplace.wait_for_line(".*actor 1 has ended with exit code 7 and is started again")
    workplace.wait_for_line(".*actor 1 has ended with exit code 7; 1 of 2 still run")  # it failed at once again
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_a_learner_that_fails_later_is_started_again(workplace: Workplace) -> None:
    workplace.start("--windows", "none", "--path-to-results", "my results")
    workplace.argv("actor0")
    time.sleep(5.5)
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
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    time.sleep(5.5)
    if first == "learner":
        workplace.processes("launch_learner.py")[0].kill()
        workplace.wait_for_line(".*learner has ended with exit code 137 and is started again")
    workplace.tell("actor0", 0)
    if first == "actor":
        workplace.wait_for_line(".*actor 0 has ended with exit code 0; 0 of 1 still run")
        (workplace.folder / "actor0.exit").unlink()
        workplace.processes("launch_learner.py")[0].kill()
    workplace.wait_for_line(".*actor 0 has ended with exit code 0 and is started again")
    workplace.wait_for(lambda: workplace.output.count("actor0 is here") == 2, "the actor again")
    (workplace.folder / "actor0.exit").unlink(missing_ok=True)
    workplace.tell("actor0", 0)
    left = "actor 0 has ended with exit code 0; 0 of 1 still run"
    workplace.wait_for(lambda: workplace.output.count(left) == 2, "the end of an actor that this learner has sent home")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    workplace.assert_nothing_left()


def test_an_actor_that_leaves_at_once_while_the_learner_goes_on_comes_back(workplace: Workplace) -> None:
    """It may have met another run of that name, which this learner has replaced (--abandon-other-run)."""
    workplace.start("--windows", "none", "--abandon-other-run")
    workplace.argv("actor0")
    workplace.tell("actor0", 0)
    workplace.wait_for_line(".*actor 0 has ended with exit code 0; 0 of 1 still run")
    (workplace.folder / "actor0.exit").unlink()
    workplace.wait_for_line(".*actor 0 has ended with exit code 0 and is started again")
    workplace.wait_for(lambda: workplace.output.count("actor0 is here") == 2, "the actor again")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert "--abandon-other-run" not in go_on_with(workplace)[0], "that was a permission for once"
    workplace.assert_nothing_left()


def test_a_wrong_time_to_stop_in_is_refused(workplace: Workplace) -> None:
    workplace.environment["RAINBOW_STOP_SECONDS"] = "90s"
    assert workplace.run("--windows", "none") == 2
    environment, line = workplace.output.splitlines()
    assert environment.startswith("make_environment: ")
    assert line == "start_learning_atari.sh: error: RAINBOW_STOP_SECONDS: expected whole seconds, got '90s'"


def test_a_learner_that_is_killed_at_once_is_started_again(workplace: Workplace) -> None:
    workplace.start("--windows", "none")
    workplace.argv("learner")
    (workplace.folder / "learner.argv").unlink()
    workplace.processes("launch_learner.py")[0].kill()
    workplace.wait_for_line(".*learner has ended with exit code 137 and is started again")
    workplace.argv("learner")  # it can hear of a stop
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0


@pytest.mark.parametrize("name", ["learner", "actor"])
def test_a_process_that_is_killed_is_started_again_without_noise(workplace: Workplace, name: str) -> None:
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    time.sleep(5.5)
    (killed,) = workplace.processes(f"launch_{name}.py")
    killed.kill()
    workplace.wait_for_line(f".*{name}( 0)? has ended with exit code 137 and is started again")
    workplace.wait_for(lambda: workplace.processes(f"launch_{name}.py"), "its successor")
    with redis.Redis(port=workplace.port) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    workplace.wait_for(lambda: workplace.output.count("Redis: started") == 2, "Redis again")
    workplace.wait_for(
        lambda: workplace.output.count(f"{name} is here" if name == "learner" else "actor0 is") == 2, "it"
    )
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    lines = workplace.output.splitlines()
    assert [line for line in lines if not re.match(r"start_learning_atari: |make_environment: |\[", line)] == []
    assert len(go_on_with(workplace)) == 1
    workplace.assert_nothing_left()


def test_a_script_that_is_killed_takes_learner_and_actors_with_it_and_leaves_redis(workplace: Workplace) -> None:
    for launcher in ("launch_learner.py", "launch_actor.py"):
        text = (workplace.folder / launcher).read_text()
        (workplace.folder / launcher).write_text(
            text.replace("while not stop:", "while not stop:\n    print(1, flush=True)")
        )
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    workplace.send(signal.SIGKILL)
    assert workplace.exit_code() == -signal.SIGKILL
    wait_until(lambda: not workplace.processes("launch_learner.py") + workplace.processes("launch_actor.py"), "the end")
    for name in ("learner", "actor0"):
        (workplace.folder / f"{name}.argv").unlink()
    assert workplace.run("--windows", "none") == 2
    assert "--use-running-redis uses it" in workplace.output
    workplace.start("--windows", "none", "--use-running-redis")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    with redis.Redis(port=workplace.port) as client:
        client.shutdown()
    workplace.assert_nothing_left()


def test_redis_is_started_again(workplace: Workplace) -> None:
    workplace.start("--windows", "none")
    workplace.argv("actor0")
    with redis.Redis(port=workplace.port) as client:
        client.set("kept", 1)
        os.kill(client.info("server")["process_id"], signal.SIGTERM)
    workplace.wait_for_line(".*the Redis server has died and is started again")
    workplace.wait_for(lambda: workplace.output.count("Redis: started") == 2, "Redis again")
    with redis.Redis(port=workplace.port) as client:
        assert client.get("kept") == b"1"
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert workplace.has_saved("learner")
    workplace.assert_nothing_left()


def test_a_port_that_something_else_has_is_refused(workplace: Workplace) -> None:
    page = "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), None).serve_forever()"
    command = [sys.executable, "-c", page, str(workplace.port)]
    with killed(subprocess.Popen(command, stderr=subprocess.DEVNULL)) as other:
        wait_until(lambda: is_listening(workplace.port), "the other server")
        assert workplace.run("--windows", "none") == 2
        assert f"port {workplace.port} of localhost is taken by something that is not Redis" in workplace.output
        assert other.poll() is None


def test_a_redis_that_is_there_is_left_alone(workplace: Workplace, other_redis: redis.Redis) -> None:
    assert workplace.run("--windows", "none") == 2
    assert "a Redis server is already at" in workplace.output
    assert "--use-running-redis" in workplace.output
    assert other_redis.keys() == [b"mine"]


def test_a_redis_with_a_password_is_left_alone(workplace: Workplace, other_redis: redis.Redis) -> None:
    other_redis.config_set("requirepass", "secret")
    with redis.Redis(port=workplace.port, password="secret") as insider:
        assert workplace.run("--windows", "none", "--use-running-redis") == 2
        insider.config_set("requirepass", "")
    assert "the server does not let us in (Authentication required.); REDIS_USERNAME and" in workplace.output


def test_a_redis_that_is_there_is_used_on_request(workplace: Workplace, other_redis: redis.Redis) -> None:
    workplace.start("--windows", "none", "--use-running-redis")
    workplace.argv("actor0")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert sorted(other_redis.keys()) == [b"mine", b"saved by actor0", b"saved by learner"]
    wait_until(lambda: not processes_in(workplace.folder), "no process left", 5)


@pytest.mark.parametrize("options", [["--use-running-redis"], ["--host-redis", "127.0.0.2"]])
def test_no_redis_where_one_should_be(workplace: Workplace, options: list[str]) -> None:
    assert workplace.run("--windows", "none", *options) == 2
    assert "no Redis server answers" in workplace.output
    workplace.assert_nothing_left()


def test_a_redis_that_cannot_start_says_why(workplace: Workplace) -> None:
    with (workplace.folder / "redis_rainbow_6379.conf").open("a") as conf:
        conf.write("no-such-setting 1\n")
    assert workplace.run("--windows", "none") == 1
    assert "no-such-setting" in workplace.output
    workplace.assert_nothing_left()


def test_a_terminal_for_each_process(workplace: Workplace) -> None:
    # Like the real one it returns at once and gives the window another environment.
    emulator = workplace.folder.parent / "gnome-terminal"
    emulator.write_text('#!/bin/sh\necho "$2" >>"$0.titles"\nshift 3\nenv -i PATH="$PATH" "$@" &\n')
    emulator.chmod(0o755)
    workplace.environment |= {"DISPLAY": ":99", "PATH": f"{emulator.parent}:{workplace.environment['PATH']}"}
    workplace.environment["SAVE_SECONDS"] = "0.5"
    workplace.start()
    workplace.argv("actor0")
    assert (emulator.parent / "gnome-terminal.titles").read_text().splitlines() == ["learner", "actor 0"]
    assert "[learner]" not in workplace.output
    started = time.monotonic()
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert workplace.has_saved("learner")
    assert workplace.has_saved("actor0")
    assert time.monotonic() - started > 0.5  # the process had the script's environment, not the window's
    workplace.assert_nothing_left()


def tmux(workplace: Workplace, *command: str) -> str:
    """Run a command of a tmux server of the test's own."""
    return subprocess.run(
        ["tmux", "-S", workplace.folder.parent / "tmux", "-f", "/dev/null", *command],
        env=workplace.environment,
        check=False,
        capture_output=True,
        text=True,
    ).stdout


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


@needs_tmux
def test_a_window_of_tmux_for_each_process(workplace: Workplace) -> None:
    command = " ".join(f"'{word}'" for word in workplace.command())
    workplace.output_file.touch()
    tmux(workplace, "new-session", "-d", "-x", "200", "-y", "50", f"{command} 2>&1 | tee {workplace.output_file}")
    try:
        workplace.argv("actor0")
        assert tmux(workplace, "list-windows", "-F", "#W").splitlines()[1:] == ["learner", "actor 0"]
        assert "learner is here" in tmux(workplace, "capture-pane", "-p", "-t", ":1")
        workplace.tell("actor0", 5)  # its window stays open, so that the error can be read
        workplace.wait_for_line(".*no actor is left")
        wait_until(lambda: "Press Enter" in tmux(workplace, "capture-pane", "-p", "-t", ":2"), "the question")
        tmux(workplace, "send-keys", "-t", ":2", "Enter")
        wait_until(lambda: tmux(workplace, "list-windows") == "", "all windows to close")
        assert workplace.has_saved("learner")
        workplace.assert_nothing_left()
    finally:
        tmux(workplace, "kill-server")


@needs_tmux
def test_ctrl_c_in_tmux(workplace: Workplace) -> None:
    command = " ".join(f"'{word}'" for word in workplace.command())
    tmux(workplace, "new-session", "-d", "-x", "200", "-y", "50", command)
    try:
        workplace.argv("actor0")
        tmux(workplace, "send-keys", "-t", ":0", "C-c")
        wait_until(lambda: tmux(workplace, "list-windows") == "", "all windows to close")
        assert workplace.has_saved("learner")
        assert workplace.has_saved("actor0")
        workplace.assert_nothing_left()
    finally:
        tmux(workplace, "kill-server")


@needs_tmux
def test_ctrl_c_in_the_window_of_an_actor_stops_that_one(workplace: Workplace) -> None:
    command = " ".join(f"'{word}'" for word in workplace.command("--nb-actor", 2))
    workplace.output_file.touch()
    workplace.environment["SAVE_SECONDS"] = "0.5"
    tmux(workplace, "new-session", "-d", "-x", "200", "-y", "50", f"{command} 2>&1 | tee {workplace.output_file}")
    try:
        workplace.argv("actor0")  # it can hear of a stop
        workplace.argv("actor1")
        tmux(workplace, "send-keys", "-t", ":2", "C-c")
        wait_until(lambda: "1 of 2 still run" in workplace.output, "the end of the actor")
        assert workplace.has_saved("actor0")
        others = ["learner", "actor 1"]
        wait_until(
            lambda: tmux(workplace, "list-windows", "-F", "#W").splitlines()[1:] == others, "the window to close"
        )
        tmux(workplace, "kill-window", "-t", ":0")  # a terminal that is closed
        wait_until(lambda: tmux(workplace, "list-windows") == "", "all windows to close")
        assert workplace.has_saved("learner")
        assert workplace.has_saved("actor1")
        workplace.assert_nothing_left()
    finally:
        tmux(workplace, "kill-server")


@pytest.fixture
def guarded_redis(workplace: Workplace) -> Iterator[str]:
    """A Redis server that asks for a password, on the workplace's port; yields the password."""
    word = "s3cret-of-nobody"
    command = [REDIS_SERVER, "--port", str(workplace.port), "--bind", "127.0.0.1", "--save", "", "--requirepass", word]
    with killed(subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL)):
        wait_until(lambda: is_listening(workplace.port), "the guarded Redis server")
        yield word


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
    assert not any(guarded_redis in line for line in processes_in(workplace.folder))
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert guarded_redis not in workplace.output
    assert list(workplace.temporary.glob("rainbow.*")) == [], "nor does a file with the variables stay"


def test_a_guarded_server_that_refuses_is_told_in_one_line(workplace: Workplace, guarded_redis: str) -> None:
    workplace.address = ["--redis-url", f"redis://localhost:{workplace.port}"]
    for password in ("", f"not-{guarded_redis}"):
        workplace.environment["REDIS_PASSWORD"] = password
        assert workplace.run() == 2
        assert "REDIS_USERNAME and REDIS_PASSWORD" in workplace.output.splitlines()[-1]
        assert "Traceback" not in workplace.output
        assert guarded_redis not in workplace.output
    workplace.address = ["--redis-url", f"redis://:{guarded_redis}@localhost:{workplace.port}"]
    assert workplace.run() == 2
    assert "--redis-url: must not hold a password" in workplace.output.splitlines()[-1]
    assert guarded_redis not in workplace.output
