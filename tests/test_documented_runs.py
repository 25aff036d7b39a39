"""Commands of the documents in their order, on a copy of the project: with fewer steps, at other ports."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents import Command, blocks, commands, documents, section
from tests.processes import Process, Processes, clean_environment
from tests.servers import BUNDLED
from tests.start_script import Workplace
from tests.test_first_command import clean_clone

pytestmark = pytest.mark.slow

TUTORIAL, README = (documents()[name] for name in ("docs/tutorial.md", "README.md"))
SMALL = "--T-max 6000 --log-interval 1000 --evaluation-interval 2000".split()
SMALL_GAME = (
    "--preset cpu --hidden-size 32 --num-tau-samples 4 --num-tau-prime-samples 4 --num-quantile-samples 4 "
    "--batch-size 8 --memory-capacity 4000 --learn-start 1000 --log-interval 400 --T-max 2400 "
    "--evaluation-interval 1000 --nb-env-per-actor 1"  # one plays, so that its episodes end before the run
).split()
SHORT = "--evaluation-episodes 2 --evaluation-workers 1".split()
# What another test or another machine is for.
LEFT_OUT = ("bash make_environment.sh", "source .venv/bin/activate", "mkdir", "scp", "ssh")


def commands_of(heading: str) -> list[Command]:
    """The commands of a section, with the options that the tutorial keeps in a variable."""
    first = TUTORIAL.split("```\nCARTPOLE=")[1].split("```")[0]
    found = commands("docs/tutorial.md", f"```\nCARTPOLE={first}```\n{section(TUTORIAL, heading)}")
    return [command for command in found if not shlex.join(command.words).startswith(LEFT_OUT)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    clean_clone(tmp_path / "clone")
    place = Workplace(tmp_path / "clone")
    place.preset = []
    yield place
    place.close()


def test_one_machine(place: Workplace, processes: Processes) -> None:
    start, look, again, evaluation, report = (list(command.words) for command in commands_of("One machine"))
    place.start(*start[2:], *SMALL)
    place.wait_for_line(r"\[actor 0\] Actor 0 plays CartPole-v1 on cpu", 120)
    place.wait_for_line(r"\[learner\] .* T = 2000 / 6000", 120)
    place.press_ctrl_c()
    assert place.exit_code(90) == 0, place.output
    assert "start_learning_atari: all is stopped and saved" in place.output
    assert start == again, "the same command resumes"
    place.start(*again[2:], *SMALL)
    assert place.exit_code(240) == 0, place.output
    assert "[learner] Resuming from results/tutorial/last_model_CartPole-v1_" in place.output
    assert "[actor 0] Actor 0 goes on after " in place.output

    results = place.folder / "results"
    assert (results / "tutorial" / "Reward_CartPole-v1.html").exists()
    for words in (look, [*evaluation, *SHORT], report):
        program = sys.executable if words[0] == "python" else words[0]
        processes.start(*words[1:], program=program, cwd=place.folder).end(120).succeeded()
    assert len(list((results / "tutorial" / "evaluations").glob("*.csv"))) == 1
    assert (results / "report" / "saber.html").exists()


class Terminal:
    """What a reader has typed into a terminal: variables, and a program."""

    def __init__(self, place: Workplace, processes: Processes, small: list[str]) -> None:
        self._place = place
        self._small = small
        self._processes = processes
        self._secrets = ""

    def type(self, command: Command, *more: str) -> Process | None:
        """Start a program, or remember the file of variables that the next one gets."""
        words = [*command.words, *more]
        if words[0] == "source":
            self._secrets = words[1]
            return None
        if words[0] == "redis-server":
            words = [BUNDLED, *words[1:], "--port", str(self._place.port)]
        elif "launch" in words[1]:
            words += [*self._small, "--port-redis", str(self._place.port)]
        source = f"source {self._secrets} && " if self._secrets else ""
        line = f"{source}exec {shlex.join(words)}".replace("'$PWD/", "$PWD/'")
        environment = clean_environment() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        return self._processes.start("-c", line, program="bash", cwd=self._place.folder, environment=environment)


def test_two_machines(place: Workplace, processes: Processes) -> None:
    terminal = Terminal(place, processes, SMALL)
    users, server, *rest = commands_of("Two machines")
    made = terminal.type(users)
    assert made and made.end().code == 0
    redis_server = terminal.type(server)
    assert redis_server
    redis_server.wait_for("Ready to accept connections")
    started = [process for command in rest if (process := terminal.type(command))]
    assert len(started) == 3, "a learner and two actors"
    for process in started:
        process.end(240).succeeded()
    scores = (place.folder / "results" / "two" / "CartPole-v1.csv").read_text().splitlines()[1:]
    assert {line.split(",")[2] for line in scores} == {"0", "1"}


def test_the_commands_of_the_readme_one_after_the_other(place: Workplace, processes: Processes) -> None:
    """The first command, then the programs one by one, in the same folder of results, which has two games then."""
    (first,) = commands("README.md", section(README, "The first command"))
    small = "--T-max 1600 --log-interval 400 --evaluation-interval 800 --nb-env-per-actor 2 --force".split()
    place.start(*first.words[2:], *small)
    assert place.exit_code(400) == 0, place.output
    terminal = Terminal(place, processes, SMALL_GAME)
    block = next(
        block for block in blocks("README.md", section(README, "The programs")) if "redis-server" in block.text
    )
    named = commands("README.md", f"```\n{block.text}\n```\n")[1:]
    server, learner, actor = (terminal.type(command) for command in named[:3])
    assert server and learner and actor
    for process in (learner, actor):
        process.end(400).succeeded()
    assert (place.folder / "results" / "space_invaders.csv").read_text().count("game_over") > 1, "episodes to report"
    shutil.copytree(place.folder / "results", place.folder / "other_results")
    evaluation, *reports = commands("README.md", section(README, "Scores to cite"))[:3]
    for command, more in (
        (named[3], SHORT),
        (evaluation, SHORT),  # its episodes are there already, without videos
        *((r, ()) for r in reports),
    ):
        typed = terminal.type(command, *more)
        assert typed
        printed = typed.end(400).succeeded()
        assert ("space_invaders is the newest run" in printed) == bool(more), "the evaluations choose, reports do not"
    assert len(list((place.folder / "films").glob("*.webm"))) >= 1
    assert (place.folder / "report" / "saber.html").exists()
