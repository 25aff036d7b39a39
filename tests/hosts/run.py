"""A guarded run on several hosts, started by the commands of README.md and docs/access.md."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from rainbow_iqn_apex.memory.broker.keys import Keys
from tests.chaos.tap import Tap
from tests.deadline import wait_until
from tests.documents import blocks, commands, documents, section
from tests.hosts.network import Host, Network
from tests.processes import ROOT, Process, clean_environment
from tests.servers import SERVERS
from tests.system import LEARNER

SERVER = "redis.example.org"  # as docs/access.md calls it
EVALUATOR, PLAYERS = "evaluator", ("0", "1")
ACTORS = len(PLAYERS)
NAME = "hosts"  # of the run
TOLD_S = 15.0


def tls_server() -> str:
    """Return a server that was built with TLS, as that of a distribution; skips the test where there is none."""
    found = [path for name, path in SERVERS.items() if name.startswith("Redis 7") and path.startswith("/usr/")]
    if not found:
        pytest.skip("hosts need a Redis server with TLS, such as Debian's")
    return found[0]


def make_access(folder: Path) -> Path:
    """Make users and certificates by the first block of docs/access.md, but its last command; return their folder."""
    _link_project(folder)
    make, _ = _access_commands()
    ended = subprocess.run(["bash", "-ec", make], cwd=folder, env=_environment(), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder / "access"


def _access_commands() -> tuple[str, str]:
    """Return the commands that make users and certificates, and the one that starts the server."""
    block = next(blocks("docs/access.md", documents()["docs/access.md"])).text
    make, name, start = block.partition("redis-server redis_rainbow_6379.conf")
    return make, f"{name}{start}"


class HostsRun:
    """Redis and learner on one host, each actor and an evaluation actor on one of its own; a context manager.

    Every process writes into `folder`/<who>.txt, as those that take its place do. `access` is that of `make_access`;
    `mutation` is one of `tests.chaos.mutations`, of the actors.
    """

    def __init__(self, folder: Path, access: Path, options: list[str], mutation: str = "nothing") -> None:
        self.folder = folder
        self.results = folder / "results" / "run"
        self.processes: dict[str, Process] = {}
        self.network = Network(SERVER, "player0", "player1", "judge", "wire")
        self.server, *self.players, self.judge, self.wire = self.network.hosts
        self._options = [*options, "--run-name", NAME, "--path-to-results", str(self.results)]
        self._access = access
        self._mutation = mutation
        self._program = tls_server()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            _link_project(self.folder)
            shutil.copytree(self._access, self.folder / "access")
            self._start_redis()
            self.client = redis.Redis(
                unix_socket_path=str(self.folder / "redis.sock"),
                username="admin",
                password=(self.folder / "access" / "admin.env").read_text().strip().partition("=")[2],
                socket_timeout=5,
                protocol=2,
            )
            stack.callback(self.client.close)
            self.tap = stack.enter_context(Tap(self.client, NAME, ACTORS))
            for who in (LEARNER, *PLAYERS, EVALUATOR):
                self.start(who)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- processes ---

    def _start_redis(self) -> None:
        """Start the server by the last command of the first block of docs/access.md."""
        command = _access_commands()[1].replace("redis-server", f"exec {self._program}", 1)
        server = self.server.start(
            "bash", "-ec", f"{command} --unixsocket {self.folder / 'redis.sock'}",
            environment=_environment(), cwd=self.folder, output=self.folder / "redis.txt", together=True,
        )  # fmt: skip
        server.wait_for("Ready to accept connections")

    def host_of(self, who: str) -> Host:
        return {LEARNER: self.server, EVALUATOR: self.judge}.get(who) or self.players[int(who)]

    def start(self, who: str, *more: str) -> Process:
        """Start a process by its command in README.md, with the secrets of docs/access.md."""
        words = [*self._command(who), *self._options, *more]
        user = "learner" if who == LEARNER else "actor"
        ledger = [str(self.folder), "nothing" if who == LEARNER else self._mutation]
        program = f"exec {shlex.join(['python', '-m', 'tests.hosts.launch', *ledger, *words[1:]])}"
        secrets = f"source access/{user}.env; export REDIS_CA_CERTS=access/ca.crt"
        self.processes[who] = self.host_of(who).start(
            "bash", "-ec", f"{secrets}; {program}",
            environment=_environment(), cwd=self.folder, output=self.folder / f"{who}.txt", together=True,
        )  # fmt: skip
        return self.processes[who]

    def _command(self, who: str) -> list[str]:
        program = "launch_learner.py" if who == LEARNER else "launch_actor.py"
        readme = commands("README.md", section(documents()["README.md"], "Several machines"))
        (words,) = [list(command.words) for command in readme if program in command.words]
        words += ["--redis-url", f"rediss://{SERVER}:6379"]  # as its sixth step has it
        if who != LEARNER:
            at = words.index("--id-actor")
            words[at : at + 2] = ["--id-eval-actor", "0"] if who == EVALUATOR else ["--id-actor", who]
        return words

    def printed(self, who: str) -> str:
        return self.processes[who].output

    def last_words(self) -> str:
        return self.network.processes.last_words()

    # --- progress ---

    def marks(self) -> dict[str, int]:
        """Return how far everybody is: the newest weights, and each actor's last message."""
        if not self.tap.runs:
            return dict.fromkeys((LEARNER, *PLAYERS, EVALUATOR), -1)
        keys = Keys(NAME, self.tap.runs[-1])
        newest: Any = self.client.xrevrange(keys.versions, count=1)
        marks = {LEARNER: int(newest[0][0].split(b"-")[0]) if newest else -1}
        for who in (*PLAYERS, EVALUATOR):
            own = Keys(NAME, keys.run_id, evaluation=who == EVALUATOR)
            number: Any = self.client.hget(own.state(0 if who == EVALUATOR else int(who)), "sequence")
            marks[who] = int(number or 0)
        return marks

    def is_finished(self) -> bool:
        return "Finished at T" in self.printed(LEARNER)

    def wait_for_progress(self) -> None:
        """Wait until everybody has got on, or the run has ended."""
        before = self.marks()

        def is_so() -> bool:
            now = self.marks()
            gone = [who for who, process in self.processes.items() if process.exit_code is not None]
            assert self.is_finished() or not gone, f"{gone} ended\n{self.last_words()}"
            return self.is_finished() or all(now[who] > before[who] for who in now)

        wait_until(is_so, lambda: f"all to get on from {before}, not {self.marks()}\n{self.last_words()}", 120, 0.05)

    def wait_for_messages(self, count: int) -> None:
        """Wait until each actor has sent so many more messages."""
        before = self.marks()

        def is_so() -> bool:
            now = self.marks()
            return all(now[who] >= before[who] + count for who in PLAYERS)

        wait_until(is_so, lambda: f"{count} messages of each actor\n{self.last_words()}", 120, 0.05)

    def lines(self, who: str) -> int:
        return self.printed(who).count("Waiting for ")

    def lasts(self, seconds: float, told: Iterable[str]) -> None:
        """Let something last; who is `told` must print within 15 s what it waits for, if it lasts so long."""
        began = time.monotonic()
        if seconds > TOLD_S:
            self.all_tell(told)
        time.sleep(max(0.0, began + seconds - time.monotonic()))

    def all_tell(self, told: Iterable[str]) -> None:
        """Wait until these have printed what they wait for, which lasts from now on."""
        before = {who: self.lines(who) for who in told}

        def silent() -> list[str]:
            return [who for who, count in before.items() if self.lines(who) == count]

        wait_until(lambda: not silent(), lambda: f"a line of {silent()}\n{self.last_words()}", TOLD_S)


def _link_project(folder: Path) -> None:
    """Make a folder that looks like the repository's, with results and secrets of its own."""
    folder.mkdir()
    (folder / "results").mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("results", "access", ".git"):
            (folder / path.name).symlink_to(path)


def _environment() -> dict[str, str]:
    return clean_environment() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
