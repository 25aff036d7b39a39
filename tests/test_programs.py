"""The programs as their users meet them: real processes, a real Redis, the chain for a game."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import args as options
from agents import snapshot
from agents.registry import make_agent
from memory.chunk import Field
from tests.chain.environment import ChainEnvironment
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
        out, errors = process.communicate(timeout=60)
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
    deadline = time.monotonic() + 60
    while text not in (line := process.stdout.readline()):
        assert time.monotonic() < deadline and (line or process.poll() is None), f"{text!r} never came"


ONE_PROCESS = ("--evaluation-workers", "1")  # others would not know the chain
SHORT = "--learn-start 600 --T-max 2400 --nb-actor 2 --synchronize-actors-with-learner False".split()


@pytest.mark.redis
@pytest.mark.parametrize("rainbow_only", ["0", "1"])
def test_two_actors_without_lockstep(programs: Programs, tmp_path: Path, rainbow_only: str) -> None:
    more = [*SHORT, "--rainbow-only", rainbow_only, "--nb-env-per-actor", "3"]
    processes = [programs.start("launch_learner.py", *more)]
    processes += [programs.start("launch_actor.py", "--id-actor", str(actor), *more) for actor in range(2)]
    for process in processes:
        out, errors = process.communicate(timeout=90)
        assert (process.returncode, errors) == (0, ""), out
    lines = (tmp_path / "results" / "chain.csv").read_text().splitlines()[1:]
    keys = [tuple(line.split(",")[2:5]) for line in lines]
    assert len(set(keys)) == len(keys), "no episode twice"
    assert {key[:2] for key in keys} == {(str(actor), str(env)) for actor in range(2) for env in range(3)}


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
        assert process.wait(30) == 0
    path = snapshot.find_last_model(tmp_path / "results", "chain")
    assert path is not None
    assert snapshot.load(path, "test")["T_learner"] >= 4000
    code, _, errors = programs.run("launch_learner.py", "--multi-step", "3", "--nb-env-per-actor", "2")
    assert (code, errors.count("\n")) == (2, 2), errors
    assert f"--multi-step: was 2 when {path} was saved, is 3" in errors


@pytest.mark.redis
def test_an_actor_without_a_learner_says_what_it_waits_for_and_stops(programs: Programs) -> None:
    actor = programs.start("launch_actor.py", "--id-actor", "0")
    wait_for(actor, "Waiting for the learner of run")
    actor.send_signal(signal.SIGTERM)
    assert actor.wait(60) == 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A snapshot with sizes of its own, as others may have made it: without noise buffers, and with nothing else."""
    args = options.parse([*SETTINGS, "--hidden-size", "23", "--quantile-embedding-dim", "11"], "test", "")
    agent = make_agent(args, Field((5,), "uint8"), 3, torch.device("cpu"), learns=False, seed=4)
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


def test_files_that_are_no_snapshots_are_refused(programs: Programs, model: Path, tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("weights")
    (tmp_path / "torn.pth").write_bytes(model.read_bytes()[:-500])
    torch.save({"model_state_dict": {"conv1.weight": torch.zeros(3)}}, tmp_path / "foreign.pth")
    torch.save({"model_state_dict": ChainEnvironment(0)}, tmp_path / "objects.pth")
    for name in ("text.pth", "torn.pth", "foreign.pth", "objects.pth", "missing.pth"):
        code, _, errors = programs.run("test_multiple_seed.py", "--model", str(tmp_path / name))
        assert (code, errors.count("\n")) == (2, 1), errors
        assert "--model: " in errors and name in errors
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "last_model_chain_17.pth").write_text("weights")
    code, _, errors = programs.run("launch_learner.py")
    assert (code, errors.count("\n")) == (2, 1), errors
    assert "--path-to-results: " in errors and "last_model_chain_17.pth" in errors
    code, _, errors = programs.run("test_multiple_seed.py")
    assert (code, errors.count("\n")) == (2, 1) and "--model: " in errors
