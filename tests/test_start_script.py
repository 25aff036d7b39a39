"""start_learning_atari.sh as a person uses it, with stand-ins for the launchers."""

import json
import re
import shutil
import signal
import time
import urllib.request

import psutil
import pytest
import redis

from tests.dashboard import ask
from tests.deadline import wait_until
from tests.start_script import ROOT, Workplace, go_on_with, is_listening


def test_help_needs_nothing(workplace: Workplace) -> None:
    assert workplace.run("--help") == 0
    assert workplace.output == (ROOT / "programs" / "start" / "help.txt").read_text()


@pytest.mark.slow
def test_modules_of_the_folder_in_which_the_command_is_given_are_found(workplace: Workplace) -> None:
    # Mutation: look in the script's own folder alone.
    (workplace.folder.parent / "mine.py").write_text(
        "from rainbow_iqn_apex.agents.reinforce.agent import Reinforce\n"
        "from rainbow_iqn_apex.agents.reinforce.options import ReinforceOptions\n"
        "class Mine(Reinforce):\n    options_type = ReinforceOptions\n"
    )
    assert workplace.run("--agent", "yours:Mine") == 2
    folders = f"{workplace.folder} or {workplace.folder.parent}"
    assert f"(module 'yours' is neither installed nor in {folders})" in workplace.output.splitlines()[-1]
    workplace.start("--agent", "mine:Mine", "--env", "gymnasium:CartPole-v1")
    assert "mine:Mine" in workplace.argv("learner")
    workplace.stop()


@pytest.mark.slow
def test_tensorboard_is_there_as_long_as_the_run(workplace: Workplace) -> None:
    # Mutation: TensorBoard in no session of its own, so that its helper outlives it.
    pytest.importorskip("tensorboard", reason="an extra: pip install -r requirements-extra.txt")
    workplace.start("--tensorboard", "--path-to-results", "results/x y")
    workplace.wait_for_line(r"start_learning_atari: TensorBoard shows this run at http://localhost:\d+/", 60)
    (address,) = re.findall("run at (http.*)", workplace.output)
    with urllib.request.urlopen(f"{address}data/logdir", timeout=30) as answer:
        assert json.load(answer)["logdir"].endswith("results/x y/space_invaders_tensorboard")
    assert "--tensorboard" in workplace.argv("learner")
    workplace.stop()
    assert "TensorBoard has ended" not in workplace.output


@pytest.mark.slow
def test_the_dashboard_is_there_as_long_as_the_run(workplace: Workplace) -> None:
    # Mutation: leave out `_end_with_reader` of programs/dashboard/program.py.
    shutil.copy(ROOT / "dashboard.py", workplace.folder)
    for end in (signal.SIGINT, signal.SIGKILL):
        workplace.start("--path-to-results", "results/x y", "--run-name", "mine", "--windows", "none")
        workplace.wait_for_line(r"start_learning_atari: the dashboard shows this run at http://127.0.0.1:\d+/", 60)
        (told,) = re.findall(r"start_learning_atari: (the dashboard .*:)\d+/", workplace.output)
        assert f'"{told}8050/"' in (ROOT / "docs" / "dashboard.md").read_text()
        (address,) = re.findall("run at (http.*)", workplace.output)
        wait_until(lambda: "run 'mine'" in ask(address)["problem"], "Redis to answer without a run")  # noqa: B023
        workplace.send(end)
        assert workplace.exit_code() == (0 if end == signal.SIGINT else -end)
        assert "dashboard has ended" not in workplace.output
        wait_until(lambda: not workplace.processes("dashboard.py"), "the end of the dashboard")


@pytest.mark.slow
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
    workplace.wait_for_line(r"start_learning_atari: dashboard was killed by SIGKILL and is started again")
    workplace.wait_for(lambda: workplace.output.count("shows this run at") == 2, "its address again")
    (workplace.folder / "wrong").touch()
    workplace.wait_for_line(r"start_learning_atari: dashboard has ended with exit code 2, and the run goes on")
    workplace.argv("actor0")
    workplace.stop()
    assert not re.search(r"(?m)^\[dashboard\] *$", workplace.output)


