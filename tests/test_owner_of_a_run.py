"""A learner as its user starts it, in one process: which runs it may take the place of, and where it may write."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

import tests.chain.environment  # noqa: F401 - adds it
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.run_status import RunStatus, read_run
from rainbow_iqn_apex.memory.errors import Stopped, UserError
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.learner.program import run_learner
from tests.small import CHAIN

NOBODY = 65534


class User:
    """Starts learners of one server and stops each as soon as it leads its run."""

    def __init__(self, port: int, name: str, folder: Path, client: Client) -> None:
        self.name, self.folder, self.client = name, folder, client
        self._stop = threading.Event()
        self._options = [*CHAIN, "--port-redis", str(port)]

    def learn(self, folder: str, *more: str, name: str = "") -> None:
        """Start a learner with results in `folder` and stop it in good order; raises UserError if it is refused."""
        name = name or self.name
        place = ["--path-to-results", str(self.folder / folder), "--run-name", name]
        args = options.parse([*self._options, *place, *more], "launch_learner.py", "")
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

    def run_id(self, name: str = "") -> str:
        """Of the run that has the name on the server."""
        record = read_run(self.client, name or self.name)
        assert record
        return record.run_id

    def snapshot(self, folder: str) -> Path:
        return snapshot.last_models(self.folder / folder, "chain")[0]

    def change_snapshot(self, folder: str, **values: object) -> None:
        saved = torch.load(self.snapshot(folder), weights_only=True) | values
        torch.save({name: value for name, value in saved.items() if value is not None}, self.snapshot(folder))


@pytest.fixture
def user(redis_port: int, run_name: str, tmp_path: Path, client: Client) -> User:
    return User(redis_port, run_name, tmp_path, client)


@pytest.mark.redis
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


@pytest.mark.redis
def test_results_that_are_moved_away_make_place_for_a_fresh_start(user: User) -> None:
    user.learn("results")
    first = user.run_id()
    (user.folder / "results").rename(user.folder / "old")
    user.learn("results")
    assert user.run_id() != first
    assert "results are in" in user.refusal("old")


@pytest.mark.redis
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


@pytest.mark.redis
def test_a_snapshot_of_an_earlier_release_has_no_name_to_keep(user: User) -> None:
    user.learn("results")
    user.change_snapshot("results", run_name=None)
    user.learn("results", name=f"{user.name}b")
    user.change_snapshot("results", run_name=[1])
    assert "it is damaged (its run has no name)" in user.refusal("results")


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


@pytest.mark.redis
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
