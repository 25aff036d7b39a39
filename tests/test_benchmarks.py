"""The benchmarks' own arithmetic, and that their commands do what they say."""

import itertools
import json
import math
import re
import statistics
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import harness
from benchmarks.__main__ import TABLE
from benchmarks.harness import Comparison, Rate, Work, compare, table
from benchmarks.learning import comparison, play, random_policy, report, summary, thinned, welch
from benchmarks.plots import LAST, MOST, curve, draw
from benchmarks.tasks import CONFIGURATIONS, GAMES, PEERS, TASKS, PeerRun, environment_of
from benchmarks.workloads import random_chunks
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Discrete
from rainbow_iqn_apex.memory.messages import encode_message
from tests.processes import ROOT, clean_environment, run

IN_THIS_ENVIRONMENT = clean_environment() | {"RAINBOW_VENV": sys.prefix}


def a_run(game: str, seed: int, scores: list[float]) -> dict[str, Any]:
    return {
        "configuration": "cpu",
        "game": game,
        "seed": seed,
        "commit": "abc1234",
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


def write(folder: Path, results: list[dict[str, Any]]) -> None:
    for i, result in enumerate(results):
        (folder / f"{i}.json").write_text(json.dumps(result))


def test_a_difference_counts_in_standard_errors_of_both_means() -> None:
    ours, others = [5.0, 7.0, 9.0, 30.0], [1.0, 2.0, 6.0]
    error = (statistics.variance(ours) / 4 + statistics.variance(others) / 3) ** 0.5
    expected = (statistics.mean(ours) - statistics.mean(others)) / error
    assert welch(summary(ours), summary(others)) == pytest.approx(expected)
    always = [summary([score, score]) for score in (0.0, 1.0)]
    assert welch(always[1], always[0]) == math.inf and welch(always[0], always[1]) == -math.inf
    assert math.isnan(welch(always[0], always[0]))
    alone = summary([3.0])
    assert alone == {"episodes": 1, "mean": 3.0, "standard_error": None}
    assert math.isnan(welch(alone, summary([1.0, 2.0])))


def test_the_report_has_a_line_for_each_run_and_a_panel_for_each_game(tmp_path: Path) -> None:
    runs = [
        a_run("pong", 1, [float(i) for i in range(40)]),
        a_run("pong", 2, [1.0] * 30),
        a_run("krull", 1, [2.0] * 25),
    ]
    others: list[dict[str, Any]] = [a_baseline("pong"), {"correlations": {}}]
    write(tmp_path, [*runs, *others])
    with pytest.raises(ValueError, match="no baselines of krull"):
        report(tmp_path, tmp_path)
    write(tmp_path, [*runs, *others, a_baseline("krull")])
    lines = report(tmp_path, tmp_path).splitlines()
    assert len(lines) == 2 + len(runs)
    assert "| pong, cpu | 1 | 4 000 | 1.5 | abc1234 | 20: 30 ± 1.3 | 2 |" in lines[2]
    first = (tmp_path / "learning.svg").read_bytes()
    report(tmp_path, tmp_path)
    assert first.startswith(b"<?xml") and (tmp_path / "learning.svg").read_bytes() == first
    figure = draw(runs, {game: a_baseline(game) for game in ("pong", "krull")})
    curves = [line for axes in figure.axes for line in axes.lines if line.get_label() == "cpu"]
    assert sorted(np.asarray(line.get_xydata()).shape[0] for line in curves) == [6, 11, 21], (
        "one point for each episode from the 20th on"
    )


def test_ours_and_a_peer_are_compared_over_the_seeds_that_both_have() -> None:
    # Mutation: compare all seeds of either.
    scores = {"ppo-pendulum": [-150.0, -170.0] * 60, "sb3-ppo": [-160.0, -200.0] * 60}
    runs = [
        a_run("pendulum", seed, scores[name]) | {"configuration": name, "wall_clock_s": seconds}
        for name, seed, seconds in (("ppo-pendulum", 1, 60.0), ("ppo-pendulum", 2, 40.0), ("sb3-ppo", 1, 120.0))
    ]
    *_, line = comparison(runs)
    assert line == (
        "| pendulum | ppo-pendulum | sb3-ppo | 1 | 100: -160 | 100: -180 | 20 (16 to 24) | 200 against 100, 2.00 (2.00 "
        "to 2.00) |"
    )
    assert comparison(runs[1:]) == []


def test_every_peer_has_our_steps_and_a_known_task() -> None:
    for tasks in PEERS.values():
        for game, peer in tasks.items():
            assert game in TASKS
            assert peer.ours is None or CONFIGURATIONS[peer.ours].steps[game] == peer.steps


def test_a_curve_is_the_mean_of_the_last_episodes() -> None:
    # Mutation: the mean of all episodes so far.
    episodes = a_run("pong", 1, [0.0] * 20 + [100.0] * 20)["episodes"]
    assert curve(episodes) == [(100 * (20 + i), 5.0 * i) for i in range(21)]


def test_a_long_run_is_drawn_with_few_dots_and_points_to_its_end() -> None:
    # Mutation: keep every so many and lose the last.
    (axes,) = draw([a_run("pong", 1, [float(i % 7) for i in range(5000)])], {"pong": a_baseline("pong")}).axes
    dots, line = np.asarray(axes.collections[0].get_offsets()), np.asarray(axes.lines[0].get_xydata())
    assert len(dots) == len(line) == MOST and dots[-1, 0] == line[-1, 0] == axes.get_xlim()[1] == 500_000
    assert max(b - a for a, b in itertools.pairwise(dots[:, 0])) < 2 * 500_000 / MOST, "spread over all steps"


def test_seeds_of_a_configuration_share_a_colour_and_a_line_of_the_legend() -> None:
    names = [f"setting-{i}" for i in range(7)]
    runs = [a_run("pong", seed, [1.0] * 25) | {"configuration": name} for name in names for seed in (1, 2)]
    figure = draw(runs, {"pong": a_baseline("pong")})
    colours = [line.get_color() for line in figure.axes[0].lines if line.get_label() in names]
    assert colours[::2] == colours[1::2] and len(set(colours)) == len(names)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*names, "random policy", "best constant action"]


