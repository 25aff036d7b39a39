"""The programs as their users meet them: real processes, a real Redis, the chain for a game."""

import dataclasses
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import __version__
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, packed
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.common import IntervalLog, launch_command, warn_of_long_rows
from tests.chain.environment import ChainEnvironment
from tests.deadline import wait_until
from tests.processes import ROOT, clean_environment
from tests.processes import run as run_program
from tests.refusals.files import RUN
from tests.small import CHAIN, FREE, save_untrained
from tests.system import LEARNER, Run


@pytest.fixture
def run(redis_port: int, run_name: str, tmp_path: Path) -> Iterator[Run]:
    with Run(redis_port, run_name, tmp_path / "results", CHAIN) as run:
        yield run


def check_log(out: str, who: int) -> None:
    """Without lockstep every log line tells how far actors and learner are; T is the learner's or the actors' count."""
    entry = (
        r"\] T = (\d+) / 2400\nTime between 2 log_interval for .*\n"
        r"Without lockstep T counts .* actors' lines \((\d+)\), trained on in the learner's \((\d+)\)\n"
    )
    found = [tuple(map(int, numbers)) for numbers in re.findall(entry, out)]
    assert len(found) == out.count("] T = ") >= (0 if who else 1), out  # an actor may come too late for a line
    for T, played, trained in found:
        assert (played if who else trained) // 600 * 600 == T
        assert 0 <= trained < 2400 + 2 and played > 0


SHORT = [*FREE, *"--learn-start 600 --T-max 2400 --nb-actor 2 --log-interval 600".split()]


@pytest.mark.slow
@pytest.mark.redis
def test_two_actors_without_lockstep(run: Run, tmp_path: Path) -> None:
    more = [*SHORT, "--nb-env-per-actor", "3"]
    for process in [run.start(who, *more) for who in (LEARNER, "0", "1")]:
        check_log(process.end(90).succeeded(), who=0 if process is run.processes[LEARNER] else 1)
    assert run.processes[LEARNER].output.count(": the Redis server keeps no append-only file") == 1, "the tests' one"
    lines = (tmp_path / "results" / "chain.csv").read_text().splitlines()[1:]
    keys = [tuple(line.split(",")[2:5]) for line in lines]
    assert len(set(keys)) == len(keys), "no episode twice"
    assert {key[:2] for key in keys} == {(str(actor), str(env)) for actor in range(2) for env in range(3)}


@pytest.mark.redis
@pytest.mark.slow
def test_a_learner_that_is_ahead_of_its_actors_keeps_the_last_weights(run: Run, tmp_path: Path) -> None:
    more = [*FREE, *"--learn-start 400 --T-max 1200 --keep-checkpoints 2 --force --replay-frequency 100".split()]
    processes = [run.start(who, *more, change="held") for who in (LEARNER, "0")]
    path = tmp_path / "results" / "model_chain_1200.pth"
    wait_until(path.exists, run.last_words, 90)
    (tmp_path / "results" / "go").touch()
    for process in processes:
        process.end(90).succeeded()
    kept = snapshot.load(path, "test")
    assert kept["T_actors"] < 1200 <= kept["T_learner"], "or this shows nothing"


@pytest.mark.parametrize(
    "given",
    [
        "--memory-capacity 100000 --learn-start 8000 --log-interval 2500",
        "--nb-actor 6 --synchronize-actors-with-learner False --host-redis 10.0.0.7",
        "--force --nb-actor 5 --run-name a-b --path-to-results 'my results' --preset cpu --port-redis 6380",
        "--render 0 --disable-cuda --gpu-number 1 --abandon-other-run --verbose",
        "--inference server --id-inference 2 --inference-host 10.0.0.9 --inference-port 7001",
    ],
)
def test_the_command_for_a_missing_process_is_complete(given: str) -> None:
    here = options.parse(shlex.split(given), "launch_learner.py", "")
    own: dict[str, Any] = {"gpu_number": 0, "abandon_other_run": False, "verbose": False}
    own |= {"id_inference": 0, "inference_host": "", "inference_port": 0}
    for id_actor, program in ((0, "launch_actor.py"), (-1, "launch_learner.py")):
        python, script, *words = shlex.split(launch_command(here, id_actor))
        assert (python, script) == ("python", program)
        there = options.parse(words, program, "")
        assert there == dataclasses.replace(here, id_actor=id_actor, **own)


def test_lockstep_logs_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log = IntervalLog("learner", options.parse(["--log-interval", "10"], "", ""), 25)
    assert [log.passes(T, played=T, trained=T) for T in (26, 30, 39, 61)] == [False, True, False, True]
    first, second, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\] T = 30 / 50000000", first)
    assert re.fullmatch(r"Time between 2 log_interval for learner \(\d\.\d{3} sec\)", second)
    assert len(others) == 2