def test_without_gpu_the_small_network_is_taken_and_the_run_goes_on(workplace: Workplace) -> None:
    workplace.find_gpus(0)
    workplace.preset = []
    own = ["--hidden-size", "64", "--memory-capacity", "50000", "--T-max", "60000"]  # the last two fit no other preset
    passed_on = ["--port-redis", str(workplace.port), *own, "--preset", "cpu"]
    assert workplace.begin(*own) == ["launch_actor.py", "--id-actor", "0", *passed_on]
    assert workplace.argv("learner") == ["launch_learner.py", *passed_on]
    workplace.wait_for_line("start_learning_atari: no GPU: --preset cpu .* --preset paper .*")
    workplace.stop()


def test_an_extra_that_is_missing_is_named_and_nothing_starts(workplace: Workplace) -> None:
    (workplace.folder / "tensorboard.py").write_text("raise ImportError('not here')")
    assert workplace.run("--tensorboard") == 2
    told = "error: --tensorboard: needs an extra that is missing (not here)"
    assert told in workplace.output.splitlines()[-1]
    assert "Traceback" not in workplace.output and "Redis: started" not in workplace.output
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
    workplace.stop()
    assert all(workplace.has_saved(name) for name in everyone)
    assert "[actor 1] actor1 has saved" in workplace.output  # the last line is not lost
    assert workplace.has_kept("results")


def test_sigterm_to_all_processes_at_once_saves_everything(workplace: Workplace) -> None:
    # Mutation: start a Redis server that the signal reaches.
    workplace.environment["SAVE_SECONDS"] = "1"
    workplace.begin()
    for process in (*workplace.process.children(), psutil.Process(workplace.process.pid)):
        process.terminate()
    assert workplace.exit_code() == 0, workplace.output
    assert workplace.has_saved("learner") and workplace.has_saved("actor0")
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_the_same_command_finds_what_redis_held(workplace: Workplace) -> None:
    for start, number in enumerate((signal.SIGTERM, signal.SIGHUP), 1):
        workplace.begin("--path-to-results", "other results")
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


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_break_the_saving(workplace: Workplace) -> None:
    workplace.environment["SAVE_SECONDS"] = "5"
    workplace.begin()
    workplace.press_ctrl_c()
    for _ in range(3):
        time.sleep(0.2)
        workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert workplace.has_saved("learner")
    assert workplace.has_saved("actor0")
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_ctrl_c_while_redis_starts(workplace: Workplace) -> None:
    # Mutations: Redis is started outside of what Ctrl-C ends; the supervisor has it only when it answers.
    workplace.start("--windows", "none")
    wait_until(lambda: is_listening(workplace.port), "Redis")
    workplace.stop()


@pytest.mark.slow
def test_what_does_not_stop_is_killed(workplace: Workplace) -> None:
    for name in ("learner", "actor0"):
        (workplace.folder / f"{name}.deaf").touch()
    workplace.environment["RAINBOW_STOP_SECONDS"] = "1"
    workplace.begin()
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 1
    assert "learner did not stop in 1 s and is killed" in workplace.output
    workplace.assert_nothing_left()


@pytest.mark.parametrize("code", [pytest.param(0, marks=pytest.mark.slow), 2, 3])
def test_the_learner_s_exit_code_is_the_script_s(workplace: Workplace, code: int) -> None:
    workplace.begin()
    workplace.tell("learner", code)
    assert workplace.exit_code() == code
    assert f"the learner has ended with exit code {code}" in workplace.output
    assert len(go_on_with(workplace)) == (code == 3), "a finished run and a wrong command do not go on"
    assert workplace.has_saved("actor0")
    workplace.assert_nothing_left()
