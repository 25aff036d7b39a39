"""The programs as their users meet them: real processes, a real Redis, the chain for a game."""

import dataclasses
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import args as options
from programs import snapshot
from programs.common import IntervalLog, launch_command, make_agent
from tests.chain.environment import ChainEnvironment
from tests.deadline import Deadline, communicate, finish
from tests.specs import discrete
from tests.test_chain import ROOT, SETTINGS

Process = subprocess.Popen[str]


class Programs:
    """Starts programs of one run and ends them all."""

    def __init__(self, port: int, name: str, folder: Path) -> None:
        self.options = [*SETTINGS, "--port-redis", str(port), "--run-name", name, "--path-to-results", str(folder)]
        self._started: list[Process] = []

    def start(self, program: str, *more: str) -> Process:
        command = [sys.executable, "-m", "tests.chain.launch", program, *self.options, *more]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
        self._started.append(process)
        return process

    def run(self, program: str, *more: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a program that ends by itself."""
        process = self.start(program, *more)
        out, errors = communicate(process, 60)
        return process.returncode, out, errors

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def programs(redis_port: int, run_name: str, tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(redis_port, run_name, tmp_path / "results")
    yield programs
    programs.end()


def wait_for(process: Process, text: str) -> None:
    assert process.stdout
    deadline = Deadline(60, repr(text))
    while text not in (line := process.stdout.readline()):
        deadline.check()
        assert line or process.poll() is None, f"{text!r} never came"


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


ONE_PROCESS = ("--evaluation-workers", "1")  # others would not know the chain
SHORT = "--learn-start 600 --T-max 2400 --nb-actor 2 --synchronize-actors-with-learner False --log-interval 600".split()


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.parametrize("rainbow_only", ["0", "1"])
def test_two_actors_without_lockstep(programs: Programs, tmp_path: Path, rainbow_only: str) -> None:
    more = [*SHORT, "--rainbow-only", rainbow_only, "--nb-env-per-actor", "3"]
    processes = [programs.start("launch_learner.py", *more)]
    processes += [programs.start("launch_actor.py", "--id-actor", str(actor), *more) for actor in range(2)]
    for process in processes:
        out, errors = communicate(process, 90)
        assert (process.returncode, errors) == (0, ""), out
        check_log(out, who=0 if process is processes[0] else 1)
    lines = (tmp_path / "results" / "chain.csv").read_text().splitlines()[1:]
    keys = [tuple(line.split(",")[2:5]) for line in lines]
    assert len(set(keys)) == len(keys), "no episode twice"
    assert {key[:2] for key in keys} == {(str(actor), str(env)) for actor in range(2) for env in range(3)}


@pytest.mark.redis
def test_a_learner_that_is_ahead_of_its_actors_keeps_the_last_weights(programs: Programs, tmp_path: Path) -> None:
    more = "--synchronize-actors-with-learner 0 --learn-start 600 --T-max 1200 --keep-checkpoints 2".split()
    more += ["--force", "--replay-frequency", "100"]
    processes = [programs.start(name, "--id-actor", "0", *more) for name in ("launch_learner.py", "launch_actor.py")]
    for process in processes:
        out, errors = communicate(process, 90)
        assert (process.returncode, errors) == (0, ""), out
    kept = snapshot.load(tmp_path / "results" / "model_chain_1200.pth", "test")
    assert kept["T_actors"] < 1200 <= kept["T_learner"], "or this shows nothing"


@pytest.mark.parametrize(
    "given",
    [
        "--memory-capacity 100000 --learn-start 8000 --log-interval 2500",
        "--nb-actor 6 --synchronize-actors-with-learner False --host-redis 10.0.0.7",
        "--force --nb-actor 5 --run-name 'a b' --path-to-results 'my results' --preset cpu --port-redis 6380",
        "--render 0 --disable-cuda --gpu-number 1 --abandon-other-run",
    ],
)
def test_the_command_for_a_missing_process_is_complete(given: str) -> None:
    here = options.parse(shlex.split(given), "launch_learner.py", "")
    own = {"gpu_number": 0, "abandon_other_run": False}
    for id_actor, program in ((0, "launch_actor.py"), (-1, "launch_learner.py")):
        python, script, *words = shlex.split(launch_command(here, id_actor))
        assert (python, script) == ("python", program)
        there = options.parse(words, program, "")
        assert there == dataclasses.replace(here, id_actor=id_actor, **own)


def test_the_command_for_a_missing_actor_is_the_documented_one() -> None:
    given = "--memory-capacity 100000 --learn-start 8000 --log-interval 2500"
    assert launch_command(options.parse(given.split(), "", ""), 0) == f"python launch_actor.py --id-actor 0 {given}"
    assert launch_command(options.parse(given.split(), "", ""), -1) == f"python launch_learner.py {given}"


def test_lockstep_logs_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log = IntervalLog("learner", options.parse(["--log-interval", "10"], "", ""), 25)
    assert [log.passes(T, played=T, trained=T) for T in (26, 30, 39, 61)] == [False, True, False, True]
    first, second, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\] T = 30 / 50000000", first)
    assert re.fullmatch(r"Time between 2 log_interval for learner \(\d\.\d{3} sec\)", second)
    assert len(others) == 2


@pytest.mark.slow
@pytest.mark.redis
def test_strangers_are_refused_and_a_stop_saves(programs: Programs, tmp_path: Path) -> None:
    learner = programs.start("launch_learner.py")
    actor = programs.start("launch_actor.py", "--id-actor", "0")
    wait_for(actor, "plays chain")
    code, _, errors = programs.run("launch_actor.py", "--id-actor", "0")
    assert (code, errors.count("\n")) == (2, 1), errors
    assert "actor 0" in errors and "is already running" in errors and "--id-actor" in errors
    code, _, errors = programs.run("launch_learner.py")
    assert (code, errors.count("\n")) == (2, 1), errors
    assert "a learner of run" in errors and "is already running" in errors
    code, _, errors = programs.run("launch_actor.py", "--id-actor", "0", "--discount", "0.5", "--multi-step", "7")
    assert (code, errors.count("\n")) == (2, 2), errors
    assert "--discount is 0.5 here and 1.0 at the learner" in errors
    assert "--multi-step is 7 here and 2 at the learner" in errors
    wait_for(learner, "T = 4000 / 14000")
    learner.send_signal(signal.SIGINT)
    for process in (learner, actor):
        assert finish(process, 30) == 0
    path = snapshot.last_models(tmp_path / "results", "chain")[0]
    assert snapshot.load(path, "test")["T_learner"] >= 4000
    code, _, errors = programs.run("launch_learner.py", "--multi-step", "3", "--nb-env-per-actor", "2")
    assert (code, errors.count("\n")) == (2, 2), errors
    assert f"--multi-step: was 2 when {path} was saved, is 3" in errors


@pytest.mark.redis
def test_an_actor_without_a_learner_says_what_it_waits_for_and_stops(programs: Programs) -> None:
    actor = programs.start("launch_actor.py", "--id-actor", "0")
    wait_for(actor, "Waiting for the learner of run")
    actor.send_signal(signal.SIGTERM)
    assert finish(actor, 60) == 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A snapshot with sizes of its own, as others may have made it: without noise buffers, and with nothing else."""
    args = options.parse([*SETTINGS, "--hidden-size", "23", "--quantile-embedding-dim", "11"], "test", "")
    agent = make_agent(args, discrete((5,), "uint8", 3), torch.device("cpu"), learns=False, seed=4)
    network = agent.parts["model"]
    assert isinstance(network, torch.nn.Module)
    path = tmp_path / "anybody.pth"
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    torch.save({"T_actors": 1, "T_learner": 1, "model_state_dict": weights, "optimiser_state_dict": {}}, path)
    return path


def test_an_evaluation_needs_no_network_options_and_repeats_itself(programs: Programs, model: Path) -> None:
    programs.options = "--env chain --game chain --history-length 2 --disable-cuda".split()
    programs.options += ["--path-to-results", str(model.parent / "results")]
    outputs = []
    for _ in "ab":
        evaluate = ["test_multiple_seed.py", "--model", str(model), "--evaluation-episodes", "40", *ONE_PROCESS]
        outputs.append(programs.run(*evaluate))
        shutil.rmtree(model.parent / "results" / "evaluations")  # or nothing would be played again
    assert outputs[0] == outputs[1]
    code, out, errors = outputs[0]
    assert (code, errors) == (0, "")
    assert sum(line.startswith("episode ") for line in out.splitlines()) == 40
    for row in ("40 episodes", "SABER score", "standard deviation", "median", "at 30 minutes", "at 5 minutes"):
        assert row in out


@pytest.mark.slow
def test_files_that_are_no_snapshots_are_refused(programs: Programs, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("weights")
    (tmp_path / "torn.pth").write_bytes(model.read_bytes()[:-500])
    whole = model.read_bytes()
    at = whole.index(
        torch.load(model, weights_only=True)["model_state_dict"]["fcnoisy_h_v.weight_mu"].numpy().tobytes()
    )
    (tmp_path / "flipped.pth").write_bytes(
        whole[:at] + bytes(byte ^ 1 for byte in whole[at : at + 400]) + whole[at + 400 :]
    )
    torch.save({"model_state_dict": {"conv1.weight": torch.zeros(3)}}, tmp_path / "foreign.pth")
    torch.save({"model_state_dict": ChainEnvironment(0)}, tmp_path / "objects.pth")
    refused = [("test_multiple_seed.py", f"{name}.pth") for name in "text torn flipped foreign objects missing".split()]
    for program, name in [*refused, ("launch_learner.py", "flipped.pth")]:
        code, _, errors = programs.run(program, "--model", str(tmp_path / name))
        assert (code, errors.count("\n")) == (2, 1), errors
        assert "--model: " in errors and name in errors
    (tmp_path / "results" / "last_model_chain_17.pth").write_text("weights")
    code, _, errors = programs.run("launch_learner.py")
    assert (code, errors.count("\n")) == (2, 1), errors
    assert "--path-to-results: " in errors and "last_model_chain_17.pth" in errors
    code, _, errors = programs.run("test_multiple_seed.py")
    assert (code, errors.count("\n")) == (2, 1) and "--model: " in errors
    assert "best_model" not in errors, "its scores were chosen"
