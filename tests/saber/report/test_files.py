"""Figures as SVG, and tables as CSV and LaTeX."""

import csv
import html
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.report.figures import all_figures
from rainbow_iqn_apex.saber.report.inputs import TABLES, Label, read_inputs
from rainbow_iqn_apex.saber.report.program import FIGURES, render_figures, render_tables, write_report
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.svg import format_tick, to_svg
from rainbow_iqn_apex.saber.report.table import Cell, Column, Row, Table, inert, to_html, to_latex
from rainbow_iqn_apex.saber.results.figure import Axis, Figure, Series, Stroke
from tests.processes import ROOT, clean_environment
from tests.saber.report.logs import ATARI57, results_of, write_run

REACHED = 2_500_000  # agent steps: 10 M frames
SVG = "{http://www.w3.org/2000/svg}"
DRAW = """
import hashlib
from pathlib import Path
from benchmarks.plots import STYLE
from rainbow_iqn_apex.saber.report.svg import Picture, drawing_style, to_svg
from rainbow_iqn_apex.saber.results.figure import Axis, Figure, Series, Stroke
axis = Axis("x", limits=(0, 4))
data = to_svg(Figure([Series("a", [0, 1], [0, 1], Stroke("#246cd8", 1))], axis, axis), 400, 300).encode()
with drawing_style(STYLE):
    figure = Picture()
    figure.add_subplot().plot([0, 1])
    figure.savefig("learning.svg", metadata={"Date": None})
print(hashlib.sha256(data + Path("learning.svg").read_bytes()).hexdigest())
"""
HOSTILE = """backend: nonsense
text.usetex: True
savefig.bbox: tight
font.size: 23
lines.linewidth: 9
axes.prop_cycle: cycler(color=["r"])
no setting
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        for game in ("pong", "surround", "skiing"):
            write_run(folder / str(seed), game, seed, REACHED, episodes=300, agent="rainbow_iqn")
            write_run(folder / "b" / str(seed), game, seed, REACHED, episodes=300, agent="rainbow")
    return results_of(folder)


def test_every_plot_is_an_svg_that_names_the_agents(results: Results) -> None:
    # Mutations: outlines in the place of texts; no salt, with which equal figures differ.
    files = render_figures(results)
    assert len(files) == len(all_figures(results)) == 7
    for text in files.values():
        texts = [element.text or "" for element in ET.fromstring(text).iter(f"{SVG}text")]
        assert any(text.startswith("Rainbow-IQN") for text in texts)
    assert render_figures(results) == files


def test_a_line_goes_through_its_points_and_profiles_have_steps() -> None:
    # Mutations: draw straight lines; join what a gap parts. A step lasts until the next point, even a missing one.
    axis = Axis(limits=(0, 4))
    for steps, parts in ((False, [2, 2]), (True, [4, 3])):
        series = Series("a", [0, 1, 2, 3, 4], [0, 4, None, 2, 2], Stroke("#246cd8", 2, steps=steps))
        text = to_svg(Figure([series], axis, axis), 400, 300)
        (drawn,) = [path for path in ET.fromstring(text).iter(f"{SVG}path") if "#246cd8" in path.get("style", "")]
        lines = [re.findall(r"[-\d.]+ [-\d.]+", part) for part in drawn.get("d", "").split("M")[1:]]
        assert [len(points) for points in lines] == parts
        first = [tuple(map(float, point.split())) for point in lines[0]]
        assert first[0][0] < first[-1][0] and first[0][1] > first[-1][1], "upwards on the picture"
        if steps:
            assert first[1] == (first[2][0], first[0][1])


def test_a_legend_shows_names_as_they_are(recwarn: pytest.WarningsRecorder) -> None:
    # Mutations: take dollars for formulas; warn of what no font has.
    names = ["&lt;i&gt;", "<b>", "$\\x^2$", "\u68cb", "_a"]
    figure = Figure([Series(name, [0], [0], Stroke("#246cd8", 1)) for name in names], Axis(), Axis())
    picture = ET.fromstring(to_svg(figure, 400, 300))
    assert set(names) <= {element.text for element in picture.iter(f"{SVG}text")}
    assert not recwarn


def test_figures_do_not_depend_on_the_users_matplotlib(tmp_path: Path) -> None:
    # Mutations of drawing.py: leave MPLBACKEND, or MATPLOTLIBRC, as it is; leave out the defaults.
    plain, hostile, unreadable = tmp_path, tmp_path / "hostile", tmp_path / "unreadable"
    for folder, content in ((hostile, HOSTILE.encode()), (unreadable, b"\xff\xfe")):
        folder.mkdir()
        (folder / "matplotlibrc").write_bytes(content)
    cases: list[tuple[Path, dict[str, str]]] = [  # a file in the working directory hides that of the variable
        (plain, {}),
        (hostile, {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}),
        (plain, {"MATPLOTLIBRC": str(unreadable)}),
    ]
    found = []
    for folder, variables in cases:
        environment = clean_environment() | {"PYTHONPATH": str(ROOT)} | variables
        command = [sys.executable, "-W", "error", "-c", DRAW]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), variables
        found.append(done.stdout)
    assert len(set(found)) == 1


def test_ticks_are_written_shortly() -> None:
    values = {0: "0", 0.5: "0.5", -20: "-20", 1500: "1.5 k", 5e7: "50 M", 2e9: "2 B"}
    assert {value: format_tick(value) for value in values} == values


def test_csv_files_hold_the_numbers_of_the_report(results: Results) -> None:
    files = render_tables(results)
    rows = list(csv.DictReader(files["games.csv"].splitlines()))
    agent = results.agents[0]
    task = next(task for task in results.tasks if task.name == "pong")
    (row,) = [r for r in rows if (r["agent"], r["game"], r["limit"]) == (agent.name, "pong", "saber")]
    assert float(row["mean"]) == pytest.approx(agent.games[task].mean(4 * REACHED, "saber"), rel=1e-9)
    assert (row["frames"], row["runs"]) == (str(4 * REACHED), "2")
    found = results.aggregates[agent.name, 4 * REACHED, "saber", "human"]
    assert found
    (row,) = [
        r for r in csv.DictReader(files["aggregates.csv"].splitlines())
        if (r["agent"], r["limit"], r["reference"]) == (agent.name, "saber", "human")
    ]  # fmt: skip
    numbers = [found.iqm.value, found.iqm.low, found.iqm.high]
    assert [row[name] for name in ("iqm", "iqm_low", "iqm_high")] == [f"{number:.10g}" for number in numbers]
    assert {row["game"] for row in csv.DictReader(files["published.csv"].splitlines())} == {
        "pong",
        "skiing",
        "surround",
    }


def test_scores_of_now_name_their_run(tmp_path: Path) -> None:
    # Mutation: a number in the place of the seed.
    logs = [write_run(tmp_path / str(seed), "pong", seed, 5000) for seed in (5, 7)]
    rows = list(csv.DictReader(render_tables(results_of(tmp_path))["now.csv"].splitlines()))
    assert [(row["seed"], row["log"]) for row in rows] == [("5", str(logs[0])), ("7", str(logs[1]))]


def test_latex_tables_have_as_many_cells_in_each_row() -> None:
    # Mutations: escape nothing; forget the longtable.
    columns = [Column("a_b", "100 %"), Column("c", "100 %"), Column("d", "x & y")]
    rows = [Row("heads", note="note"), Row("r\\w #1", [Cell("1 %", "[0, 2]"), Cell("<$5>"), Cell("–")], "{2 of 3}")]
    text = to_latex(Table("game", columns, rows))
    assert text.count("{") == text.count("}")
    lines = [line.removesuffix(" \\\\") for line in text.splitlines() if line.endswith("\\\\")]
    assert lines[0] == r" & \multicolumn{2}{c}{100 \%} & \multicolumn{1}{c}{x \& y}"
    assert lines[1] == r"game & a\_b & c & d"
    assert lines[2] == r"\multicolumn{4}{l}{\textit{heads {\tiny note}}}"
    assert lines[3] == (
        r"{}r\textbackslash{}w \#1 {\tiny \{2 of 3\}} & 1 \% {\tiny [0, 2]} & \textless{}\$5\textgreater{} & --"
    )
    assert "Needs no package" in text and "{lrrr}" in text
    long = to_latex(Table("game", columns, rows * 30))
    assert r"\usepackage{longtable}" in long and r"\begin{longtable}{lrrr}" in long and r"\endhead" in long


def test_no_name_is_an_option_of_latex() -> None:
    # Mutation: a row, or a line of a title, that begins with its text.
    columns = [Column("[a] title of many words"), Column("agent=[b]")]
    text = to_latex(Table("game", columns, [Row("[new] agent", [Cell()] * 2), Row("*", [Cell()] * 2)]))
    assert r"\shortstack{{}[a] title of \\ {}many words} & agent=[b] \\" in text
    assert not re.search(r"\\\\\s*[\[*]", text)


def test_files_of_an_older_report_do_not_stay(tmp_path: Path) -> None:
    for game in ATARI57[:2]:
        write_run(tmp_path / game, game, 1, 5000)
    write_report([tmp_path], tmp_path)
    (tmp_path / FIGURES / "notes.txt").write_text("mine")
    write_report([tmp_path / ATARI57[0]], tmp_path)
    assert sorted(path.name for path in (tmp_path / FIGURES).iterdir()) == [f"curve-{ATARI57[0]}.svg", "notes.txt"]
    assert (tmp_path / TABLES / "now.tex").exists() and not (tmp_path / TABLES / "games.csv").exists()


def test_names_of_files_are_short_in_bytes(tmp_path: Path) -> None:
    # Mutation: cut at characters, of which each has up to four bytes.
    write_run(tmp_path, "pong", 1, 5000, env=f"gymnasium:{'蛇' * 100}-v0")
    assert list(render_figures(results_of(tmp_path))) == [f"curve-gymnasium-{'蛇' * 23}.svg"]


def test_names_of_files_lead_nowhere_else(tmp_path: Path) -> None:
    path = write_run(tmp_path, "pong", 1, 5000, env="gymnasium:../../x/y")
    write_run(tmp_path / "b", "pong", 2, 5000, env="gymnasium:..-..-x:y")
    assert sorted(render_figures(results_of(path.parent))) == [
        "curve-gymnasium-..-..-x-y-1.svg",
        "curve-gymnasium-..-..-x-y.svg",
    ]


FORMULAS = ("=1+1", "+1+1", "-2+3", "@SUM(A1)", "\u200b=1", "＝1", " =1", "-")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_begins_as_a_formula_is_text_in_every_table(text: str) -> None:
    # Mutation: leave `inert` out of one kind of cell.
    columns = [Column(text, text), Column(f"{text} and more words", "b")]
    table = Table(text, columns, [Row(text, [Cell(text, text), Cell("-3.5")]), Row(text)])
    page = re.findall(r"<(?:t[hd]|small)\b[^>]*>(?:<div>)?([^<]+)", to_html(table))
    lines = to_latex(table).split("\\hline")[1:-1]
    paper = re.split(r"&|\\\\|\\multicolumn\{\d+\}\{\w+\}\{(?:\\textit\{)?|\{\\tiny |\\shortstack\{", "".join(lines))
    for cells in (map(html.unescape, page), paper):
        told = [cell.replace("{}", "").strip(" }\n") for cell in cells]
        assert told.count("-3.5") == 1
        assert not [cell for cell in told if cell != "-3.5" and re.match(r"\W*[=+\-@＝]", cell) and cell[0] != "'"]


def test_labels_and_folders_bring_no_formula_into_a_csv(tmp_path: Path) -> None:
    # Mutations: leave `inert` out; take the sign of a score for that of a formula.
    write_run(tmp_path / "a", "skiing", 1, REACHED, agent="rainbow_iqn")
    name = "=HYPERLINK(0)"
    results = Results(read_inputs([], [Label(name, tmp_path / "a")]))
    texts = {file: text for file, text in render_tables(results).items() if file.endswith(".csv")}
    rows = list(csv.DictReader(texts["runs.csv"].splitlines()))
    assert [row["agent"] for row in rows] == [f"'{name}"]
    assert all(f",{name}" not in f",{text}".replace("\n", ",") for text in texts.values())
    scores = list(csv.DictReader(texts["games.csv"].splitlines()))
    assert scores and all(float(row["mean"]) < 0 for row in scores)


@pytest.mark.parametrize("number", ["-3.5", "+12", "-1,234.5 %", "-1e-05"])
def test_a_number_is_no_formula(number: str) -> None:
    assert inert(number) == number
