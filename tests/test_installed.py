"""`pip install .`: the commands in an environment of their own, and the Pythons for which there are packages."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

from rainbow_iqn_apex import __version__
from tests.conftest import RedisServer
from tests.documents import write_modules
from tests.processes import ROOT, Ended, Processes, clean_environment, run
from tests.servers import BUNDLED
from tests.small import CARTPOLE, TINY
from tests.start_script import free_port
from tests.test_environment_files import pins, requirements
from tests.test_first_command import clean_clone, path_without_redis

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PACKAGE = "rainbow_iqn_apex"
PACKAGES = [path for path in sys.path if path.endswith("site-packages")]  # where the requirements are
WITH_PACKAGES = clean_environment() | {"PYTHONPATH": os.pathsep.join(PACKAGES)}
NO_INDEX = ("Failed to fetch", "Could not find a version that satisfies the requirement hatchling")


def test_the_package_needs_the_pinned_requirements() -> None:
    assert pins(PROJECT["dependencies"]) == pins(requirements())


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    required = {"cff-version", "message", "title", "authors"}  # by the schema of cff-version 1.2.0
    assert required <= citation.keys() and citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert all(isinstance(citation[name], str) for name in required - {"authors"}) and citation["authors"]
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= paper.keys() and paper["doi"] == "10.48550/arXiv.1908.04683"
    assert [author["family-names"] for author in paper["authors"]] == ["Toromanoff", "Wirbel", "Moutarde"]


@pytest.mark.parametrize("command", PROJECT["scripts"])
def test_a_command_names_a_module_beside_the_others(command: str) -> None:
    module, function = PROJECT["scripts"][command].split(":")
    look = f"from {PACKAGE} import args; from {module} import {function}; print(args.__file__, {function}.__module__)"
    code, out, errors = run("-c", look)
    assert (code, out.split(), errors) == (0, [str(ROOT / PACKAGE / "args.py"), module], "")


def install(python: Path, *words: str, program: tuple[str, ...] = ("pip",), folder: Path) -> None:
    """Install into an environment; skip the test where no index can be reached."""
    done = run("-m", *program, "install", *words, program=str(python), cwd=folder, seconds=600)
    if done.code and any(text in done.errors for text in NO_INDEX):
        pytest.skip("no package index can be reached")
    assert done.code == 0, done.errors


def make_environment(folder: Path, python: str = sys.executable) -> Path:
    """Make an empty environment, and return its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A checkout, and beside it an environment in which `pip install .` has been done there.

    The environment finds the requirements in this one, so that nothing large is installed; pip checks their versions.
    """
    folder = tmp_path_factory.mktemp("installed")
    clean_clone(folder / "checkout")
    python = make_environment(folder / "venv")
    (others,) = (folder / "venv").glob("lib/python*/site-packages")
    (others / "requirements.pth").write_text("".join(f"{path}\n" for path in PACKAGES))
    (others / "agents.py").write_text("raise ImportError('a package of somebody else')\n")
    install(python, ".", folder=folder / "checkout")
    (folder / "empty").mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_all_of_the_package_is_in_a_wheel_whatever_that_is_made_from(place: Path, tmp_path: Path) -> None:
    # Mutation: no `only-include` in pyproject.toml: hatchling takes what it meets first of a folder and its link.
    package = place / "checkout" / PACKAGE
    walked = [Path(folder) / name for folder, _, names in os.walk(package, followlinks=True) for name in names]
    expected = {path.relative_to(package.parent).as_posix() for path in walked}
    for kind in ("--sdist", "--wheel", ""):  # the last one: from a source distribution
        command = ["-m", "uv", "build", *filter(None, [kind]), "--out-dir", str(tmp_path / kind)]
        done = run(*command, cwd=package.parent, seconds=120)
        if done.code and NO_INDEX[0] in done.errors:
            pytest.skip("no package index can be reached")
        assert done.code == 0, done.errors
    for wheel in (*tmp_path.glob("*.whl"), *tmp_path.glob("--wheel/*.whl")):
        names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
        assert names == expected and len(names) > 200
    (source,) = tmp_path.glob("--sdist/*.tar.gz")
    python = make_environment(tmp_path / "venv")
    install(python, "--no-deps", str(source), folder=tmp_path)
    look = f"import {PACKAGE}.memory.rows, {PACKAGE}.launch_actor"
    assert run("-c", look, program=str(python), cwd=tmp_path, environment=WITH_PACKAGES).code == 0


def call(place: Path, command: str, *words: object) -> Ended:
    return run(*words, program=str(place / "venv" / "bin" / command), cwd=place / "empty", seconds=120)


@pytest.mark.slow
def test_each_command_is_there_under_its_name(place: Path) -> None:
    found = {path.name for path in (place / "venv" / "bin").glob("apex-*")}
    assert found == PROJECT["scripts"].keys() >= {"apex-learner", "apex-actor", "apex-inference", "apex-eval"}
    for command in found:
        assert call(place, command, "--help").succeeded().startswith(f"usage: {command} ")
        assert f"-F _shtab_{command.replace('-', '_')} {command}\n" in (
            call(place, command, "--print-completion", "bash").out
        )
        assert call(place, command, "--nonsense").errors.splitlines()[-1].startswith(f"{command}: error: ")
    assert not [
        path for path in (place / "checkout").iterdir() if path.name in ("build", "dist") or ".egg" in path.name
    ]


@pytest.mark.slow
def test_the_installation_adds_one_name_to_those_of_other_packages(place: Path) -> None:
    python = str(place / "venv" / "bin" / "python")
    look = "import importlib.metadata as m; print(*sorted({f.parts[0] for f in m.files('rainbow-iqn-apex')}))"
    found = run("-c", look, program=python, cwd=place / "empty").out.split()
    assert found == ["..", PACKAGE, f"{PACKAGE}-{__version__}.dist-info"]
    for module in ("launch_learner", "args", "benchmarks"):  # another package, opensimplex, has a `tests`
        assert run("-c", f"import {module}", program=python, cwd=place / "empty").code == 1


@pytest.mark.slow
def test_the_server_that_a_command_advises_is_the_one_it_misses(place: Path, processes: Processes) -> None:
    port = str(free_port())
    code, _, errors = call(place, "apex-status", "--port-redis", port)
    advice = re.search("start one with `(.*?)`", errors)
    assert code == 2 and advice and advice[1] == f"apex-redis --port-redis {port}"
    command, *words = advice[1].split()
    server = processes.start(*words, program=str(place / "venv" / "bin" / command), cwd=place / "empty")
    server.wait_for("Ready to accept connections")
    assert call(place, "apex-status", "--port-redis", port).code == 0
    assert any((place / "empty" / "results").rglob(f"redis_{port}.aof*"))
    server.press_ctrl_c()
    assert server.finish(30) == 0
    shutil.rmtree(place / "empty" / "results")


@pytest.mark.slow
def test_a_run_by_the_commands(place: Path, own_server: RedisServer, processes: Processes) -> None:
    small = [*TINY, *CARTPOLE, *"--T-max 900 --learn-start 300 --memory-capacity 2000 --log-interval 300".split()]
    small += ["--port-redis", str(own_server.port)]
    bin_, empty = place / "venv" / "bin", place / "empty"
    subprocess.run(["git", "init", "--quiet"], cwd=place, check=True)  # of somebody else, around the environment
    learner = processes.start(*small, program=str(bin_ / "apex-learner"), cwd=empty)
    learner.wait_for("apex-actor --id-actor 0 --")  # the command for whom it waits for
    actor = processes.start("--id-actor", "0", *small, program=str(bin_ / "apex-actor"), cwd=empty)
    for process in (learner, actor):
        process.end(120).succeeded()
    (start,) = json.loads((empty / "results" / "CartPole-v1.json").read_text())["starts"]
    assert start["commit"] == "unknown"
    more = ["--config", "results/CartPole-v1.yaml", "--model", "results", "--evaluation-episodes", "3"]
    assert "3 episodes" in call(place, "apex-eval", *more, "--evaluation-workers", "2").succeeded()
    call(place, "apex-report", "results", "--output", "report").succeeded()
    assert (empty / "report" / "saber.html").exists()


@pytest.mark.slow
def test_apex_train_starts_everything_beside_modules_of_the_users_own(place: Path, processes: Processes) -> None:
    """It brings its server's configuration, opens windows, and names the command that goes on, which does so."""
    # Mutations: leave redis_rainbow_6379.conf out of the package; start the launchers by the names of their scripts.
    folder = place / "users"
    (folder / "memory").mkdir(parents=True)
    for name in ("agents.py", "args.py", "memory/__init__.py", "redis_rainbow_6379.conf"):
        (folder / name).write_text("raise ImportError('of somebody else')\n")
    assert "--use-running-redis" in call(place, "apex-train", "--print-completion", "bash").out
    emulator = place / "gnome-terminal"  # as the real one it returns at once
    emulator.write_text('#!/bin/sh\necho "$2" >>"$0.titles"\nshift 3\nexec "$@" >>"$0.lines" &\n')
    emulator.chmod(0o755)
    environment = clean_environment() | {"DISPLAY": ":99", "PATH": f"{place}:{path_without_redis(place)}"}
    words = [*CARTPOLE, *"--agent reinforce --preset cpu --disable-cuda --T-max 30000 --log-interval 1000".split()]
    words += ["--port-redis", str(free_port()), "--windows", "terminal", "--path-to-results", "results/mine"]
    program = place / "venv" / "bin" / "apex-train"
    train = processes.start(*words, program=str(program), cwd=folder, environment=environment)
    log = folder / "results" / "mine" / "CartPole-v1.csv"
    train.wait_until(lambda: log.exists() and log.read_text().count("\n") > 20, "episodes")
    train.send(signal.SIGINT)
    out = train.end().succeeded()
    *_, saved, go_on = out.splitlines()
    assert saved == "apex-train: all is stopped and saved"
    assert Path(BUNDLED).name in re.findall("Redis: started (.*) at", out)[0]
    assert go_on == f"apex-train: go on from here with: {shlex.join([str(program), *words])}"
    assert Path(f"{emulator}.titles").read_text().split("\n") == ["learner", "actor 0", ""]
    assert "Stopping: saving what there is" in Path(f"{emulator}.lines").read_text()
    again = shlex.split(go_on.partition(" with: ")[2])
    out = run(*again[1:], program=again[0], cwd=folder, environment=environment, seconds=120).succeeded()
    assert "apex-train: the learner has ended with exit code 0" in out
    record = json.loads(log.with_suffix(".json").read_text())
    assert record["reached"] >= 30000


