"""sweep.py as a person uses it: real start scripts, learners, actors and Redis servers, on tiny settings."""

import fcntl
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.supervision import package_environment
from rainbow_iqn_apex.programs.sweep import program
from rainbow_iqn_apex.programs.sweep.plan import State, planned, port_for
from rainbow_iqn_apex.programs.sweep.program import LOG, StartScript, take
from rainbow_iqn_apex.saber.results.run_record import RunRecord, present_start, write_record
from tests.deadline import wait_until
from tests.processes import ROOT, Ended, Process, Processes, clean_environment, run
from tests.start_script import free_port, kill_all_in, processes_in
from tests.terminal import Terminal

FAST = "{preset: cpu, T-max: 1200, log-interval: 400, hidden-size: 8, disable-cuda: true}"
CARTPOLE = f"environments: [gymnasium:CartPole-v1]\nagents: [reinforce]\noptions: {FAST}\n"
NAMES = [f"CartPole-v1_reinforce_seed-{seed}" for seed in (1, 2, 3)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where sweeps are started, with a space, as people have."""
    place = tmp_path / "my sweeps"
    place.mkdir()
    yield place
    kill_all_in(place)


def write(folder: Path, text: str) -> Path:
    file = folder / "s.yaml"
    file.write_text(text)
    return file


def start(processes: Processes, folder: Path, *words: object) -> Process:
    own = ["--port-redis", free_port(), *words]
    return processes.start(ROOT / "sweep.py", "s.yaml", *own, cwd=folder, together=True)


def call(folder: Path, *words: object) -> Ended:
    return run(ROOT / "sweep.py", "s.yaml", *words, cwd=folder, environment=clean_environment())


def wait_for_log(sweep: Process, folder: Path, name: str, text: str) -> Path:
    log = folder / "results" / "s" / name / "sweep.log"
    sweep.wait_until(lambda: log.exists() and text in log.read_text(), text, 240)
    return log


def finished(folder: Path, name: str) -> int:
    path = folder / "results" / "s" / name / "sweep.json"
    return int(json.loads(path.read_text())["finished"]) if path.exists() else 0


def assert_nothing_left(folder: Path) -> None:
    wait_until(lambda: not processes_in(folder), f"no process left, of {processes_in(folder)}", 30)


@pytest.mark.slow
def test_a_sweep_is_stopped_goes_on_and_is_skipped_when_it_has_finished(folder: Path, processes: Processes) -> None:
    """Ctrl-C saves all; the same command goes on; a killed sweep leaves nothing; a third finds nothing to do."""
    # Mutations: start finished runs again; leave ENDS_WITH out of the start script's environment.
    write(folder, CARTPOLE.replace("1200", "400000") + "seeds: [1, 2, 3]\n")
    sweep = start(processes, folder, "--at-once", 2)
    for name in NAMES[:2]:
        sweep.wait_for(f"{name} has started", seconds=120)
        wait_for_log(sweep, folder, name, "[learner] [")
    assert NAMES[2] not in sweep.output, "two at a time"
    sweep.press_ctrl_c()
    assert sweep.finish(120) == 0, sweep.output
    assert f"stopping {NAMES[0]}, {NAMES[1]}, which save first" in sweep.output
    assert "go on from here with: python sweep.py s.yaml --port-redis" in sweep.output.splitlines()[-1]
    assert_nothing_left(folder)
    sweep = start(processes, folder, "--at-once", 1)
    sweep.wait_for(f"{NAMES[0]} has started", seconds=120)
    log = wait_for_log(sweep, folder, NAMES[0], "Resuming from")
    sweep.kill()
    assert_nothing_left(folder)
    assert "start_learning_atari: all is stopped and saved" in log.read_text().splitlines()[-3:]
    write(folder, CARTPOLE.replace("1200", "4000") + "seeds: [1, 2, 3]\n")  # which the first two have done already
    sweep = start(processes, folder, "--at-once", 2)
    assert sweep.finish(400) == 0, sweep.output
    assert sweep.output.splitlines()[-1] == "3 runs: 3 finished"
    assert [finished(folder, name) for name in NAMES] == [4000, 4000, 4000]
    assert start(processes, folder).end(60).out.splitlines() == [
        "3 of 3 runs have finished before", "3 runs: 3 finished",
    ]  # fmt: skip
    assert_nothing_left(folder)


@pytest.mark.slow
def test_a_run_that_fails_is_told_and_the_others_go_on(folder: Path, processes: Processes) -> None:
    # Mutation: end the sweep at the first failure.
    write(folder, CARTPOLE + "seeds: [1, 2, 3]\n")
    bad = folder / "results" / "s" / NAMES[0]
    bad.mkdir(parents=True)
    (bad / "CartPole-v1.csv").write_text("of somebody else\n")
    (folder / "results" / "s" / NAMES[2]).touch()  # in the place of a folder
    sweep = start(processes, folder)
    assert sweep.finish(400) == 1, sweep.output
    failed = f"{NAMES[0]} has failed with exit code 2: [learner] launch_learner.py: error: --path-to-results: "
    assert failed in sweep.output and f"{NAMES[1]} has finished" in sweep.output
    assert f"{NAMES[2]} cannot be started: " in sweep.output
    assert sweep.output.splitlines()[-1] == "3 runs: 2 failed, 1 finished"
    assert_nothing_left(folder)


@pytest.mark.slow
def test_a_run_whose_learner_is_done_before_its_actors_has_finished(folder: Path, processes: Processes) -> None:
    # Mutation: ask the record, which tells what was played.
    more = (
        "synchronize-actors-with-learner: false, T-max: 20000, replay-frequency: 500, learn-start: 200, force: true, "
    )
    text = CARTPOLE.replace("reinforce", "rainbow_iqn").replace("T-max: 1200, ", more)
    write(folder, f"{text}seeds: 1\n")
    sweep = start(processes, folder)
    assert sweep.finish(400) == 0, sweep.output
    record = json.loads((folder / "results/s/CartPole-v1_rainbow_iqn_seed-1/CartPole-v1.json").read_text())
    assert sweep.output.splitlines()[-1] == "1 run: 1 finished" and record["reached"] < 20000


@pytest.mark.slow
def test_runs_of_atari_come_into_one_report(folder: Path, processes: Processes) -> None:
    game = "{preset: cpu, T-max: 5000, memory-capacity: 4000, learn-start: 900, hidden-size: 16, log-interval: 1000"
    game += ", disable-cuda: true, nb-env-per-actor: 4, num-tau-samples: 4, num-tau-prime-samples: 5, batch-size: 4}"
    write(folder, f"games: [pong, breakout]\nseeds: 5\noptions: {game}\n")
    sweep = start(processes, folder, "--at-once", 2)
    assert sweep.finish(500) == 0, sweep.output
    assert "2 runs: 2 finished" in sweep.output
    page = folder / "results" / "s" / "report" / "saber.html"
    assert str(page.relative_to(folder)) in sweep.output.splitlines()[-1]
    text = page.with_suffix(".json").read_text()
    assert "breakout" in text and "pong" in text


def test_every_mistake_is_told_at_once_and_nothing_starts(folder: Path) -> None:
    # Mutation: stop at the first run that is wrong.
    write(
        folder,
        "games: [pongg]\nagents: [impala, nobody]\nseedz: [1]\nseeds: [1, 1]\noptions:\n  batch-sise: 4\n  game: pong\n"
        "  id-inference: 1\n"
        "  hidden-size: 0\nvary:\n  hidden-size: [4]\n  lr-IMPALA: []\n",
    )
    lines = call(folder).refused()
    assert all(line.startswith("sweep.py: error: s.yaml: ") for line in lines)
    for expected in (
        "seedz: no such option; did you mean seeds",
        "seeds: expected each value once, got '1' twice",
        "vary: lr-IMPALA: expected 1 to 1000 values, got 0",
        "options: game: a sweep gives this to each run; leave it out",
        "options: id-inference: a sweep gives this to each run; leave it out",
        "--batch-sise=4: no such option; did you mean --batch-size",
        "--hidden-size: must be above 0, is 0",
        "--game: unknown game 'pongg'; did you mean pong?",
        "or package.module:Class, got 'nobody'",
    ):
        assert any(expected in line for line in lines), lines
    assert not (folder / "results").exists()


def test_finished_runs_of_other_options_are_not_taken_for_those_of_the_file(folder: Path) -> None:
    # Mutation: look at what the file gives alone, of which an option may have been taken away.
    file = write(folder, CARTPOLE + "seeds: [1]\n")
    (run,) = planned(file, folder / "results")
    path = run.folder / f"{run.args.task}.json"
    run.write(State(6379, run.args.T_max))

    def record(**settings: object) -> None:
        start = present_start({"preset": "paper", "device": "cpu"} | run.args.settings | settings)
        write_record(path, RunRecord(run.args.task, 1, 7, (start,)))

    record(T_max=7, precision="float32", batch_size=3)  # which may differ, or is not used
    assert len(planned(file, folder / "results")) == 1
    record(hidden_size=5)
    with pytest.raises(UserError, match=r"s\.yaml: .* was trained with --hidden-size 5, not \d+; give the same, or "):
        planned(file, folder / "results")
    run.write(State(6379, run.args.T_max - 1))
    assert planned(file, folder / "results"), "one that goes on may be mended, as far as its learner lets it"


def test_a_run_may_be_as_short_as_the_preset_without_a_gpu_allows(folder: Path) -> None:
    # Mutation: judge by the defaults for a GPU; there is none here, or the run may be as short with one.
    text = "games: [pong]\noptions: {T-max: 20000}\n"
    if torch.cuda.is_available():
        text = "games: [pong]\noptions: {T-max: 20000, preset: cpu}\n"
    assert [run.args.T_max for run in planned(write(folder, text), folder / "results")] == [20_000]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "s.yaml: expected the keys games or environments, agents, seeds, options and vary; there is neither"),
        ("[1]", "s.yaml: expected the keys games or environments, agents, seeds, options and vary"),
        ("games: !!python/object/apply:os.system [ls]\n", "s.yaml: games: expected a single value, got a list"),
        ("games: [pong]\nseeds: [1, [2]]\n", "s.yaml: seeds: expected a single value, got a list"),
        ("games: [pong]\noptions: 4\n", "s.yaml: options: expected a line `name: value` for each option"),
        ("games: [pong]\nvary: {seed: [1]}\n", "s.yaml: vary: seed: a sweep gives this to each run; leave it out"),
        (
            f"games: [pong]\nseeds: [{', '.join(map(str, range(900)))}]\nvary: {{gamma: [1, 2]}}\n",
            "s.yaml: expected at most 1000 runs, these are 1800",
        ),
        ("games: [pong]\nvary: {run_name: [1], replay-mix: ['a:1', 'a/1']}\n", "two runs would write to the folder"),
    ],
)
def test_a_wrong_file_is_refused(folder: Path, text: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        planned(write(folder, text), folder)
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--at-once", "0"], "--at-once: expected 1 to 64, got '0'"),
        (["--gpus", "a"], "--gpus: expected device numbers separated by commas, got 'a'"),
        (["--only", "x"], "--only: {} has no run 'x'; its runs are folders of results/s"),
        (["more"], "unrecognized arguments: more"),
        (["--port-redis", "0"], "--port-redis: expected 1 to 65535, got '0'"),
    ],
)
def test_wrong_words_are_refused(folder: Path, words: list[str], line: str) -> None:
    file = write(folder, CARTPOLE)
    with pytest.raises(UserError) as caught:
        program.run([str(file), *words], "", StopRequest())
    assert str(caught.value) == line.format(file)


def test_a_server_that_all_would_share_and_a_missing_file_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="FILE: no such file: "):
        program.run([str(folder / "s.yaml")], "", StopRequest())
    for name in ("REDIS_URL", "REDIS_CA_CERTS"):  # a run that is started with the second alone is refused
        monkeypatch.setenv(name, "redis://127.0.0.1")
        with pytest.raises(UserError, match=f"{name}: is set, but each run of a sweep has a Redis server of its own"):
            program.run([str(write(folder, CARTPOLE))], "", StopRequest())
        monkeypatch.delenv(name)


@pytest.mark.slow
def test_an_array_of_slurm_runs_each_by_its_name(folder: Path, processes: Processes) -> None:
    """The script is run as sbatch would run it: by bash, with the number of a task."""
    write(folder, CARTPOLE + "seeds: [1, 2]\n")
    written = call(folder, "--slurm", "--at-once", 3, "--port-redis", free_port())
    assert written == Ended(0, "2 of 2 runs; submit them with: sbatch results/s/sweep.sbatch\n", "")
    script = folder / "results" / "s" / "sweep.sbatch"
    text = script.read_text()
    assert "#SBATCH --array=0-1%3\n" in text and subprocess.run(["bash", "-n", script], check=False).returncode == 0
    write(folder, CARTPOLE + "seeds: [2, 1]\n")  # the numbers would change, the names do not
    tasks = [
        processes.start(
            script, program="bash", cwd=folder.parent, environment=clean_environment() | {"SLURM_ARRAY_TASK_ID": task}
        )
        for task in ("0", "1")
    ]
    for name, task in zip(NAMES, tasks, strict=False):
        assert f"{name} has finished" in task.end(400).succeeded()
    assert call(folder, "--slurm").succeeded() == "all 2 runs have finished\n"
    write(folder, CARTPOLE + "seeds: [4, 5]\n")
    only = call(folder, "--slurm", "--only", "CartPole-v1_reinforce_seed-5").succeeded()
    assert only.startswith("1 of 1 runs;") and "seed-4" not in script.read_text()
    ports = [json.loads((folder / "results" / "s" / name / "sweep.json").read_text())["port"] for name in NAMES[:2]]
    assert ports[0] != ports[1]


def test_a_port_that_another_has_taken_first_is_given_up(folder: Path) -> None:
    # Mutations: keep it; give up that of a run whose server may be at work still.
    write(folder, CARTPOLE + "seeds: [1]\n")
    (only,) = planned(folder / "s.yaml", folder / "r")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        only.write(State(taken, 0))
        assert port_for(only, [only], taken + 1) > taken
        for file in (
            only.folder / "appendonlydir" / f"redis_{taken}.aof.1.incr.aof",
            only.folder / f"redis_{taken}.aof",
        ):
            file.parent.mkdir(exist_ok=True)
            file.touch()
            assert port_for(only, [only], taken + 1) == taken, "also before Redis 7"
            file.unlink()


def test_modules_of_the_users_own_go_before_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    assert package_environment()["PYTHONPATH"] == f"/of/the/user:{ROOT}"


def test_what_an_earlier_start_has_printed_tells_nothing_of_this_one(folder: Path) -> None:
    write(folder, CARTPOLE + "seeds: [1]\n")
    (only,) = planned(folder / "s.yaml", folder / "r")
    lock = take(only)
    assert lock
    lines = "[learner] Finished at T = 1200 already\n[learner] [12:00] T = 300 / 1200\nlearner.py: error: taken\n"
    (only.folder / LOG).write_text(lines)
    process = StartScript(only, State(free_port(), 0), lock, None)
    process.kill()
    assert process.fault() == "it has printed nothing" and process.progress() == (0, "") and not process.has_finished()
    with (only.folder / LOG).open("a") as file:
        file.write("[learner] [12:00] Finished at T = 1200, weights 0\n" + "[actor 0] a line\n" * 2000)
    assert process.has_finished()


def test_a_run_that_another_sweep_has_at_work_is_waited_for(folder: Path, processes: Processes) -> None:
    # Mutation: start it all the same.
    write(folder, CARTPOLE + "seeds: [1]\n")
    place = folder / "results" / "s" / NAMES[0]
    place.mkdir(parents=True)
    state = {"port": free_port(), "finished": 1200}
    with (place / ".sweep.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep = start(processes, folder)
        sweep.wait_for(f"{NAMES[0]}: another sweep.py or its start script is at work in results/s/{NAMES[0]}\n")
        (place / "sweep.json").write_text(json.dumps(state))
    assert sweep.finish() == 0
    assert sweep.output.splitlines()[-1] == "1 run: 1 finished"


@pytest.mark.slow
def test_a_terminal_shows_all_runs_and_ctrl_c_stops_them(folder: Path) -> None:
    write(folder, CARTPOLE.replace("1200", "400000") + "seeds: [1, 2]\n")
    words = [str(ROOT / "sweep.py"), str(folder / "s.yaml"), "--path-to-results", str(folder / "r"), "--port-redis"]
    with Terminal([*words, str(free_port())]) as terminal:
        terminal.wait_for("2 runs: 1 running, 1 waiting")
        terminal.wait_for("of 400,000")
        terminal.send(signal.SIGINT)
        assert terminal.finish() == 0
        assert "go on from here with" in terminal.output
    assert_nothing_left(folder)
