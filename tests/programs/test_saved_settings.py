"""The configuration file that a learner leaves beside its results: it repeats the run."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.args import ALL_GROUPS, Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.programs.learner.results_folder import describe_changes, saved_settings, write_settings
from tests.conftest import RedisServer
from tests.interface import read
from tests.processes import Processes, clean_environment, run
from tests.small import CARTPOLE, TINY


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "my.yaml"


def other_value(f: dataclasses.Field[Any]) -> str:
    """A lawful text for an option, which is not its default."""
    if choices := f.metadata["bounds"].choices:
        other: str = next(choice for choice in choices if choice != f.default)
        return other
    if isinstance(f.default, bool):
        return str(not f.default)
    if isinstance(f.default, int | float):
        bounds = f.metadata["bounds"]
        return str(f.default / 2 if isinstance(f.default, float) and f.default else min(f.default + 1, bounds.most))
    return {
        "game": "pong",
        "env": "gymnasium:CartPole-v1",
        "run_name": "no: {yes}",
        "redis_url": "redis://me@there/3",
        "replay_mix": "queue:0.5,uniform:0.5:10000",
    }.get(f.name, f"/tmp/ä {f.name} #1")


@pytest.mark.parametrize(
    "agent", [name if name == "rainbow_iqn" else pytest.param(name, marks=pytest.mark.slow) for name in AGENTS]
)
def test_the_saved_settings_give_the_same_again(file: Path, agent: str) -> None:
    # Mutation: leave an option out in `saved_settings`.
    names = {f.name: f for group in ALL_GROUPS for f in dataclasses.fields(group)}
    once = set("config model id_actor id_eval_actor id_inference abandon_other_run agent rainbow_only".split())
    own = {f.name for f in dataclasses.fields(AGENTS[agent].options)}
    common = {f.name for f in dataclasses.fields(Args)}
    for name in sorted(((own | common) & names.keys()) - once):
        words = [flag_of(name), other_value(names[name]), "--agent", agent, "--force"]
        try:
            args = read(*words)
        except UserError:
            continue  # it needs another one beside it
        write_settings(file, args)
        assert describe_changes(file, args) == "", name
        again = read("--config", file)
        assert dataclasses.replace(again, config=None) == args, name
        assert again.get(name) == args.get(name) and type(again.get(name)) is type(args.get(name))
        assert yaml.safe_load(file.read_text()) == saved_settings(args), "others read it with the same types"
        assert again.not_used() == args.not_used()


def test_what_belongs_to_a_process_is_not_saved() -> None:
    saved = saved_settings(read("--abandon-other-run", "--id-actor", "0", "--rainbow-only", "1"))
    assert not {"abandon_other_run", "id_actor", "id_eval_actor", "rainbow_only", "config"} & saved.keys()
    assert saved["agent"] == "rainbow"
    assert not {"host_redis", "port_redis", "redis_url"} & saved.keys(), "nobody has named the server"
    assert saved_settings(read("-p_red", "6379"))["port_redis"] == 6379


def test_a_run_that_began_from_a_snapshot_goes_on_without_it(file: Path, tmp_path: Path) -> None:
    # Mutation: save it with the others: evaluations with the file would evaluate it, and not what the run has learned.
    model = tmp_path / "model\nseed: 7"
    model.write_bytes(b"")
    write_settings(file, read("--model", model))
    model.unlink()
    assert (read("--config", file).model, read("--config", file).seed) == (None, read().seed)
    assert "model\\nseed: 7" in file.read_text()


def test_a_resumed_run_tells_which_settings_have_changed(file: Path) -> None:
    # Mutation: `describe_changes` after `write_settings` in `program._take_lead` (test_number_of_actors.py notices).
    assert describe_changes(file, read()) == "", "no learner has written the file yet"
    write_settings(file, read("--preset", "cpu", "--munchausen", "0"))
    assert describe_changes(file, read("--preset", "cpu", "--munchausen", "0")) == ""
    changes = describe_changes(file, read("--preset", "cpu", "--T-max", "9999", "--id-actor", "0"))
    assert changes == (
        "Changed since the run's last start: --T-max (was 50000000, is 9999), --munchausen (was 0.0, is 0.9)"
    )
    moved = describe_changes(file, read("--preset", "cpu", "--munchausen", "0", "--path-to-results", "b"))
    assert moved == "Changed since the run's last start: --path-to-results (was 'results', is 'b')"
    file.write_text("munchausen: [0.5\n")
    assert describe_changes(file, read("--preset", "cpu")) == "", "a damaged file has no settings"


SMALL = [*TINY, "1", *CARTPOLE, *"--T-max 900 --learn-start 300 --memory-capacity 2000 --log-interval 300".split()]
PASSWORD = "s3cret-of-this-test"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    server = RedisServer(tmp_path / "redis", more={"requirepass": PASSWORD})
    server.start()
    yield server
    server.stop()


@pytest.mark.slow
def test_a_run_is_repeated_by_the_file_beside_its_results(
    guarded: RedisServer, processes: Processes, tmp_path: Path, file: Path
) -> None:
    environment = clean_environment() | {"REDIS_URL": f"redis://:{PASSWORD}@localhost:{guarded.port}"}
    pairs = zip(SMALL[::2], SMALL[1::2], strict=True)
    file.write_text("".join(f"{option.removeprefix('--')}: {value}\n" for option, value in dict(pairs).items()))

    def play(*given: object) -> str:
        """Train to the end, and return the hash of the final weights."""
        learner = processes.start("launch_learner.py", *given, environment=environment)
        actor = processes.start("launch_actor.py", "--id-actor", "0", *given, environment=environment)
        for process in (actor, learner):
            out = process.end(120).succeeded()
        (weights,) = re.findall(r"Finished at T = \d+, weights ([0-9a-f]{16})\n", out)
        return str(weights)

    results = tmp_path / "results"
    given = ["--config", file, "--path-to-results", results, "--seed", "5"]
    first = play(*given)
    saved = results / "CartPole-v1.yaml"
    assert dataclasses.replace(read("--config", saved), config=None) == dataclasses.replace(read(*given), config=None)
    again = play("--config", saved, "--path-to-results", tmp_path / "again")
    assert first == again, "the same settings have given the same weights"
    assert (results / "CartPole-v1.csv").read_bytes() == (tmp_path / "again" / "CartPole-v1.csv").read_bytes()
    kept = [path.read_bytes() for path in tmp_path.glob("*/*") if path.is_file() and path.parent.name != "redis"]
    assert len(kept) > 6 and not any(PASSWORD.encode() in content for content in kept)
    assert not {"host_redis", "port_redis", "redis_url"} & yaml.safe_load(saved.read_text()).keys()
    more = ["--config", saved, "--model", results, "--evaluation-episodes", "2"]
    assert "2 episodes" in run("test_multiple_seed.py", *more, seconds=120).succeeded()
