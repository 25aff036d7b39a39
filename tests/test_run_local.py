"""run_local.sh: the start script by four words."""

import shutil
from pathlib import Path

import pytest

from tests.processes import ROOT, Ended, run

WORDS = "run_local.sh ENVIRONMENT AGENT ACTORS ENVIRONMENTS_PER_ACTOR [OPTION ...]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the script, beside a start script that prints each word it is given."""
    folder = tmp_path / "a copy"
    folder.mkdir()
    shutil.copy(ROOT / "run_local.sh", folder)
    (folder / "start_learning_atari.sh").write_text("printf '%s\\n' \"$@\"\n")
    return folder


def call(folder: Path, *words: str) -> Ended:
    return run(folder / "run_local.sh", *words, program="bash", cwd=folder.parent)


@pytest.mark.parametrize(
    ("environment", "option"), [("pong", "--game"), ("gymnasium:CartPole-v1", "--env"), ("atari", "--env")]
)
def test_four_words_start_a_run_and_options_may_follow(folder: Path, environment: str, option: str) -> None:
    # Mutations: give --game for all; leave out the options that follow.
    more = ["--T-max", "90000", "--path-to-results", "my results"]
    given = [option, environment, "--agent", "impala", "--nb-actor", "2", "--nb-env-per-actor", "3", *more]
    assert call(folder, environment, "impala", "2", "3", *more) == Ended(0, "".join(f"{word}\n" for word in given), "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], f"expected four words before any option, got 0: {WORDS}"),
        (["pong", "impala", "2"], f"expected four words before any option, got 3: {WORDS}"),
        (["pong", "impala", "two", "3"], f"ACTORS: expected a whole number, got 'two'; the words are {WORDS}"),
        (
            ["pong", "impala", "2", "--T-max"],
            f"ENVIRONMENTS_PER_ACTOR: expected a whole number, got '--T-max'; the words are {WORDS}",
        ),
        (["--game", "pong", "2", "3"], f"expected four words before any option: {WORDS}"),
    ],
)
def test_wrong_words_are_refused_in_a_line_and_nothing_starts(folder: Path, words: list[str], line: str) -> None:
    assert call(folder, *words) == Ended(2, "", f"run_local.sh: error: {line}\n")


def test_help(folder: Path) -> None:
    assert call(folder, "--help").succeeded().startswith(f"usage: bash {WORDS}\n")