@pytest.mark.slow
@pytest.mark.redis
def test_strangers_are_refused_and_a_stop_saves(run: Run, tmp_path: Path) -> None:
    learner, actor = run.start(LEARNER), run.start("0")
    actor.wait_for("plays chain")
    errors = run.refusal("0")
    assert "actor 0" in errors and "is already running" in errors and "--id-actor" in errors
    errors = run.refusal(LEARNER)
    assert "a learner of run" in errors and "is already running" in errors
    errors = run.refusal("0", "--discount", "0.5", "--multi-step", "7", lines=2)
    assert "--discount is 0.5 here and 1.0 at the learner" in errors
    assert "--multi-step is 7 here and 2 at the learner" in errors
    learner.wait_for("T = 4000 / 14000")
    learner.press_ctrl_c()
    assert (learner.finish(30), actor.finish(30)) == (0, 0)
    path = snapshot.last_models(tmp_path / "results", "chain")[0]
    saved = snapshot.load(path, "test")
    assert saved["T_learner"] >= 4000
    # Mutation: rename a field. `test_saved_run.py` reads the same fields, so checkpoints of earlier releases resume.
    parts = {name for name in saved if name.endswith("_state_dict")}
    assert saved.keys() - parts == RUN.keys() and {"model_state_dict", "optimiser_state_dict"} < parts
    errors = run.refusal(LEARNER, "--multi-step", "3", "--nb-env-per-actor", "2", lines=2)
    assert f"--multi-step: was 2 when {path} was saved, is 3; resume with --multi-step 2, " in errors


@pytest.mark.redis
def test_a_refusal_names_agents_and_spaces(run: Run, tmp_path: Path) -> None:
    small = "--agent reinforce --history-length 1".split()
    other = save_untrained(tmp_path / "other.pth", [*CHAIN, *small], ChainEnvironment.spec)
    told = run.refusal(LEARNER, "--agent", "impala", "--model", str(other))
    assert f"--model: {other} holds weights of --agent reinforce, which do not fit --agent impala: " in told
    odd = tmp_path / "odd.pth"
    torch.save(torch.load(other, weights_only=True) | {"settings": '{"agent": []}'}, odd)
    assert "--model: " in run.refusal(LEARNER, "--agent", "impala", "--model", str(odd), lines=2)
    box = run.refusal(LEARNER, "--agent", "impala", "--env", "gymnasium:Pendulum-v1")
    assert "--agent: impala chooses among discrete actions, and the environment takes numbers (a Box of 1); ppo" in box


def test_every_program_has_a_version() -> None:
    line = rf" {re.escape(__version__)} \(commit ([0-9a-f]{{7,}}(\+changes)?|unknown)\)\n"
    names = "launch_actor launch_inference test_multiple_seed saber_report run_status dashboard"
    module = "rainbow_iqn_apex.programs."
    for name, words in (
        *((f"{name}.py", [f"{name}.py"]) for name in names.split()),
        ("start_learning_atari.sh", ["-m", f"{module}start"]),
        ("apex-redis", ["-c", f"from {module}redis_program import main; main()"]),
        ("launch_learner.py", ["launch_learner.py", "--game", "pong"]),
    ):
        assert re.fullmatch(f"{name}{line}", run_program(*words, "--version").succeeded())


def test_the_start_script_answers_on_standard_output_alone() -> None:
    # Mutations: let make_environment.sh print there; take the first word for the script's name.
    words, environment = ["start_learning_atari.sh"], clean_environment() | {"RAINBOW_VENV": sys.prefix}
    for option, first in (("--version", "start_learning_atari.sh "), ("--print-completion=bash", "# AUTOMATICALLY ")):
        ended = run_program(*words, *option.split("="), program="bash", environment=environment)
        assert ended.code == 0 and ended.out.startswith(first) and "make_environment: " in ended.errors
    usage = run_program("-m", "rainbow_iqn_apex.programs.start", "--help").succeeded()
    assert usage.startswith("usage: python -m rainbow_iqn_apex.programs.start [OPTION ...]\n")


def test_the_package_lists_its_programs() -> None:
    listed = [line.split()[:2] for line in run_program("-m", "rainbow_iqn_apex").succeeded().splitlines()[2:]]
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].keys() - {"apex-redis"}
    assert {command for _, command in listed} == commands
    assert all((ROOT / script).is_file() for script, _ in listed)


