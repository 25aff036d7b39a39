"""The benchmarks' own arithmetic, and that their commands do what they say."""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.learning import CONFIGURATIONS, summary
from benchmarks.learning_plot import LAST, draw
from benchmarks.learning_report import report, welch
from benchmarks.policies import play, random_policy

ROOT = Path(__file__).resolve().parent.parent


def a_run(game: str, seed: int, scores: list[float]) -> dict[str, Any]:
    return {
        "configuration": "cpu",
        "game": game,
        "seed": seed,
        "agent_steps": 100 * len(scores),
        "wall_clock_s": 90.0,
        "last_episodes": summary(scores[-LAST:]),
        "episodes": [[100 * (i + 1), score, 100] for i, score in enumerate(scores)],
    }


def a_baseline(game: str) -> dict[str, Any]:
    return {
        "configuration": "baselines",
        "game": game,
        "random": summary([1.0, 2.0, 3.0]),
        "best_constant_action": summary([0.0, 0.0]) | {"action": 3},
    }


def test_a_difference_counts_in_standard_errors_of_both_means() -> None:
    ours, others = [5.0, 7.0, 9.0, 30.0], [1.0, 2.0, 6.0]
    error = (statistics.variance(ours) / 4 + statistics.variance(others) / 3) ** 0.5
    expected = (statistics.mean(ours) - statistics.mean(others)) / error
    assert welch(summary(ours), summary(others)) == pytest.approx(expected)
    assert welch(summary([1.0, 1.0]), summary([0.0, 0.0])) == float("inf")


def test_the_report_has_a_line_for_each_run_and_a_panel_for_each_game(tmp_path: Path) -> None:
    runs = [
        a_run("pong", 1, [float(i) for i in range(40)]),
        a_run("pong", 2, [1.0] * 30),
        a_run("krull", 1, [2.0] * 25),
    ]
    for i, result in enumerate([*runs, a_baseline("pong"), a_baseline("krull")]):
        (tmp_path / f"{i}.json").write_text(json.dumps(result))
    lines = report(tmp_path, tmp_path / "plot.svg").splitlines()
    assert len(lines) == 2 + len(runs)
    assert "| pong, cpu | 1 | 4 000 | 1.5 | 30 ± 1 | 2 |" in lines[2]
    drawing = ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    curves = [line.attrib["points"].split() for line in drawing.iter("{http://www.w3.org/2000/svg}polyline")]
    assert sorted(map(len, curves)) == [6, 11, 21], "one point for each episode from the 20th on"


def test_a_curve_is_the_mean_of_the_last_episodes() -> None:
    drawing = draw([a_run("pong", 1, [0.0] * 20 + [100.0] * 20)], {"pong": a_baseline("pong")})
    points = ElementTree.fromstring(drawing).find(".//{http://www.w3.org/2000/svg}polyline")
    assert points is not None
    heights = [float(point.split(",")[1]) for point in points.attrib["points"].split()]
    assert heights[10] == pytest.approx((heights[0] + heights[20]) / 2, abs=0.2)


def test_what_is_committed_has_baselines_and_complete_runs() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("cpu*.json"):
        result = json.loads(path.read_text())
        assert result["agent_steps"] == CONFIGURATIONS[result["configuration"]].steps[result["game"]]
        assert result["last_episodes"] == summary([score for _, score, _ in result["episodes"][-LAST:]])
        assert not result["commit"].endswith("+changes")


def test_policies_play_whole_episodes_and_repeat_themselves() -> None:
    scores = random_policy("boxing", 5, 2)
    assert len(scores) == 2
    assert scores == random_policy("boxing", 5, 2)
    assert scores != random_policy("boxing", 6, 2)
    assert play("boxing", 5, 1, lambda actions: actions - 1) == play("boxing", 5, 1, lambda _: 17)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "gpu", "--game", "pong"], "invalid choice"),
        (["run", "cpu", "--game", "pong"], "road_runner"),
        (["run", "cpu"], "--game"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(words: list[str], told: str) -> None:
    command = [sys.executable, "-m", "benchmarks.learning", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert told in ended.stderr.splitlines()[-1]
