"""A learner as its user starts it, in one process: which runs it may take the place of, and where it may write."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import begun_as
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.learner.program import run_learner
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.small import CHAIN, ENDLESS, FREE
from tests.system import LEARNER, Run

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]
NOBODY = 65534
GOING_ON = [*ENDLESS, *FREE, "--log-interval", "1000"]


@dataclass
class User:
    """Starts learners of one server and stops each as soon as it leads its run."""

    port: int
    name: str
    folder: Path
    client: Client
    _stop: threading.Event = field(default_factory=threading.Event)

    def learn(self, folder: str, *more: str, name: str = "") -> None:
        """Start a learner with results in `folder` and stop it in good order; raises UserError if it is refused."""
        name = name or self.name
        place = ["--path-to-results", str(self.folder / folder), "--run-name", name]
        args = options.parse([*CHAIN, "--port-redis", str(self.port), *place, *more], "launch_learner.py", "")
        self._stop.clear()
        if snapshot.last_models(self.folder / folder, "chain"):
            self._stop.set()  # a fresh learner would leave without a trace
        stops = threading.Thread(target=self._stop_when_led, args=(name, read_run(self.client, name)))
        stops.start()
        try:
            with pytest.raises(Stopped):
                run_learner(args, self._stop)
        finally:
            self._stop.set()
            stops.join()

    def _stop_when_led(self, name: str, before: RunStatus | None) -> None:
        while read_run(self.client, name) == before and not self._stop.wait(0.01):
            pass
        self._stop.set()

    def refusal(self, folder: str, *more: str, name: str = "") -> str:
        with pytest.raises(UserError) as caught:
            self.learn(folder, *more, name=name)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def run_id(self) -> str:
        """Of the run that has the name on the server."""
        record = read_run(self.client, self.name)
        assert record
        return record.run_id

    def snapshot(self, folder: str) -> Path:
        return snapshot.last_models(self.folder / folder, "chain")[0]


@pytest.fixture
def user(redis_port: int, run_name: str, tmp_path: Path, client: Client) -> User:
    return User(redis_port, run_name, tmp_path, client)


def test_a_second_results_folder_keeps_off_the_first_run(user: User) -> None:
    user.learn("first")
    first = user.run_id()
    said = user.refusal("second")
    assert said.startswith("--run-name: ") and f"results are in {user.folder / 'first'} on " in said
    assert not (user.folder / "second" / "chain.json").exists(), "there is no run"
    user.learn("first")
    assert user.run_id() == first
    user.learn("second", name=f"{user.name}b")
    user.learn("third", "--abandon-other-run")
    assert user.run_id() != first
    assert f"results are in {user.folder / 'third'} on " in user.refusal("first"), "what it was abandoned for"


def test_a_run_keeps_its_name(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    other = f"{user.name}b"
    user.learn("results")
    said = user.refusal("results", name=other)
    path = user.snapshot("results")
    assert said.startswith(f"--run-name: was {user.name!r} when {path} was saved, is {other!r}; ")
    assert "--abandon-other-run" in said
    assert read_run(user.client, other) is None
    user.learn("results", "--abandon-other-run", name=other)
    assert f"Going on as run {other!r}, without the experience that Redis holds of run" in capsys.readouterr().out
    user.learn("results", name=other)
    assert user.refusal("results").startswith(f"--run-name: was {other!r} when ")


def test_a_run_keeps_its_server(
    user: User, own_server: RedisServer, own_client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = user, replace(user, port=own_server.port, client=own_client)
    first.learn("results")
    begun = first.run_id()
    said = other.refusal("results")
    assert said.startswith(f"--host-redis localhost --port-redis {other.port}: this server holds nothing of run ")
    assert f"with --host-redis localhost --port-redis {first.port}: go on there, or give --abandon-other-run" in said
    assert read_run(other.client, user.name) is None
    other.learn("results", "--abandon-other-run")
    assert "Going on without the experience" in capsys.readouterr().out
    then = other.run_id()
    assert then != begun and begun_as(then) == begun
    other.learn("results")
    assert other.run_id() == then

    said = first.refusal("results")
    assert f": this server holds an older state of run {user.name!r}, of {user.folder / 'results'} on " in said
    assert f"with --host-redis localhost --port-redis {other.port}: go on there" in said
    first.client.hset(Keys(user.name, begun).run, "status", "finished")
    assert "an older state of run" in first.refusal("results"), "also of a run that had a smaller T-max"
    assert first.run_id() == begun
    log = Keys(user.name, begun).log(0)
    first.client.xadd(log, {"m": b""})
    first.learn("results", "--abandon-other-run")
    assert not first.client.exists(log)
    assert len({begun, then, first.run_id()}) == 3
    assert " state of run" in other.refusal("results")


def test_a_server_that_has_come_back_older_is_refused(user: User) -> None:
    # Mutations: a record that does not count checkpoints; one checkpoint fewer or more that the record may lack.
    record = Keys(user.name, "").run

    def lose_checkpoints(count: int) -> None:
        user.client.hincrby(record, "saves", -count)

    for _ in range(3):
        user.learn("results")
    run_id = user.run_id()
    lose_checkpoints(1)  # a crash between a checkpoint and the next write of the server's file
    user.learn("results")
    lose_checkpoints(2)
    said = user.refusal("results")
    assert "this server holds an older state of run" in said and "was written with it: bring its file back, or" in said
    user.client.delete(record)
    assert "this server holds nothing of run" in user.refusal("results")
    user.learn("results", "--abandon-other-run")
    assert user.run_id() != run_id


@pytest.mark.slow
def test_a_run_that_goes_back_to_its_former_server_logs_its_scores(
    redis_port: int, own_server: RedisServer, run_name: str, tmp_path: Path
) -> None:
    # Mutation: a run that keeps its id, so that the actor goes on from the state that the former server holds.
    folder = tmp_path / "results"
    log = folder / "CartPole-v1.csv"

    def episodes() -> set[int]:
        records = read_records(log) if log.exists() else []
        numbers = {record.episode for record in records}
        assert len(records) == len(numbers), "each is logged once"
        return numbers

    def play(run: Run, *more: str) -> None:
        before = episodes()
        run.start(LEARNER, *more)
        run.start("0")
        wait_until(lambda: len(episodes()) >= len(before) + 60, run.last_words, 120)
        assert before < episodes()

    with Run(redis_port, run_name, folder, GOING_ON) as run:
        play(run)
        run.processes[LEARNER].kill()
    for port, former in ((own_server.port, redis_port), (redis_port, own_server.port)):
        with Run(port, run_name, folder, GOING_ON) as run:
            assert f"--port-redis {former}: go on there" in run.refusal(LEARNER)
            play(run, "--abandon-other-run")
            run.processes[LEARNER].terminate()
            assert run.processes[LEARNER].finish() == 0
    log.unlink()
    with Run(redis_port, run_name, folder, GOING_ON) as run:
        play(run)
        run.processes[LEARNER].terminate()
        _, printed, _ = run.processes[LEARNER].end()
        assert f"{log} has lost episodes: it has " in printed


@contextmanager
def without_rights() -> Iterator[None]:
    """Nobody's rights, as for root every folder is writable."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_folder_that_cannot_be_written_to_is_named(user: User) -> None:
    (user.folder / "a file").touch()
    said = user.refusal("a file")
    assert said == (
        f"--path-to-results: expected a folder to write to, got {user.folder / 'a file'} (File exists); name another, "
        "or make this one writable"
    )
    assert "(Not a directory); name another" in user.refusal("a file/results")
    with TemporaryDirectory() as name:  # pytest's own folders are closed to others as a whole
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "results").mkdir(mode=0o555)
        with without_rights():
            said = user.refusal(str(folder / "results"))
        assert f"got {folder / 'results'} (Permission denied); name another" in said
        assert list((folder / "results").iterdir()) == []
