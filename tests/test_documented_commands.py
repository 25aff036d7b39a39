"""Every shell command of the documents is checked as its program would read it, or is known not to be, and why.

Whole runs: the README's table of agents in tests/test_first_command.py, its other programs and the tutorial in
tests/test_documented_runs.py, docs/agents.md in tests/test_reinforce.py.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import redis
from torch.distributed import run as torchrun

from benchmarks.__main__ import TABLE
from benchmarks.harness import make_parser
from rainbow_iqn_apex import args, run_status, saber_report
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.dashboard import program as dashboard_program
from rainbow_iqn_apex.programs.learner.budget import few_rows, share_of
from rainbow_iqn_apex.programs.start import options as start_options
from rainbow_iqn_apex.programs.sweep import program as sweep_program
from rainbow_iqn_apex.programs.sweep.plan import planned
from rainbow_iqn_apex.saber.report import program as report_program
from tests.documents import Command, blocks, commands, documents, write_modules
from tests.memory.test_redis_users import make_users
from tests.processes import ROOT

DOCUMENTS = documents()
COMMANDS = [command for document, text in DOCUMENTS.items() for command in commands(document, text)]


class Workplace(NamedTuple):
    """Where a command is checked: an empty folder, and a Redis server."""

    folder: Path
    client: redis.Redis
    patch: pytest.MonkeyPatch


Check = Callable[[tuple[str, ...], Workplace], object]  # raises for a command that its program would refuse


def start_script(words: tuple[str, ...], place: Workplace, gpus: int = 2) -> start_options.StartOptions:
    (place.folder / "hosts.txt").write_text("node1 4\n")
    return start_options.read(words[2:], {}, lambda: gpus)


def local_start(words: tuple[str, ...], place: Workplace, gpus: int = 2) -> start_options.StartOptions:
    environment, agent, actors, environments, *more = words[2:]
    option = "--env" if ":" in environment else "--game"
    own = [option, environment, "--agent", agent, "--nb-actor", actors, "--nb-env-per-actor", environments]
    return start_script(("bash", "", *own, *more), place, gpus)


def launcher(words: tuple[str, ...], _: Workplace) -> None:
    program, *given = words[1:]
    parsed = args.parse(given, program, "")
    is_actor = parsed.id_actor >= 0 or parsed.id_eval_actor >= 0
    assert is_actor == (program == "launch_actor.py"), "an actor has a number, and a learner none"
    assert parsed.id_actor < parsed.nb_actor and (parsed.inference != "local" or program != "launch_inference.py")


def several_learners(words: tuple[str, ...], place: Workplace) -> None:
    """Options of torchrun that it has, and a learner's command whose numbers can be divided among the learners."""
    start = words.index("launch_learner.py")
    given = torchrun.get_args_parser().parse_args(list(words[1:]))
    launcher(("python", *words[start:]), place)
    share_of(args.parse(words[start + 1 :], "", ""), int(given.nnodes.split(":")[0]) * int(given.nproc_per_node))


def evaluation(words: tuple[str, ...], place: Workplace) -> None:
    model = place.folder / words[words.index("--model") + 1]
    model.parent.mkdir(exist_ok=True)
    model.touch() if model.suffix else model.mkdir(parents=True, exist_ok=True)
    assert args.parse(words[2:], words[1], "").model


def installed(words: tuple[str, ...], place: Workplace) -> None:
    """A command of `pip install .` is a script under another name; completion is one of its options."""
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    script = f"python {commands[words[0]].split(':')[0].rpartition('.')[2]}.py"
    if words[1] == command_line.COMPLETION:
        parser = argparse.ArgumentParser()
        command_line.add_completion_and_version(parser)
        with pytest.raises(SystemExit) as left:
            parser.parse_args(words[1:])
        assert not left.value.code
        return
    rule = next(rule for pattern, rule in RULES if re.match(pattern, script))
    assert callable(rule)
    rule((*script.split(), *words[1:]), place)


def report(words: tuple[str, ...], place: Workplace) -> None:
    for word in words:
        if word.endswith("/"):
            (place.folder / word.rpartition("=")[2]).mkdir(parents=True, exist_ok=True)
    place.patch.setattr(sys, "argv", list(words[1:]))
    place.patch.setattr(report_program, "write_report", lambda *_: [])
    saber_report.main()


