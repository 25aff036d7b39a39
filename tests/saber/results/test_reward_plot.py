import re
import time
from typing import Any

from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.saber.results.summary import ScoreCurve
from rainbow_iqn_apex.saber.results.task import Task
from tests.saber.report.logs import figures_of
from tests.saber.results.records import page_of, stream


def figure_of(page: str) -> dict[str, Any]:
    figure: dict[str, Any] = figures_of(page)["plot"]
    return figure


def traces_of(page: str) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure_of(page)["data"]}


def test_the_page_holds_the_rolling_statistics() -> None:
    # Mutation: exchange `maxima` and `minima`, or the signs of the band.
    records = stream(3000)
    moments = ScoreCurve(records=records).moments
    traces = traces_of(page_of(records, Task("pong")))
    summaries = [moment.summary for moment in moments]
    spreads = [0 if summary.standard_deviation is None else summary.standard_deviation for summary in summaries]
    assert 500 < len(moments) <= 1000
    for trace in traces.values():
        assert trace["x"] == [moment.newest.T_actors for moment in moments]
    assert traces["mean"]["y"] == [summary.mean for summary in summaries]
    assert traces["max"]["y"] == [summary.maximum for summary in summaries]
    assert traces["min"]["y"] == [summary.minimum for summary in summaries]
    band = zip(traces["± 1 standard deviation"]["y"], traces["± 1 standard deviation, upper"]["y"], strict=True)
    for (low, high), summary, spread in zip(band, summaries, spreads, strict=True):
        if summary.standard_deviation is None:
            assert low is high is None
        else:
            assert high == summary.mean + spread
            assert low == summary.mean - spread
    assert traces["mean"]["x"][-1] == max(record.T_actors for record in records)


def test_the_hover_tells_of_the_longest_episode() -> None:
    records = [
        EpisodeRecord(4000 * (index + 1), 1000 * (index + 1), 0, 0, index, 1.0, 2.0, 10.0 * index, length, "game_over")
        for index, length in enumerate([900, 5400, 2700])
    ]
    texts = traces_of(page_of(records, Task("pong")))["mean"]["hovertext"]
    assert texts[-1].split("<br>") == [
        "<b>mean 10.0 ± 10.0</b>",
        "min 0, max 20",
        "3 episodes, mean length 3,000 agent steps",
        "longest 5,400 agent steps (6.0 min)",
        "score of the longest 10",
        "agent step 12,000",
        "learner's step 3,000",
    ]


def test_small_scores_are_not_rounded_away() -> None:
    scores = (0.04, 0.92)
    records = [
        EpisodeRecord(i + 1, i + 1, 0, 0, i, score, score, score, 100 - i, "won") for i, score in enumerate(scores)
    ]
    texts = traces_of(page_of(records, Task("maze", "minigrid")))["mean"]["hovertext"]
    assert texts[-1].split("<br>")[:2] == ["<b>mean 0.48 ± 0.62</b>", "min 0.04, max 0.92"]
    assert "score of the longest 0.04" in texts[-1]


def test_the_count_is_told_until_there_are_100() -> None:
    records = sorted(stream(101), key=lambda record: record.T_actors)
    assert "over the 37 episodes so far," in page_of(records[:37], Task("pong"))
    assert "over the last 100 of 101 training episodes," in page_of(records, Task("pong"))
    texts = traces_of(page_of(records, Task("pong")))["mean"]["hovertext"]
    assert [text.split("<br>")[2].split(" ")[0] for text in texts] == [str(min(n, 100)) for n in range(1, 102)]