def test_too_small_a_memory_limit_is_one_line() -> None:
    limited = f"ulimit -v 500000; exec '{sys.executable}' launch_learner.py"  # kilobytes
    code, _, errors = run_program("-c", limited, program="bash")
    (line,) = errors.splitlines()
    assert code == 1 and line.startswith("launch_learner.py: cannot load what it needs: ")
    assert line.endswith("(is a memory limit too small, see ulimit -v?)")


@pytest.mark.parametrize(
    ("body", "told", "advice"),
    [
        ("import numpy; numpy.zeros(1 << 50)", "Unable to allocate 8.00 PiB ", "ulimit -v"),
        ("import torch; torch.zeros(1 << 58)", "", "ulimit -v"),
        ('raise RuntimeError("can\'t start new thread")', "can't start new thread; ", "ulimit -v"),
        ("raise MemoryError", "MemoryError; ", "ulimit -v"),
        ("import torch; raise torch.OutOfMemoryError('CUDA out of memory. Tried')", "CUDA ", "--replay-device cpu"),
    ],
)
def test_a_lack_of_memory_while_a_program_works_is_one_line(tmp_path: Path, body: str, told: str, advice: str) -> None:
    # Mutations: catch it while modules load alone; catch MemoryError alone; advise about the machine for a GPU.
    (tmp_path / "large.py").write_text(f"def main(args, stop):\n    {body}\n")
    launch = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom rainbow_iqn_apex.programs import launch\n"
    ended = run_program("-c", f"{launch}launch.run_program('large:main', 'launch_learner.py', '')")
    (line,) = ended.errors.splitlines()
    assert ended.code == 1 and line.startswith(f"launch_learner.py: there is too little memory: {told}")
    assert [way for way in ("ulimit -v", "--replay-device cpu") if way in line] == [advice]


@pytest.mark.redis
def test_a_learner_in_too_small_a_memory_limit_ends_with_one_line(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    words = f"--port-redis {redis_port} --run-name {run_name} --path-to-results {tmp_path} --env gymnasium:CartPole-v1"
    words += " --history-length 1 --hidden-size 8 --disable-cuda --memory-capacity 90000000 --force"
    limited = f"ulimit -v 2500000; exec '{sys.executable}' launch_learner.py {words}"  # kilobytes
    code, _, errors = run_program("-c", limited, program="bash")
    (line,) = errors.splitlines()
    assert code == 1 and line.startswith("launch_learner.py: there is too little memory: ")


@pytest.mark.parametrize(
    ("module", "told"),
    [("missing", "No module named 'missing'"), ("full", "MemoryError (is a memory limit too small, see ulimit -v?)")],
)
def test_what_cannot_be_loaded_is_named(tmp_path: Path, module: str, told: str) -> None:
    # Mutation: advise about memory where a package is missing.
    (tmp_path / "full.py").write_text("raise MemoryError\n")
    launch = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom rainbow_iqn_apex.programs import launch\n"
    ended = run_program("-c", f"{launch}launch.run_program('{module}:main', 'launch_learner.py', '')")
    assert (ended.code, ended.errors) == (1, f"launch_learner.py: cannot load what it needs: {told}\n")


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        (
            "threading.Thread(target=threading.Event().wait, name='camera').start()",
            0,
            "ends without waiting for .*: camera",
        ),
        ("sys.exit(0)", 1, r"/.*others\.py, line 3, has called sys.exit: environments and agents must raise an error"),
    ],
)
def test_an_environment_neither_holds_a_program_nor_ends_it_in_good_order(
    tmp_path: Path, body: str, code: int, told: str
) -> None:
    # Mutations: wait for the thread, as Python does; let SystemExit pass.
    (tmp_path / "others.py").write_text(f"import sys, threading\ndef main(*_):\n    {body}\n")
    launch = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom rainbow_iqn_apex.programs import launch\n"
    ended = run_program(
        "-c", f"{launch}launch._LINGERS_S = 0.2\nlaunch.run_program('others:main', 'launch_learner.py', '')"
    )
    assert ended.code == code and re.fullmatch(f"launch_learner.py: {told}\n", ended.errors)


@pytest.mark.parametrize(
    ("field", "is_told"),
    [
        (Field((24_576,), "uint8"), True),  # a stack of four pictures of 64 x 32 in colour
        (packed(Field((3, 64, 64), "uint8"), Field((5000,), "float32")), True),
        (packed(Field((3, 64, 64), "uint8"), Field((27,), "float32")), False),
        (Field((376,), "float32"), False),
        (Field((12, 64, 64), "uint8"), False),
    ],
)
def test_what_may_have_been_meant_for_a_picture_is_named_at_the_start(
    field: Field, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_long_rows(EnvironmentSpec(field, Discrete(2)))
    assert capsys.readouterr().out.count("\n") == is_told
