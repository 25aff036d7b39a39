"""A shell completes the options of a command by the script that the command prints."""

import shlex
import shutil
from pathlib import Path

import pytest

from tests.processes import run

BASH = """
source "$1"
complete=$(complete -p "$2" | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$complete"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts of two programs."""
    folder = tmp_path_factory.mktemp("scripts")
    for program in ("launch_learner.py", "saber_report.py"):
        (folder / program).write_text(run(program, "--print-completion", "bash").succeeded())
    return folder


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("launch_learner.py --memory", "--memory-capacity"),
        ("launch_learner.py --lstm", "--lstm-size"),  # of other agents than the default
        ("launch_learner.py --game pong --agent rain", "rainbow_iqn rainbow"),
        ("launch_learner.py --game po", "pong pooyan"),
        ("launch_learner.py --render --preset ''", "paper cpu fast"),
        ("launch_learner.py --config redis_r", "redis_rainbow_6379.conf"),
        ("saber_report.py --la", "--label"),
        ("saber_report.py saber_r", "saber_report.py"),
    ],
)
def test_bash_completes_options_choices_and_files(scripts: Path, line: str, expected: str) -> None:
    words = shlex.split(line)
    out = run("--norc", "-c", BASH, "bash", scripts / words[0], *words, program="bash").succeeded()
    assert out.split() == expected.split()


@pytest.mark.parametrize("shell", ["zsh", "fish", "tcsh"])
def test_other_shells_take_the_script(shell: str, tmp_path: Path) -> None:
    out = run("launch_actor.py", "--print-completion", shell).out
    assert "memory-capacity" in out
    if not (program := shutil.which(shell)):
        pytest.skip(f"there is no {shell} to read the script")
    (tmp_path / "script").write_text(out)
    assert run("-n", tmp_path / "script", program=program).code == 0


def test_an_unknown_shell_is_refused() -> None:
    (line,) = run("launch_learner.py", "--print-completion", "korn").errors.splitlines()
    assert line.startswith("launch_learner.py: error: --print-completion: invalid choice: 'korn' (choose from ")
    (line,) = run("launch_learner.py", "--print-completion").errors.splitlines()
    assert line == "launch_learner.py: error: --print-completion: expected one argument"


def test_nobody_else_waits_for_what_makes_the_script() -> None:
    look = "import sys, rainbow_iqn_apex.programs.launch, rainbow_iqn_apex.saber_report\n"
    assert run("-c", f"{look}sys.exit('shtab' in sys.modules or 'yaml' in sys.modules)").code == 0