def status(words: tuple[str, ...], _: Workplace) -> None:
    run_status._parser().parse_args(words[2:])


def dashboard(words: tuple[str, ...], place: Workplace) -> None:
    """The results folder is there, as in a container that mounts it."""
    before = ("", *words)
    there = [
        str(place.folder) if option == "--path-to-results" else word
        for option, word in zip(before, words, strict=False)
    ]
    dashboard_program.parse(there[2:], "")


def sweep(words: tuple[str, ...], place: Workplace) -> None:
    """The file of the command is the one that the document shows before."""
    (text,) = [block.text for block in blocks("", DOCUMENTS["docs/programs.md"]) if block.text.startswith("games: ")]
    (place.folder / words[2]).write_text(text)
    given = sweep_program.parser("").parse_args(words[2:])
    assert len(planned(given.file, place.folder)) == 24


def requirements(words: tuple[str, ...], _: Workplace) -> None:
    assert (ROOT / words[-1]).exists()


def redis_users(words: tuple[str, ...], place: Workplace) -> None:
    assert make_users(place.folder / words[2], *words[3:])


def benchmark(words: tuple[str, ...], _: Workplace) -> None:
    if name := next(iter(words[3:]), None):
        assert name in TABLE
        make_parser(name).parse_args(words[4:])


def own_module(words: tuple[str, ...], _: Workplace) -> None:
    """A module of the repository whose text names the options and the words given."""
    module, given = words[words.index("-m") + 1], words[words.index("-m") + 2 :]
    path = ROOT / module.replace(".", "/")
    place = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    texts = [path.read_text() for path in (place.parent.glob("*.py") if given else [place])]
    assert [word for word in given if word.startswith("--") and not any(f'"{word}"' in text for text in texts)] == []


def pytest_arguments(words: tuple[str, ...], _: Workplace) -> None:
    """Variables that tests read, paths that are there, and short options."""
    texts = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    given = words[words.index("pytest") + 1 :] if "pytest" in words else words[2:]
    for word in words:
        if name := re.match(r"[A-Z_]+(?==)", word):
            assert f'"{name[0]}"' in texts, word
    for word in given:
        assert re.fullmatch("-[qsx]|--all", word) or (ROOT / word).exists(), word


def make_environment(words: tuple[str, ...], _: Workplace) -> None:
    assert {*words[2:]} <= {"--dev", "--all", "--football"}


def development_tool(words: tuple[str, ...], _: Workplace) -> None:
    subprocess.run([sys.executable, "-m", words[0], *words[1:-1], "--help"], check=True, capture_output=True)
    assert (ROOT / words[-1]).exists()


def source(words: tuple[str, ...], _: Workplace) -> None:
    users = {f"access/{user}.env" for user in ("learner", "actor", "admin")}
    assert words[1] in {".venv/bin/activate", *users}


def export(words: tuple[str, ...], _: Workplace) -> None:
    name = words[1].partition("=")[0]
    assert f'"{name}"' in (ROOT / "memory/broker/access.py").read_text()


def redis_server(words: tuple[str, ...], place: Workplace) -> None:
    """Settings that a Redis server has; those of TLS are missing where it was built without."""
    assert (ROOT / words[1]).exists()
    for setting in (word.removeprefix("--") for word in words if word.startswith("--")):
        assert setting.startswith("tls-") or place.client.config_get(setting), setting


def redis_cli(words: tuple[str, ...], place: Workplace) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    for option in ("--user", "--cacert", "-h", "-p", "--cluster-replicas"):
        parser.add_argument(option)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--cluster", nargs="+", default=[])
    given, command = parser.parse_known_args(words[1:])
    assert given.user in (None, "admin")
    if given.cluster:
        assert len(given.cluster) == 4 + 3 * int(given.cluster_replicas) and given.cluster[0] == "create"
        return
    assert command[0] in place.client.command()
    if command[:2] == ["config", "set"]:
        assert place.client.config_get(command[2])