@pytest.mark.slow
def test_agent_and_environment_of_another_package(place: Path, processes: Processes) -> None:
    """The documents' examples, installed with entry points, train, resume and are evaluated by their names."""
    # Mutation: look for names in the registry alone.
    (packages,) = (place / "venv").glob("lib/python*/site-packages")
    for document in ("docs/agents.md", "docs/environments.md"):
        write_modules(document, packages)
    info = packages / "corridor-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: corridor\nVersion: 1.0\n")
    groups = {"agents": "linear = linear_agent:LinearAgent", "environments": "corridor = corridor:make"}
    points = "".join(f"[{PACKAGE}.{group}]\n{line}\n" for group, line in groups.items())
    (info / "entry_points.txt").write_text(points)
    folder, program = place / "corridor", str(place / "venv" / "bin" / "apex-train")
    folder.mkdir()
    words = (
        "--agent linear --env corridor --nb-env-per-actor 4 --disable-cuda --log-interval 4000 --windows none".split()
    )
    words += ["--port-redis", str(free_port())]
    for steps in ("10000", "20000"):  # the second goes on where the first has ended
        train = processes.start(*words, "--T-max", steps, program=program, cwd=folder, environment=clean_environment())
        out = train.end(120).succeeded()
    assert "Resuming from" in out
    record = json.loads((folder / "results" / "corridor.json").read_text())
    assert record["starts"][-1]["settings"]["agent"] == "linear" and record["reached"] >= 20000
    more = ["--model", "results", "--evaluation-episodes", "20"]
    out = run(*more, program=str(place / "venv" / "bin" / "apex-eval"), cwd=folder).succeeded()
    mean = re.search(r"(?m)^  mean +(\S+)", out)
    assert mean and float(mean[1]) > 0.5, out


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pip install -e", "uv pip install"])
def test_other_ways_to_install(place: Path, tmp_path: Path, way: str) -> None:
    python = make_environment(tmp_path / "venv")
    if way.startswith("uv"):
        words = ("--no-deps", "--python", str(python), ".")
        install(Path(sys.executable), *words, program=("uv", "pip"), folder=place / "checkout")
    else:
        install(python, "--no-deps", "-e", ".", folder=place / "checkout")
    for name in ("agents", "args", "memory", "programs"):  # of the user's own
        (tmp_path / f"{name}.py").write_text("raise ImportError('of somebody else')\n")
    look = f"import {PACKAGE}.args, {PACKAGE}.launch_learner; import agents"
    code, _, errors = run("-c", look, program=str(python), cwd=tmp_path, environment=WITH_PACKAGES)
    assert code == 1 and errors.splitlines()[-1] == "ImportError: of somebody else"
    program = str(tmp_path / "venv" / "bin" / "apex-learner")
    (line,) = run("--sede", "4", program=program, cwd=tmp_path, environment=WITH_PACKAGES).refused()
    assert line.startswith("apex-learner: error: --sede: no such option; did you mean --seed ")


