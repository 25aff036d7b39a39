"""`~` is the home folder in every option that takes a path: in the command line, in files, and from Python."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from rainbow_iqn_apex import saber_report
from rainbow_iqn_apex.args import GROUPS, read
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import flag_of
from rainbow_iqn_apex.programs import python_interface
from rainbow_iqn_apex.programs.dashboard import program as dashboard_program
from rainbow_iqn_apex.programs.start import options as start_options
from rainbow_iqn_apex.programs.sweep import program as sweep_program
from rainbow_iqn_apex.saber.report import program as report_program
from rainbow_iqn_apex.saber.report.inputs import Label
from tests.processes import ROOT

DMLAB = ["dmlab_level_cache", "dmlab_dataset"]  # texts that are paths
PATHS = [f.name for group in GROUPS for f in dataclasses.fields(group) if f.type in (Path, Path | None)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", [*PATHS, *DMLAB])
def test_a_path_may_begin_with_the_home_folder(name: str, home: Path) -> None:
    # Mutations: expand it in a Path alone; in the command line alone.
    env = ["--env", "dmlab:explore_goal_locations_small"] if name in DMLAB else []
    (home / "all.yaml").write_text(f"{name}: ~/x\n" if name != "config" else "game: pong\n")
    if name == "config":
        assert read(["--config=~/all.yaml"]).values["game"] == "pong"
        return
    for words in ([f"{flag_of(name)}=~/x"], ["--config=~/all.yaml"]):
        assert Path(read([*env, *words]).values[name]) == home / "x"
    (home / "x").mkdir()
    given = {"env": env[1]} if env else {}
    assert Path(python_interface._parse(given | {name: "~/x"}).get(name)) == home / "x"


def test_every_program_expands_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "hosts").write_text("node1 4\n")
    assert start_options.parser().parse_args(["--hosts=~/hosts"]).hosts == home / "hosts"
    swept = sweep_program.parser("").parse_args(["~/sweep.yaml", "--path-to-results=~/x"])
    assert (swept.file, swept.path_to_results) == (home / "sweep.yaml", home / "x")
    (home / "x").mkdir()
    assert dashboard_program.parse(["--path-to-results=~/x"], "")[0].path_to_results == home / "x"
    seen: list[object] = []

    def write_report(runs: list[Path], to: Path, labels: list[Label], _: object) -> list[str]:
        seen.extend([*runs, to, *(label.path for label in labels)])
        return []

    monkeypatch.setattr(report_program, "write_report", write_report)
    monkeypatch.setattr(sys, "argv", ["saber_report.py", "~/x", "--label", "a=~/x", "--output=~/y"])
    saber_report.main()
    assert seen == [home / "x", home / "y", home / "x"]


def test_no_path_of_a_command_line_is_left_as_it_is() -> None:
    folders = ("agents", "benchmarks", "environments", "memory", "monitoring", "options", "programs", "saber")
    sources = [*ROOT.glob("*.py"), *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    found = {str(path.relative_to(ROOT)) for path in sources if re.search(r"type=Path\b", path.read_text())}
    assert found == {"programs/make_redis_users.py"}, "its folder is a word of its own, which the shell expands"


def test_a_user_without_a_home_folder_is_named() -> None:
    with pytest.raises(UserError, match=r"^--record: ~nobody-here has no home folder here; give the whole path"):
        python_interface._parse({"record": "~nobody-here/x"})
    assert python_interface._parse({"record": "./~nobody-here"}).record == Path("~nobody-here").absolute()