def slurm(words: tuple[str, ...], place: Workplace) -> None:
    """Variables that the recipe reads, and options of the programs."""
    recipe, given = words[: (number := words.index("deploy/slurm/run.sbatch"))], words[number + 1 :]
    variables = dict(word.split("=") for word in recipe if re.match(r"[A-Z_]+=", word))
    text = (ROOT / "deploy" / "slurm" / "run.sbatch").read_text()
    assert [name for name in variables if f"${{{name}:" not in text] == []
    launcher(("python", "launch_learner.py", "--nb-actor", variables["ACTORS"], *given), place)


MISSING_EXTRA = re.compile("the extra .* is missing|needs an extra that is missing|No module named 'envpool'")
ONE_PLACE = "test_the_commands_of_access_make_certificates runs them"
OTHER_MACHINE = "needs another machine"
# The first that fits counts. A text tells why a command is not checked by itself.
RULES: list[tuple[str, Check | str]] = [
    (r"bash start_learning_atari\.sh( |$)", start_script),
    (r"bash run_local\.sh ", local_start),
    (r"python launch_(learner|actor|inference)\.py", launcher),
    (r"torchrun ", several_learners),
    (r"(\.venv/bin/)?python test_multiple_seed\.py", evaluation),
    (r"python saber_report\.py", report),
    (r"python run_status\.py", status),
    (r"python dashboard\.py", dashboard),
    (r"python sweep\.py", sweep),
    (r"\.venv/bin/pip install -r ", requirements),
    (r"(prometheus|tensorboard|trackio|wandb) ", "another project's program"),
    (r"apex-", installed),
    (r"(uv )?pip install (\.|--no-deps (procgen2|nle)$)", "in test_installed.py, test_procgen.py and test_nle.py"),
    (r"python programs/make_redis_users\.py", redis_users),
    (r"python -m benchmarks( |$)", benchmark),
    (r"python -m (rainbow_iqn_apex|tests\.fuzz)", own_module),
    (r"([A-Z_]+=\d+ )*python -m pytest|bash run_tests\.sh", pytest_arguments),
    (r"bash make_environment\.sh", make_environment),
    (r"bash benchmarks/gpu\.sh( --device cpu --seconds \d+)?$", "tests/test_benchmarks.py does it"),
    (r"ruff (check|format) \.$", development_tool),
    (r"mypy$", "a single word, in pyproject.toml are its files; run_tests.sh runs it"),
    (r"source ", source),
    (r"export (REDIS|INFERENCE)_", export),
    (r"redis-server redis_rainbow_6379\.conf", redis_server),
    (r"redis-cli ", redis_cli),
    (r"openssl |printf .*access/names", ONE_PLACE),
    (r"mkdir -p access$|tail -n 2 results/tutorial/", "tests/test_documented_runs.py runs it, or needs it not"),
    (r"([A-Z_]+=\S+ )*bash deploy/slurm/run\.sbatch", slurm),
    (r"bash deploy/kubernetes/make_secrets\.sh", "tests/deploy/test_kubernetes.py runs it"),
    (
        r"([A-Z_]+=\S+ )*docker compose|kubectl |RAINBOW_UID=",
        "needs an engine; tests/deploy checks what can be without",
    ),
    (r"squeue|tail -f results/pong/learner.log$", "needs a cluster; tests/deploy/test_slurm.py runs the recipe"),
    (r"(scp|ssh) ", OTHER_MACHINE),
    (r"apt-get install (chromium openssh-server|redis-server)$", "needs root; tests/test_ci.py tests how CI does it"),
]


def prepared(words: tuple[str, ...], place: Workplace) -> tuple[str, ...]:
    """A command without what the shell does with its output; a file of settings that it names is there."""
    if "--config" in words:
        file = place.folder / words[words.index("--config") + 1]
        file.parent.mkdir(exist_ok=True)
        file.write_text("game: pong\n")
    return words[: words.index(">")] if ">" in words else words


def rule_of(command: Command) -> Check | str:
    text = " ".join(command.words)
    found = [rule for pattern, rule in RULES if re.match(pattern, text)]
    assert found, f"{command}: a command of no class; add it to RULES"
    return found[0]


