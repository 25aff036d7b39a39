"""The program from its command line: its files, the numbers in them, and its errors."""

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.report.exports import contents
from rainbow_iqn_apex.saber.report.inputs import read_inputs
from rainbow_iqn_apex.saber.report.program import write_report
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.sections import render_report
from rainbow_iqn_apex.saber.results.task import COLUMNS, read_scores
from tests.processes import Ended, run
from tests.saber.report.logs import figures_of, results_of, write_run

REACHED = 12_500_000  # agent steps: 50 M frames


def report(*words: object) -> Ended:
    return run("saber_report.py", *words, seconds=300)


def write_runs(folder: Path) -> None:
    for seed in (1, 2):
        write_run(folder / str(seed), "pong", seed, REACHED, episodes=3000)
        write_run(folder / str(seed), "surround", seed, REACHED if seed == 1 else REACHED // 2, episodes=3000)


def test_the_program_writes_both_files(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs")
    done = report(tmp_path / "runs", "--output", tmp_path / "new" / "out")
    out = tmp_path / "new" / "out"
    assert (done.code, done.errors) == (0, "")
    written = ["saber.html", "saber.json", "saber_figures/", "saber_tables/"]
    assert done.out == f"2 games, 4 runs: {', '.join(f'{out}/{name}' for name in written)}\n"
    assert sorted(f"{path.name}{'/' * path.is_dir()}" for path in out.iterdir()) == written
    found = json.loads((out / "saber.json").read_text())
    assert found["games"].keys() == {"pong", "surround"} and len(found["runs"]) == 4
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", (out / "saber.html").read_text())


def test_mistakes_are_one_line_and_code_2(tmp_path: Path) -> None:
    write_runs(tmp_path)
    file = tmp_path / "file"
    file.touch()
    for words, told in (
        ([tmp_path / "missing"], "no such file or folder"),
        (
            [tmp_path, "--output", file],
            f"--output: expected a folder to write to, got {file} (File exists); name another",
        ),
        ([tmp_path, "--output", "/proc/none"], "--output: expected a folder to write to, got /proc/none ("),
        ([tmp_path, "--label", "ours"], "--label: expected NAME=FOLDER with a folder that exists"),
        ([tmp_path, "--label", f"ours={tmp_path / 'nowhere'}"], "--label: expected NAME=FOLDER"),
    ):
        done = report(*words)
        assert done.code == 2
        assert re.fullmatch(r"saber_report.py: error: [^\n]+\n", done.errors) and told in done.errors
    done = report()
    assert done.code == 2 and "name folders with <game>.csv" in done.errors


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder)
    return Results(dataclasses.replace(read_inputs([folder]), left_out=["<x>.csv: not a training log"]))


def test_the_numbers_fit_together(results: Results) -> None:
    found = json.loads(json.dumps(contents(results)))
    (agent,) = found["agents"]
    pong_marks, surround_marks = (found["games"][game]["agents"][agent]["marks"] for game in ("pong", "surround"))
    at_50 = surround_marks["50000000"]
    assert at_50["saber"]["runs"][1] is None and at_50["saber"]["mean"] == at_50["saber"]["runs"][0]
    assert at_50["5min"]["mean"] == pytest.approx(at_50["saber"]["mean"] / 4)
    assert at_50["saber"]["normalised"]["world_record"] is None
    assert pong_marks["100000000"]["saber"]["runs"] == [None, None]
    assert found["aggregates"][agent]["100000000"]["saber"]["human"] is None
    human = found["aggregates"][agent]["50000000"]["saber"]["human"]
    shares = [marks["50000000"]["saber"]["normalised"]["human"] for marks in (pong_marks, surround_marks)]
    assert human["games"] == 2 and human["mean"]["value"] == pytest.approx(sum(shares) / 2)
    assert human["mean"]["low"] is None, "a game has one run there"
    assert found["aggregates"][agent]["10000000"]["saber"]["human"]["mean"]["low"] is not None
    assert found["aggregates"][agent]["50000000"]["saber"]["world_record"]["games"] == 1
    assert results.mark == 50_000_000
    same = found["published_on_the_same_games"]["50000000"]
    assert same["rainbow_noop_200m"]["human"]["games"] == 2
    assert same["rainbow_sticky_200m_dopamine"]["human"]["games"] == 1, "it has not played Surround"
    pong = read_scores()["pong"]
    share = pong.normalised(pong.published["rainbow_sticky_200m_dopamine"], "human")
    assert same["rainbow_sticky_200m_dopamine"]["human"]["mean"]["value"] == pytest.approx(share)


def test_nothing_of_a_record_becomes_part_of_the_page(tmp_path: Path) -> None:
    mark = "<img src=x onerror=alert(1)>"
    path = write_run(tmp_path / mark, "pong", 1, 12_500_000).with_suffix(".json")
    record = json.loads(path.read_text())
    (start,) = record["starts"]
    start["settings"] |= {"seed": mark, mark: mark, "agent": "rainbow", "architecture": mark, "env": mark}
    later = {"settings": start["settings"] | {"hidden_size": mark}, "versions": {mark: mark}, "commit": mark}
    path.write_text(json.dumps(record | {"game": mark, "starts": [start, later]}))
    page = render_report(results_of(tmp_path))
    assert "<img" not in page and "&lt;img" in page
    write_report([tmp_path], tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".svg", ".tex")]
    assert files and all("<img" not in path.read_text() for path in files)


def test_names_that_are_no_unicode_are_written_as_in_python(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"r\xe9sultats")
    write_run(folder, "pong", 1, 12_500_000, odd="\udce9")
    (line,) = write_report([folder], folder)
    assert r"r\udce9sultats/saber.html, " + f"{tmp_path}" + r"/r\udce9sultats/saber.json" in line
    assert r"r\udce9sultats/pong.csv" in (folder / "saber.html").read_text()
    assert json.loads((folder / "saber.json").read_text())["runs"][0]["file"].endswith(r"r\udce9sultats/pong.csv")


def test_the_page_says_what_has_learned(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 50_000, agent="rainbow", architecture="canonical", model="x.pth")
    page = render_report(results_of(tmp_path))
    assert "<p>Rainbow, canonical network, 512 hidden units, begun from weights of another run. Sticky" in page
    assert "that takes 10 M frames, of which the longest run has made 200,000, and 100 episodes by then." in page


def test_the_page_names_protocols_and_how_it_was_measured(results: Results) -> None:
    page = render_report(results)
    for column in COLUMNS.values():
        assert column.label in page and column.source in page
    for text in (
        "abc1234",
        "0.12.1",
        "50,000,000",
        "&lt;x&gt;.csv: not a training log",
        "<small>1 of 2</small>",
        "<small>3 of 4 runs</small>",
        "2 games, 4 runs; 2 of the 57 games that most papers report.",
        "on the games counted at 50 M frames, as far as they have them",
        "Sticky actions 0.25, by SABER&#x27;s rules.",
    ):
        assert text in page
    # Mutation: the games of the first reference at both profiles; Surround has no world record.
    assert re.findall(r"At 50 M frames, ([^.]*)\. Thick", page) == ["2 games", "1 game"]
    figures = figures_of(page)
    assert figures.keys() == {
        "bars-human", "bars-world_record", "profile-human", "profile-world_record", "curve-0", "curve-1"
    }  # fmt: skip
    assert all(page.count(f'id="{name}"') == 1 for name in figures)
    shown = [t["name"] for t in figures["bars-human"]["data"] if t.get("visible", True) is True]
    assert len(shown) == 2, "published agents have played 200 M frames, and are drawn when asked for"
