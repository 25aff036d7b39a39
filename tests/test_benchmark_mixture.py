"""The figure and the table of runs with mixed replay."""

import json
import statistics
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scipy import stats

from benchmarks.learning import summary
from benchmarks.learning_plot import LAST
from benchmarks.learning_report import report
from benchmarks.learning_tasks import CONFIGURATIONS
from benchmarks.mixture_plot import PREFIX, RULES, SMOOTHED, Setting, curve, draw_mixed, grouped, last_scores
from benchmarks.mixture_report import mixed_table

SVG = "{http://www.w3.org/2000/svg}"
PLAIN = "without sticky actions"


def a_run(configuration: str, game: str, seed: int, scores: list[float]) -> dict[str, Any]:
    return {
        "configuration": configuration,
        "game": game,
        "seed": seed,
        "commit": "abc1234",
        "agent_steps": 500_000,
        "wall_clock_s": 90.0,
        "last_episodes": summary(scores[-LAST:]),
        "episodes": [[500_000 * (i + 1) // len(scores), score, 100] for i, score in enumerate(scores)],
    }


def rising(gain: float, count: int = 3000) -> list[float]:
    return [gain * i / count + i % 3 for i in range(count)]


def experiment() -> list[dict[str, Any]]:
    """Return made-up runs of all configurations, but one seed alone of one of them."""
    names = [name for name in CONFIGURATIONS if name.startswith(PREFIX)]
    runs = [
        a_run(name, game, seed, rising(gain * (2 if seed == 7 else 1)))
        for gain, name in enumerate(names, 10)
        for game in CONFIGURATIONS[name].steps
        for seed in (123, 7)
    ]
    return [run for run in runs if (run["configuration"], run["seed"]) != ("clear-attentive-cpu", 7)]


def a_baseline(game: str) -> dict[str, Any]:
    return {"game": game, "random": summary([1.0, 2.0]), "best_constant_action": summary([0.0, 0.5])}


def panels(drawing: str) -> list[ElementTree.Element]:
    return [group for group in ElementTree.fromstring(drawing).iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]


def titles(drawing: str) -> list[str | None]:
    return [panel.findtext(f"{SVG}text") for panel in panels(drawing)]


def heights(points: str) -> list[float]:
    return [float(point.split(",")[1]) for point in points.split()]


def test_there_is_a_panel_for_each_game_and_its_rules() -> None:
    drawing = draw_mixed(experiment(), {"breakout": a_baseline("breakout")})
    assert len(drawing) < 200_000
    assert titles(drawing) == [
        f"{game}, {rules}" for game in ("breakout", "seaquest") for rules in ("SABER's rules", PLAIN)
    ]
    counts = [len(panel.findall(f"{SVG}polyline")) for panel in panels(drawing)]
    assert counts == [4, 2, 4, 2], "one curve a variant"
    dashes = [path.attrib["stroke-dasharray"] for path in panels(drawing)[0].findall(f"{SVG}path[@stroke-dasharray]")]
    assert dashes == ["6 4", "1 4"], "random policy and best constant action"
    assert not any(panel.findall(f"{SVG}path[@stroke-dasharray]") for panel in panels(drawing)[1:]), (
        "baselines are of SABER's rules, and seaquest has none"
    )


def test_a_curve_lies_in_the_band_of_its_seeds() -> None:
    # Mutation: draw the band with the lowest seed twice.
    for panel in panels(draw_mixed(experiment(), {})):
        curves = {line.attrib["stroke"]: heights(line.attrib["points"]) for line in panel.findall(f"{SVG}polyline")}
        bands = panel.findall(f"{SVG}polygon")
        assert len(bands) == 2 + ("SABER" in str(panel.findtext(f"{SVG}text"))), "all but the variant of one seed"
        for band in bands:
            edge, middle = heights(band.attrib["points"]), curves[band.attrib["fill"]]
            low, high = edge[: len(middle)], edge[: len(middle) - 1 : -1]
            assert all(a >= b >= c for a, b, c in zip(low, middle, high, strict=True)), "heights count downwards"
            assert low[-1] > middle[-1] + 5 and middle[-1] > high[-1] + 5, "seeds differ twofold"
            assert min(high) >= 30 and max(low) <= 230, "inside the axes"


def test_a_single_seed_is_dashed_and_the_legend_says_so() -> None:
    runs = experiment()
    *found, legend = ElementTree.fromstring(draw_mixed(runs, {})).findall(f"{SVG}g")
    dashed = [line.attrib["stroke"] for panel in found for line in panel.findall(f"{SVG}polyline[@stroke-dasharray]")]
    labels = [text.text for text in legend.findall(f"{SVG}text")][1:]
    assert labels == ["uniform", "elite1", "elite3", "attentive, one seed"]
    (sample,) = legend.findall(f"{SVG}path[@stroke-dasharray]")
    assert dashed == [sample.attrib["stroke"]] * 2
    fewer = [run for run in runs if (run["configuration"], run["seed"]) != ("clear-elite3-plain-cpu", 7)]
    assert ">elite3 (dashed: 1 seed)<" in draw_mixed(fewer, {})


def test_a_curve_is_the_mean_over_seeds_of_the_last_episodes() -> None:
    runs = [a_run("clear-uniform-cpu", "breakout", seed, rising(seed)) for seed in (3, 9)]
    points = curve(runs)
    assert [point.step for point in points] == [500_000 * i / 150 for i in range(1, 151)], "20 episodes end at once"
    ends = [statistics.mean(rising(seed)[-SMOOTHED:]) for seed in (3, 9)]
    assert points[-1][1:] == pytest.approx((ends[0], statistics.mean(ends), ends[1]))
    assert last_scores(runs[0], 250_000) == rising(3)[1500 - SMOOTHED : 1500]
    short = [runs[0], a_run("clear-uniform-cpu", "breakout", 5, rising(5, 2 * LAST))]
    assert curve(short)[0].step == 250_000, "the other has ended too few episodes before"
    assert curve([a_run("clear-uniform-cpu", "breakout", 1, [1.0] * (LAST - 1))]) == []


def test_the_table_compares_variants_with_uniform_replay() -> None:
    runs = [run for run in experiment() if run["game"] == "breakout"]
    _, head, _, *lines = mixed_table(runs)
    assert head.count("|") == 10 and len(lines) == 6
    uniform, elite = (grouped(runs)[Setting("breakout", RULES)][name] for name in ("uniform", "elite1"))
    assert lines[0] == ("| breakout | SABER's rules | uniform | 7, 123 | 2 000 000 | 15.8 | 20.7, 10.8 | 5.74 |  |")
    pooled = [[score for run in of for score in last_scores(run, 500_000)] for of in (elite, uniform)]
    low, high = stats.ttest_ind(*pooled, equal_var=False).confidence_interval(0.95)
    assert lines[1].endswith(f" | 1.47 ({low:.3g} to {high:.3g}) |") and low < 1.47 < high
    assert [line.split(" | ")[1:3] for line in lines[4:]] == [[PLAIN, "uniform"], [PLAIN, "elite3"]]
    assert mixed_table([]) == []


def test_the_report_draws_mixed_replay_apart(tmp_path: Path) -> None:
    others = [a_run("cpu", "pong", 1, rising(5)), a_baseline("pong"), a_baseline("breakout")]
    for i, result in enumerate([*experiment(), *others]):
        (tmp_path / f"{i}.json").write_text(json.dumps(result))
    lines = report(tmp_path, tmp_path).splitlines()
    learning, mixture = ((tmp_path / f"{name}.svg").read_text() for name in ("learning", "mixture"))
    assert titles(learning) == ["pong"] and PREFIX not in learning
    assert len(titles(mixture)) == 4
    (sticky,) = (line for line in lines if "| breakout, clear-uniform-cpu | 123 |" in line)
    (plain,) = (line for line in lines if "| breakout, clear-uniform-plain-cpu | 123 |" in line)
    assert "| 1.5 | abc1234 |" in sticky and " | 0.25 | " in sticky
    assert plain.endswith(" |  |  |  |  |"), "baselines are of SABER's rules"
    assert sum(line.startswith("| breakout | ") for line in lines) == 6