@pytest.fixture
def place(tmp_path: Path, redis_port: int, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for document in DOCUMENTS:
        write_modules(document, tmp_path)
    for name in [name for name in os.environ if name.startswith("REDIS_")]:
        monkeypatch.delenv(name)
    return Workplace(tmp_path, redis.Redis(port=redis_port, decode_responses=True), monkeypatch)


@pytest.mark.redis
@pytest.mark.parametrize("document", DOCUMENTS)
def test_programs_take_the_commands_of_a_document(document: str, place: Workplace) -> None:
    left_out = []
    for command in COMMANDS:
        if command.document == document and callable(rule := rule_of(command)):
            try:
                rule(prepared(command.words, place), place)
            except (UserError, AssertionError, SystemExit) as error:
                if not MISSING_EXTRA.search(str(error)):
                    raise AssertionError(f"{command}: {error}") from error
                left_out.append(str(error))
    if left_out:
        pytest.skip("; ".join(left_out))


@pytest.mark.redis
@pytest.mark.parametrize(
    "mutation",
    [
        "bash start_learning_atari.sh --game pong --nb-actors 4",
        "bash run_local.sh pong impala 2",
        "python launch_learner.py --id-actor 0",
        "python launch_actor.py --id-actor 0 --learn-starts 8000",
        "python launch_inference.py --game pong",
        "python test_multiple_seed.py --game pong",
        "python saber_report.py results/ --outputs report/",
        "python programs/make_redis_users.py access --redis-9",
        "apex-learner --print-completion korn",
        "python run_status.py --watched",
        "python sweep.py sweep.yaml --at-onces 2",
        ".venv/bin/pip install -r requirements-more.txt",
        "apex-actor --nb-actor 2",
        "python -m benchmarks learnign report",
        "python -m benchmarks learning run cpu --gmae pong",
        "python -m tests.fuzz --case 5",
        "STOPPED=3 python -m pytest tests/test_stops.py -s",
        "bash run_tests.sh tests/memories",
        "bash make_environment.sh --development",
        "source access/nobody.env",
        "export REDIS_CA_CERTIFICATES=x",
        "redis-server redis_rainbow_6379.conf --acl-file x",
        "redis-cli --user admin scripts kill",
        "redis-cli config set maxmemories 8gb",
        "RUNS=x ACTORS=64 bash deploy/slurm/run.sbatch --game pong",
        "RUN=x ACTORS=64 bash deploy/slurm/run.sbatch --gmae pong",
        "python nonsense.py",
        "rm -r results",
    ],
)
def test_a_wrong_command_is_found(mutation: str, place: Workplace) -> None:
    (command,) = commands("mutation.md", f"```\n{mutation}\n```\n")
    with pytest.raises((UserError, AssertionError, SystemExit, OSError, ValueError, redis.ResponseError)):
        rule = rule_of(command)
        assert callable(rule)
        rule(command.words, place)


@pytest.mark.redis
def test_no_command_plays_in_more_environments_than_replay_has_enough_rows_for(place: Workplace) -> None:
    # Mutation: no fewer environments of the preset where the command gives --memory-capacity.
    def settings(words: tuple[str, ...]) -> list[args.Args]:
        if words[0] == "bash":  # the preset of a machine without a GPU, too
            is_of_many = not {"--gpus", "--hosts"}.isdisjoint(words)  # another number of GPUs or actors
            read = start_script if words[1] == "start_learning_atari.sh" else local_start
            return [read(words, place, gpus).args for gpus in ((2,) if is_of_many else (0, 2))]
        alone = [] if "--nb-actor" in words else ["--preset", "cpu"]  # as README advises for its two commands
        return [args.parse([*words[2:], *alone], "", "")]

    for command in COMMANDS:
        if command.document == "docs/measured.md":  # what was measured
            continue
        if re.match(
            r"bash (start_learning_atari|run_local)\.sh |python launch_(learner|actor)\.py", " ".join(command.words)
        ):
            try:
                found = settings(prepared(command.words, place))
            except UserError as error:
                if not MISSING_EXTRA.search(str(error)):
                    raise
                continue
            for parsed in found:
                agent: Any = SimpleNamespace(buffer="replay" if parsed.own.REPLAYS else "queue")
                assert few_rows(parsed, agent) == "", command


def test_every_rule_is_of_use() -> None:
    texts = [" ".join(command.words) for command in COMMANDS]
    assert [pattern for pattern, _ in RULES if not any(re.match(pattern, text) for text in texts)] == []