def test_scores_of_evaluation_actors_have_a_line_of_their_own() -> None:
    # Mutations: mix them into the mean; an axis that leaves them out; a plot that waits for a training episode.
    records = stream(40)
    best = 2 * max(record.score_saber for record in records)
    evaluations = [
        VersionedRecord(9000 * n, 100 * n, 1, 0, n, 0.0, 0.0, best + n % 2, 5400, "stuck", n) for n in range(110)
    ]
    plain, page = (page_of(records, Task("pong"), 4, part) for part in ((), evaluations))
    before, after = traces_of(plain), traces_of(page)
    assert list(after) == [*before, "evaluation"] and {name: after[name] for name in before} == before
    assert after["evaluation"]["x"] == [record.T_actors for record in evaluations]
    assert after["evaluation"]["y"][-1] == best + 0.5, "over the last 100"
    assert after["evaluation"]["line"]["color"] not in {after[name]["line"].get("color") for name in ("mean", "max")}
    assert after["evaluation"]["hovertext"][-1].startswith("<b>evaluation</b><br><b>mean ")
    assert figure_of(page)["layout"]["yaxis"]["range"][1] > best
    assert "over the last 100 of 110 episodes, of weights up to 981,000 agent steps." in page
    assert "Evaluation:" not in plain
    alone = page_of([], Task("pong"), 4, evaluations[:1])
    assert "No training episode has ended yet. Evaluation: mean" in alone
    assert traces_of(alone)["evaluation"]["mode"] == "lines+markers"


def test_without_episodes_the_plot_is_empty_and_says_so() -> None:
    page = page_of([], Task("pong"))
    assert "No training episode has ended yet." in page
    assert all(trace["x"] == trace["y"] == [] for trace in traces_of(page).values())


def test_the_page_needs_no_network_and_survives_any_game_name() -> None:
    page = page_of(stream(3), Task("</script><b>_&"))
    assert "<h1>&lt;/Script&gt;&lt;B&gt; &amp;: training scores</h1>" in page
    assert not re.search(r"<(script|link|img)[^>]*(src|href)=", page)
    assert page.count("</script>") == 4


def test_a_long_run_is_drawn_quickly() -> None:
    records = stream(100_000)
    start = time.process_time()
    page = page_of(records, Task("pong"))
    assert time.process_time() - start < 2
    traces = traces_of(page)
    assert 900 < len(traces["mean"]["x"]) == len(traces["mean"]["y"]) <= 1000


def test_lines_of_the_games_references_are_drawn() -> None:
    # Mutation: leave them out, or draw those that would flatten the scores.
    records = [EpisodeRecord(100 * n, 0, 0, 0, n, 0.0, 0.0, -20.0 + n / 3, 9, "game_over") for n in range(100)]
    page = page_of(records, Task("pong"))
    shapes = figure_of(page)["layout"]["shapes"]
    assert [shape["name"] for shape in shapes] == ["random -20.7", "human 14.6", "world record 21.0"]
    assert [shape["y0"] for shape in shapes] == [-20.7, 14.6, 21.0]
    assert "To compare: random -20.7, human 14.6, world record 21.0." in page
    page = page_of(records, Task("alien"))
    assert [shape["name"] for shape in figure_of(page)["layout"]["shapes"]] == [], "all of them are far"
    assert "To compare: random 227.8, human 7,128, world record 251,916." in page


def test_all_that_is_drawn_is_within_the_axis() -> None:
    # Mutation: take the axis from the smallest and the largest score alone.
    records = [EpisodeRecord(100 * n, 0, 0, 0, n, 0.0, 0.0, -21.0 + (n % 5 == 0), 9, "game_over") for n in range(1, 61)]
    figure = figure_of(page_of(records, Task("pong")))
    values = [value for trace in figure["data"] for value in trace["y"] if value is not None]
    low, high = figure["layout"]["yaxis"]["range"]
    assert low < min(values) < -21 and max(values) < high


def test_another_environment_is_named_by_its_id_and_not_measured_by_ataris_rules() -> None:
    page = page_of(stream(30), Task("CartPole-v1", "gymnasium:CartPole-v1"), 1)
    text = page[page.index("<body>") : page.index("<script>") + 1]
    assert "<h1>CartPole-v1: training scores</h1>" in page
    for word in ("SABER", "frames", " min)", "To compare"):
        assert word not in text.replace('"min"', "")
    # Mutation: show what follows the colon of any environment.
    own = page_of(stream(30), Task("corridor-make", "corridor:make"), 1)
    assert "<h1>corridor:make: training scores</h1>" in own
    assert "frames" in page_of(stream(30), Task("pong"))
    assert figure_of(page_of(stream(30), Task("pong", "gymnasium:pong")))["layout"]["shapes"] == []
