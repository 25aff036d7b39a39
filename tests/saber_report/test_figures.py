"""What the plots show: the numbers of `saber.json`, and published agents that can be told apart."""

import json
from dataclasses import replace

import plotly.graph_objects
import pytest

from saber.atari_scores import COLUMNS, NO_OP, REFERENCES, STICKY
from saber.report.contents import contents
from saber.report.figures import all_figures, published_styles
from saber.report.results import Results
from saber.report.runs import read_runs
from tests.saber_report.logs import write_run

REACHED = 2_500_000  # agent steps: 10 M frames


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        for game in ("pong", "surround", "skiing"):
            write_run(folder / str(seed), game, seed, REACHED, episodes=300)
    return Results(read_runs([folder])[0])


def test_the_plots_are_in_the_json(results: Results) -> None:
    figures = json.loads(json.dumps(all_figures(results)))
    found = json.loads(json.dumps(contents(results, [])))
    for number, game in enumerate(("pong", "skiing", "surround")):
        traces = {trace["name"]: trace for trace in figures[f"curve-{number}"]["data"]}
        curves = found["games"][game]["curves"]
        assert len(curves["frames"]) == len(curves["runs"][0]) > 100
        for seed, values in enumerate(curves["runs"], start=1):
            assert traces[f"seed {seed}"]["x"] == curves["frames"] and traces[f"seed {seed}"]["y"] == values
        assert None in curves["runs"][0] + curves["runs"][1], "a gap stays one"
    assert found["profiles"]["mark_frames"] == results.mark
    for reference in REFERENCES:
        traces = {trace["name"]: trace for trace in figures[f"profile-{reference}"]["data"]}
        profiles = found["profiles"]["references"][reference]
        ours = profiles["this_report"]["saber"]
        name = results.protocols.score_name(REACHED * 4, "saber")
        assert traces[name]["x"] == pytest.approx(found["profiles"]["thresholds"], rel=1e-5)
        assert traces[name]["y"] == ours["fraction"]
        assert traces["95 % interval, lower"]["y"] == ours["low"] != ours["high"]
        assert traces["95 % interval, upper"]["y"] == ours["high"]
        for column, about in COLUMNS.items():
            assert traces[about.label]["y"] == profiles["published"][column]["fraction"]
        bars = {trace["name"]: trace for trace in figures[f"bars-{reference}"]["data"]}
        for column, about in COLUMNS.items():
            shares = [found["games"][game]["published_normalised"][column][reference] for game in found["games"]]
            shown = sorted(share for share in shares if share is not None and share >= 0.001)
            assert sorted(bars[about.label]["x"] if about.label in bars else []) == pytest.approx(shown, rel=1e-5)


def test_published_scores_have_one_of_ours_at_30_minutes_beside_them(results: Results) -> None:
    # Mutation: the scores of whole episodes, which are twice as high here.
    figures, found = all_figures(results), contents(results, [])
    name = results.protocols.score_name(REACHED * 4, "30min")
    for reference in REFERENCES:
        bars = {trace["name"]: trace for trace in figures[f"bars-{reference}"]["data"]}
        marks = {game: found["games"][game]["marks"][str(REACHED * 4)] for game in found["games"]}
        shares = {game: mark["30min"]["normalised"][reference] for game, mark in marks.items()}
        assert dict(zip(bars[name]["y"], bars[name]["x"], strict=True)) == {
            game.title(): pytest.approx(share, rel=1e-5) for game, share in shares.items() if share and share >= 0.001
        }
        profile = next(trace for trace in figures[f"profile-{reference}"]["data"] if trace["name"] == name)
        ours = found["profiles"]["references"][reference]["this_report"]
        assert profile["y"] == ours["30min"]["fraction"] != ours["saber"]["fraction"]


def test_published_agents_can_be_told_apart_however_many_there_are() -> None:
    # Mutation: zip(strict=True) with as many symbols as there are columns today.
    styles = published_styles(COLUMNS.values())
    assert len({(style.marker["symbol"], style.marker["color"]) for style in styles}) == len(COLUMNS)
    assert len({(style.line["dash"], style.line["color"]) for style in styles}) == len(COLUMNS)
    column = next(iter(COLUMNS.values()))
    many = [replace(column, protocol=protocol) for protocol in (STICKY, NO_OP) for _ in range(10)]
    styles = published_styles(many)
    assert len(styles) == 20 and len({style.line["color"] for style in styles[:10]}) == 1, "a colour is a protocol"
    for style in styles:
        plotly.graph_objects.Scatter(marker=style.marker, line=style.line)  # raises on a symbol it does not know