# --- the Pythons ---


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_there_is_a_set_of_packages_for_each_python(version: str, tmp_path: Path) -> None:
    output = tmp_path / "requirements.txt"
    words = ["--all-extras", "--no-header", "--python-version", version, "-o", output, "pyproject.toml"]
    done = run("-m", "uv", "pip", "compile", *words, seconds=600)
    if done.code and NO_INDEX[0] in done.errors:
        pytest.skip("no package index can be reached")
    assert done.code == 0, done.errors
    found = pins([line.split(" ")[0] for line in output.read_text().splitlines()])
    assert {re.sub("[-_.]+", "-", name): pin for name, pin in pins(requirements()).items()}.items() <= found.items()
    assert "tensorboard" in found


def interpreter(version: str) -> str:
    """Return a Python of that version, on the PATH or installed beside this one; skip the test if there is none."""
    names = [f"python{version}", *map(str, Path(sys.base_prefix).parent.glob(f"*{version}.*/bin/python{version}"))]
    for name in filter(None, map(shutil.which, names)):
        if subprocess.run([name, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return name
    pytest.skip(f"there is no Python {version}")


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS[1:])
def test_the_command_line_works_with_other_pythons(version: str, tmp_path: Path) -> None:
    """Without PyTorch, which takes a gigabyte: what runs before it is imported."""
    python = make_environment(tmp_path / "venv", interpreter(version))
    light = [line for line in requirements() if re.match("ale-py|msgspec|numpy|PyYAML|shtab", line)]
    install(python, "--quiet", "--only-binary", ":all:", *light, folder=tmp_path)
    install(python, "--quiet", "--no-deps", str(ROOT), folder=tmp_path)
    program = str(tmp_path / "venv" / "bin" / "apex-learner")
    assert run("--help", program=program, cwd=tmp_path).out.startswith("usage: apex-learner")
    (tmp_path / "my.yaml").write_text("game: pongg\n")
    code, _, errors = run("--config", "my.yaml", program=program, cwd=tmp_path)
    assert (code, errors) == (2, "apex-learner: error: my.yaml: game: unknown game 'pongg'; did you mean pong?\n")
    assert os.linesep + "complete " in run("--print-completion", "bash", program=program, cwd=tmp_path).out
