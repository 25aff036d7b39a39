"""What the plots show: the numbers of `saber.json`, and published agents that can be told apart."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from rainbow_iqn_apex.saber.report.exports import contents
from rainbow_iqn_apex.saber.report.figures import all_figures, published_styles, score_name
from rainbow_iqn_apex.saber.report.program import render_figures
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.sections import render_report
from rainbow_iqn_apex.saber.results.figure import AGENTS, Axis, Figure, Series
from rainbow_iqn_apex.saber.results.page import plain_text, to_plotly
from rainbow_iqn_apex.saber.results.task import COLUMNS, REFERENCES
from tests.saber.report.logs import plotly_figures, results_of, write_log, write_run

REACHED = 2_500_000  # agent steps: 10 M frames
SVG = "{http://www.w3.org/2000/svg}"
AGENT = "agent not recorded"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        for game in ("pong", "surround", "skiing"):
            write_run(folder / str(seed), game, seed, REACHED, episodes=300)
    return results_of(folder)


def test_the_plots_are_in_the_json(results: Results) -> None:
    figures = plotly_figures(results)
    found = json.loads(json.dumps(contents(results)))
    for number, game in enumerate(("pong", "skiing", "surround")):
        traces = {trace["name"]: trace for trace in figures[f"curve-{number}"]["data"]}
        curves = found["games"][game]["agents"][AGENT]["curves"]
        assert len(curves["frames"]) == len(curves["runs"][0]) > 100
        for seed, values in enumerate(curves["runs"], start=1):
            assert traces[f"seed {seed}"]["x"] == curves["frames"] and traces[f"seed {seed}"]["y"] == values
        assert None in curves["runs"][0] + curves["runs"][1], "a gap stays one"
    assert found["profiles"]["mark_frames"] == results.mark
    for reference in REFERENCES:
        traces = {trace["name"]: trace for trace in figures[f"profile-{reference}"]["data"]}
        assert {trace["line"]["shape"] for trace in traces.values()} == {"hv"}, "each is drawn in steps"
        profiles = found["profiles"]["references"][reference]
        ours = profiles["agents"][AGENT]["saber"]
        name = plain_text(score_name(results, results.agents[0], REACHED * 4, "saber"))
        assert traces[name]["x"] == pytest.approx(found["profiles"]["thresholds"], rel=1e-5)
        assert traces[name]["y"] == ours["fraction"]
        assert traces[f"{name}, band"]["y"] == ours["low"] != ours["high"]
        assert traces[f"{name}, band, upper"]["y"] == ours["high"]
        for column, about in COLUMNS.items():
            assert traces[about.label]["y"] == profiles["published"][column]["fraction"]
        bars = {trace["name"]: trace for trace in figures[f"bars-{reference}"]["data"]}
        for column, about in COLUMNS.items():
            shares = [found["games"][game]["published_normalised"][column][reference] for game in found["games"]]
            shown = sorted(share for share in shares if share is not None and share >= 0.001)
            assert sorted(bars[about.label]["x"] if about.label in bars else []) == pytest.approx(shown, rel=1e-5)


def test_published_scores_have_one_of_ours_at_30_minutes_beside_them(results: Results) -> None:
    # Mutation: the scores of whole episodes, which are twice as high here.
    figures, found = plotly_figures(results), contents(results)
    name = plain_text(score_name(results, results.agents[0], REACHED * 4, "30min"))
    for reference in REFERENCES:
        bars = {trace["name"]: trace for trace in figures[f"bars-{reference}"]["data"]}
        marks = {game: found["games"][game]["agents"][AGENT]["marks"][str(REACHED * 4)] for game in found["games"]}
        shares = {game: mark["30min"]["normalised"][reference] for game, mark in marks.items()}
        assert dict(zip(bars[name]["y"], bars[name]["x"], strict=True)) == {
            game.title(): pytest.approx(share, rel=1e-5) for game, share in shares.items() if share and share >= 0.001
        }
        profile = next(trace for trace in figures[f"profile-{reference}"]["data"] if trace["name"] == name)
        ours = found["profiles"]["references"][reference]["agents"][AGENT]
        assert profile["y"] == ours["30min"]["fraction"] != ours["saber"]["fraction"]


def test_published_agents_can_be_told_apart_however_many_there_are() -> None:
    # Mutation: zip(strict=True) with as many symbols as there are columns today.
    styles = published_styles(len(COLUMNS))
    for drawn in ([style.marker.colour for style in styles], [style.marker.symbol for style in styles]):
        assert len(set(drawn)) == len(COLUMNS), "in colour and in shape"
    styles = published_styles(18)
    assert len({style.marker for style in styles}) == len({style.line for style in styles}) == 18
    for style in styles:
        (drawn,) = to_plotly(Figure([Series("a", [1], [1], style.line, style.marker)], Axis(), Axis()))["data"]
        plotly.graph_objects.Scatter(drawn)  # raises on a symbol it does not know


def test_agents_of_ours_can_be_told_apart_however_many_there_are(tmp_path: Path) -> None:
    # Mutations: one symbol for all; a dash for what was cut that an agent's own line has, too.
    count = len(AGENTS) + 2
    for number in range(count):
        write_run(tmp_path / str(number), "pong", 1, REACHED, episodes=300, lr_IQN=number)
    results = results_of(tmp_path)
    figures = plotly_figures(results)
    published = {about.label for about in COLUMNS.values()}
    for name in ("bars-human", "profile-human"):
        ours = [trace for trace in figures[name]["data"] if trace["name"] not in published]
        assert len(ours) == 2 * count
        looks = [json.dumps([trace.get("marker"), trace.get("line")]) for trace in ours]
        assert len(set(looks[::2])) == count and not set(looks[::2]) & set(looks[1::2])
    dashes = [{trace["line"]["dash"] for trace in figures["profile-human"]["data"][start:16:2]} for start in (0, 1)]
    assert not dashes[0] & dashes[1]
    page = render_report(results)
    swatches = re.findall(r'<i style="([^"]+)"', page)
    assert len(swatches) == len(set(swatches)) == count


def test_long_names_are_broken_in_legends(tmp_path: Path) -> None:
    # Mutation: a name in one line, however long.
    settings: dict[str, Any] = {
        "agent": "rainbow_iqn",
        "preset": "paper",
        "an_option_of_many_words": 512,
        "synchronize_actors": 0,
    }
    for rate in (1e-4, 2e-4):
        changed = dict.fromkeys(("an_option_of_many_words", "synchronize_actors", "lr_IQN"), rate)
        for seed in (1, 2):
            write_run(tmp_path / f"{rate}{seed}", "pong", seed, REACHED, episodes=300, **settings | changed)
    results = results_of(tmp_path)
    name = results.agents[0].name
    assert len(name) > 56
    for figure in plotly_figures(results).values():
        (first, *_) = [trace["name"] for trace in figure["data"] if trace.get("showlegend", True)]
        assert first.replace("<br>", " ").startswith(name) and max(map(len, first.split("<br>"))) <= 56
    for text in render_figures(results).values():
        picture = ET.fromstring(text)
        width = float(picture.get("viewBox", "").split()[2])
        of_lines = [text for text in picture.iter(f"{SVG}text") if "translate" in text.get("transform", "")]
        assert any((text.text or "").startswith(name[:20]) for text in of_lines)
        for line in of_lines:
            (start,) = re.findall(r"translate\(([\d.]+)", line.get("transform", ""))
            assert float(start) + 6 * len(line.text or "") < width


def test_the_mean_goes_on_where_a_run_ends(tmp_path: Path) -> None:
    # Mutations: the mean where all runs have a score; where one has.
    for seed, end in enumerate((4000, 3000, 100)):
        write_log(tmp_path / str(seed), "pong", [n * end // 100 for n in range(1, 101)], [float(seed)] * 100)
    data = plotly_figures(results_of(tmp_path))["curve-0"]["data"]
    traces = {trace["name"]: dict(zip(trace["x"], trace["y"], strict=True)) for trace in data}
    mean = traces["mean of up to 3 runs"]
    assert mean[4 * 100] == 1 and mean[4 * 3000] == 0.5 and mean[4 * 4000] is None
    assert (traces["mean of up to 3 runs, band"][4 * 3000], traces["mean of up to 3 runs, band, upper"][4 * 3000]) == (
        0,
        1,
    )


def test_curves_have_lines_of_the_references(results: Results) -> None:
    # Mutation: curves alone.
    figure = all_figures(results)["curve-0"]
    assert results.tasks[0].name == "pong" and figure.title == "Pong" and figure.y.title == "score"
    assert figure.caption.startswith("dotted: random -20.7;")
    assert all(name in figure.caption for name in ("human 14.6", "world record 21.0"))
    assert to_plotly(figure)["layout"]["shapes"][0]["name"] == "random -20.7"