def test_of_many_episodes_the_last_ones_are_kept_and_some_of_those_before() -> None:
    episodes = [[float(T), 1.0, 1.0] for T in range(100_000)]
    found = thinned(episodes, 100)
    assert found[-100:] == episodes[-100:] and 2000 < len(found) <= 3100
    assert found[:3] == [episodes[0], episodes[34], episodes[68]]
    assert thinned(episodes[:500], 100) == episodes[:500]


@pytest.mark.parametrize("scores", [[-21.0] * 25, [-21.0 + i for i in range(40)], [0.0] * 25, [5.0] * 25])
def test_a_panel_has_room_for_all_scores_the_baselines_and_zero(scores: list[float]) -> None:
    baseline = {"random": summary([-20.0, -21.0]), "best_constant_action": summary([0.0, 0.0])}
    (axes,) = draw([a_run("pong", 1, scores)], {"pong": baseline}).axes
    low, high = axes.get_ylim()
    assert low <= min([-20.5, *scores]) and max([0.0, *scores]) <= high


def test_what_is_committed_has_baselines_and_complete_runs() -> None:
    found = {path.stem: json.loads(path.read_text()) for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    runs = {name: result for name, result in found.items() if "last_episodes" in result}
    wanted = {f"cpu_{game}_123" for game in GAMES}
    assert runs.keys() >= wanted and found.keys() >= {f"baselines_{game}_123" for game in GAMES}
    for result in runs.values():
        name, game = result["configuration"], result["game"]
        configuration = PEERS[name][game] if name in PEERS else CONFIGURATIONS[name]
        assert result["agent_steps"] == (
            configuration.steps if isinstance(configuration, PeerRun) else configuration.steps[game]
        )
        scores = [score for _, score, _ in result["episodes"][-configuration.episodes :]]
        assert result["last_episodes"] == summary(scores)
        chosen = result["settings"]["env" if result["game"] in TASKS else "game"]
        assert chosen == TASKS.get(result["game"], result["game"]) and not result["commit"].endswith("+changes")


def test_what_was_learned_by_the_clock_has_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [json.loads(path.read_text()) for path in (ROOT / "benchmarks" / "results").glob("clock-*.json")]
    harness.run("clock", ["report", "--plot", str(tmp_path / "half_hour.svg")])
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    means = {}
    for one in found:
        _, _, *variant, agent = one["configuration"].split("-")
        key = one["game"], ", ".join([agent, *variant]), str(one["seed"]), f"{one['minutes']:.1f}"
        means[key] = one["evaluation"]["mean"]
    assert len(lines) == len(found) == len(means) > 0
    for game, agent, seed, minutes, _, evaluation, *_ in lines:
        score = float(evaluation.split(": ")[1].split(" ± ")[0])
        assert score == pytest.approx(means[game.removeprefix("| "), agent, seed, minutes], rel=0.06, abs=0.5)
    assert not any(run["commit"].endswith("+changes") for run in found)
    games = {run["game"].replace("_", " ") for run in found if run["configuration"] == "clock-30-rainbow_iqn"}
    for picture in (tmp_path / "half_hour.svg", ROOT / "docs" / "half_hour.svg"):
        assert set(re.findall(r">([a-z ]+) \(a human: ", picture.read_text())) == games, "one panel each"


@pytest.mark.slow
def test_policies_play_whole_episodes_and_repeat_themselves() -> None:
    def last_action(action: ActionSpec) -> int:
        assert isinstance(action, Discrete)
        return action.count - 1

    boxing = environment_of("boxing")
    scores = random_policy(boxing, 5, 2)
    assert len(scores) == 2
    assert scores == random_policy(boxing, 5, 2)
    assert scores != random_policy(boxing, 6, 2)
    assert play(boxing, 5, 1, last_action) == play(boxing, 5, 1, lambda _: 17)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learning", "run", "gpu", "--game", "pong"], "invalid choice"),
        (["learning", "run", "cpu", "--game", "pong"], "road_runner"),
        (["learning", "run", "sb3-sac", "--game", "pong"], "sb3-sac is for pendulum, halfcheetah"),
        (["learning", "run", "cpu"], "--game"),
        (["learning", "baselines", "--game", "spce_invaders"], "space_invaders"),
        (["clock", "run", "impala", "--game", "spce_invaders"], "space_invaders"),
        (["clock", "run", "impala", "--game", "krull", "--variant", "annealed"], "--variant: expected NAME=OPTIONS"),
        (["replay", "--repeats", "0"], "must be above 0"),
        (["replay", "--json", "nowhere/found.json"], "--json: there is no folder nowhere"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        harness.run(words[0], words[1:])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_the_table_lists_every_benchmark_and_is_what_the_program_shows() -> None:
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef measure(" in path.read_text()}
    assert set(TABLE) == modules
    code, out, _ = run("-m", "benchmarks")
    assert code == 0 and all(f"{name} " in out and sentence in out for name, sentence in TABLE.items())


def test_idle_threads_are_settled_before_torch_is_imported() -> None:
    # Mutation: import the harness at the top of benchmarks/__main__.py.
    program = (
        "import sys; from rainbow_iqn_apex.programs import process; from benchmarks import __main__ as program; "
        "process.prepare_processor = lambda: sys.exit(str('torch' in sys.modules)); program.main()"
    )
    assert run("-c", program)[2].strip() == "False"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_its_benchmark_says_so_in_one_line() -> None:
    code, out, errors = run("benchmarks/gpu.sh", program="bash", environment=IN_THIS_ENVIRONMENT)
    assert code == 1
    assert errors == "benchmarks/gpu.sh: PyTorch finds no CUDA device here; --device cpu tries the table without\n"
    assert "|" not in out and "passed" not in out


@pytest.mark.slow
def test_the_gpu_s_table_has_every_agent_and_its_tests_follow() -> None:
    words = ["benchmarks/gpu.sh", "--device", "cpu", "--seconds", "1"]
    code, out, errors = run(*words, program="bash", environment=IN_THIS_ENVIRONMENT, seconds=1200)
    assert code == 0, errors
    lines = [line for line in out.splitlines() if line.startswith("|")]
    lines.remove("| reinforce | cpu | reads no pictures | | | | |")
    cells = [line.split("|")[1:-1] for line in lines]
    measured = {name.strip(): [float(cell.replace(",", "")) for cell in rates] for name, _, *rates in cells[2:]}
    assert measured.keys() == AGENTS.keys() - {"reinforce"}
    assert all(min(rates) > 0 for rates in measured.values())
    assert "test_gpu.py" in out and "test_segment_tree.py" in out


def test_a_transition_takes_few_bytes() -> None:
    each = statistics.mean(len(encode_message(chunk)) / 64 for chunk in random_chunks("ms_pacman", 8))
    assert 20 < each <= 250


def test_a_ratio_is_taken_within_a_repeat() -> None:
    calls = {"first": 0, "second": 0}

    def work(name: str) -> Work:
        def count() -> None:
            calls[name] += 1

        return count

    given = Namespace(quick=True, repeats=3)
    measured = compare("x", "1/s", {name: work(name) for name in calls}, given, per_call=10)
    assert [len(rate.ratios) for rate in measured.rates] == [3, 3]
    assert measured.rates[0].ratios == (1.0, 1.0, 1.0)
    for ours, first, found in zip(
        measured.rates[1].rates, measured.rates[0].rates, measured.rates[1].ratios, strict=True
    ):
        assert found == ours / first
    assert min(calls.values()) > 9


def test_the_table_shows_rates_ratios_and_what_was_wanted() -> None:
    rates = (
        Rate("limit", "1/s", (2000.0, 4000.0, 3000.0), (1.0, 1.0, 1.0)),
        Rate("ours", "1/s", (1500.0, 2000.0, 1800.0), (0.75, 0.5, 0.6)),
    )
    lines = table(Comparison("sample", rates, {"ours": 0.55})).splitlines()
    assert lines[2] == "| limit | 3,000 1/s | 1 (1 to 1) |  |"
    assert lines[3] == "| ours | 1,800 1/s | 0.6 (0.5 to 0.75) | 0.55 |"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("benchmark", "firsts"),
    [
        ("replay", {"copying": "copy of 116 MB", "sample 32": "gather alone", "sample 512": "gather alone"}),
        ("environment", {"space_invaders": "raw ale.act", "processes": "ours, one process"}),
    ],
)
def test_a_quick_comparison_prints_tables_and_writes_them(
    benchmark: str, firsts: dict[str, str], tmp_path: Path
) -> None:
    words = ["--quick", "--repeats", "2", "--json", tmp_path / "found.json"]
    code, out, errors = run("-m", "benchmarks", benchmark, *words, seconds=300)
    assert code == 0, errors
    assert any(line.startswith("| ours |") for line in out.splitlines())
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["machine"]["cores"] > 0 and found["commit"]
    measured = {one["name"]: one for one in found["comparisons"]}
    assert measured.keys() >= firsts.keys()
    for name, one in measured.items():
        assert f"| {name} | rate" in out
        first, *others = one["rates"]
        assert first["name"] == firsts.get(name, "ours, sample") and first["ratios"] == [1.0, 1.0]
        for rate in others:
            assert rate["ratios"] == pytest.approx([a / b for a, b in zip(rate["rates"], first["rates"], strict=True)])
        assert one["wanted"].keys() <= {rate["name"] for rate in others}
