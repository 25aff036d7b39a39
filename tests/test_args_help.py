"""What --help says, and how a program refuses."""

import dataclasses
import os
import re
from collections.abc import Callable

import pytest

from rainbow_iqn_apex.agents.rainbow_iqn.options import RainbowIqnOptions
from rainbow_iqn_apex.args import GROUPS, Args
from rainbow_iqn_apex.common.option import flag_of
from tests.interface import FLAGS, INTERFACE, agent_of, errors_of, read
from tests.processes import ROOT, run

Help = Callable[..., str]


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str]) -> Help:
    def words_of(*words: str) -> str:
        """Return the words of the help that a command line asks for."""
        with pytest.raises(SystemExit) as left:
            read(*words)
        assert left.value.code == 0
        return " ".join(capsys.readouterr().out.split())

    return words_of


def test_help_mentions_everything(help_of: Help) -> None:
    text = help_of("--help", "--sede", "4")
    assert text.startswith("usage: launch_learner.py [options] Train.")
    for group in (*GROUPS, RainbowIqnOptions):
        assert f" {group.__doc__}: " in text
        for f in dataclasses.fields(group):
            value = r"\[\w+\]" if f.metadata["flag"] else r"\w+"
            assert re.search(rf" {flag_of(f.name)} {value}[ ,]", text), f"{f.name}: flags alone may go without a value"
            assert f.metadata["help"] in text
    assert "-p_red" in text
    assert text.endswith("2 bad command, or diverged; 3 inference server lost in lockstep.")
    assert "papers give frames" in text  # the unit that everybody trips over
    options = {f.name for group in GROUPS for f in dataclasses.fields(group)}
    assert options | {"own", "environment", "given", "file_keys", "unused"} == {
        f.name for f in dataclasses.fields(Args)
    }
    assert "--atoms" not in text, "an option of another agent"
    assert "evaluations/<game>_<snapshot>_seed<seed>.csv" in text


@pytest.mark.parametrize(
    "words", ["launch_learner.py --agent ppo --help", "saber_report.py --help", "-m rainbow_iqn_apex"]
)
def test_help_without_docstrings(words: str) -> None:
    # Mutations: a class's signature, which dataclasses write, as heading; the text of a missing docstring.
    out = run(*words.split(), environment=os.environ | {"PYTHONOPTIMIZE": "2"}, fresh=True).succeeded()
    assert "None" not in out and "(agent:" not in out and "Options(" not in out
    if "learner" in words:
        titles = re.findall(r"(?m)^(\w[\w ]*):$", out)
        assert titles[1:] == [
            "run",
            "environment",
            "replay",
            "learning",
            "result",
            "sink",
            "machine",
            "inference",
            "ppo",
        ]


def test_no_missing_docstring_becomes_a_text() -> None:
    sources = [path for path in ROOT.rglob("*.py") if ".venv" not in path.parts and "tests" not in path.parts]
    assert len(sources) > 300
    assert [str(path) for path in sources if re.search(r"str\([\w.]*__doc__\)", path.read_text())] == []


def test_every_default_stands_in_the_help(help_of: Help) -> None:
    text = help_of("-h")
    for option, default in INTERFACE:
        if agent_of(option):
            continue
        shown = "none" if default is None else "off" if option in FLAGS else default
        told = re.search(rf" {option} (?:\[\w+\]|[A-Z]+),? (.*?) --", f"{text} --")
        assert told and f"[{shown}]" in told[1], option


def test_the_help_is_the_chosen_agent_s(help_of: Help) -> None:
    for words in (["--agent", "rainbow", "--help"], ["--help", "--rainbow-only", "1"]):
        text = help_of(*words)
        assert "--atoms INT" in text and "--kappa" not in text
    told = help_of("--agent", "r2d2", "--help")
    assert "samples of an update [64]" in told, "the agent's own default of a common option"
    (error,) = errors_of("--help", "--agent", "dqn")
    assert error.startswith("--agent: expected rainbow_iqn, ")


@pytest.mark.parametrize("options", [["--help"], ["--batch-size", "0", "--sede", "4"], ["--agent", "dqn"]])
@pytest.mark.parametrize(
    "program", ["launch_learner.py", "launch_actor.py", "launch_inference.py", "test_multiple_seed.py"]
)
def test_help_and_refusals_come_before_the_slow_imports(program: str, options: list[str]) -> None:
    # Mutation: import one of these packages anywhere on the way of a command line.
    code = f"""
import atexit, runpy, sys
sys.argv = {[program, *options]!r}
atexit.register(lambda: print(*{{"torch", "redis", "zstandard"}} & {{*sys.modules}}, sep=", "))
runpy.run_path({program!r}, run_name="__main__")
"""
    ended = run("-c", code)
    lines = ended.errors.splitlines()
    assert (ended.code, len(lines)) == ((0, 0) if options == ["--help"] else (2, len(options) // 2))
    assert all(line.startswith(f"{program}: error: --") for line in lines)
    assert ended.out.splitlines()[-1] == ""


@pytest.mark.parametrize(
    "options",
    [
        ["--redis-url", "redis://learner:s3cret@localhost:7000"],
        ["--redis-url=redis://:s3cret@localhost"],
        ["--redis-ulr=redis://:s3cret@localhost"],
        ["redis://:s3cret@localhost"],
        ["--host-redis", "redis://:s3cret@localhost"],
        ["--port-redis", "redis://:s3cret@localhost"],
        ["--game", "redis://:s3cret@localhost"],
    ],
)
def test_a_password_given_by_mistake_is_not_printed(options: list[str]) -> None:
    (line,) = run("launch_learner.py", *options).refused()
    assert "s3cret" not in line
