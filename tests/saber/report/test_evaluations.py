"""Evaluations stand in the report with their protocol, apart from scores of training."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.report.exports import all_exports, contents
from rainbow_iqn_apex.saber.report.inputs import read_inputs
from rainbow_iqn_apex.saber.report.sections import render_report
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluationLog, EvaluationRecord, student_interval
from tests.saber.report.logs import results_of, write_run

RULES = {"env": "atari", "game": "pong", "proba_sticky_actions": 0.25, "disable_SABER_mode": False, "action_repeat": 4}
SCORES = [8.0, 12.0, 40.0]


def write_evaluation(
    folder: Path, model: Path, asked: int = 3, steps: int | None = None, scores: list[float] = SCORES, **rules: object
) -> Path:
    path = folder / "evaluations" / f"{model.stem}_seed7.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = EvaluationRecord(str(model), "01ab", 7, RULES | rules, "cpu", {}, ["abc"], asked, steps)
    with EvaluationLog(path, record) as log:
        for number, score in enumerate(scores):
            log.add(number, EpisodeRecord(0, 0, 0, 0, number, score / 4, score / 2, score, 9, "game_over"))
        log.write()
    return path


def test_an_evaluation_is_reported_with_all_that_it_needs(tmp_path: Path) -> None:
    # Mutations: the normal's interval; steps for frames; the scores of another column.
    write_run(tmp_path, "pong", 1, 5000, agent="rainbow_iqn", preset="cpu")
    path = write_evaluation(tmp_path, tmp_path / "last_model_pong_5000.pth", asked=100, steps=4999)
    results = results_of(tmp_path)
    (found,) = contents(results)["evaluations"]
    low, high = student_interval(SCORES) or (0, 0)
    assert found["means"]["saber"] == {
        "value": pytest.approx(20),
        "low": pytest.approx(low),
        "high": pytest.approx(high),
    }
    assert found["means"]["5min"]["value"] == pytest.approx(5)
    told = {
        key: found[key] for key in ("game", "agent", "snapshot", "frames", "seed", "episodes", "episodes_asked_for")
    }
    assert list(told.values()) == ["pong", "Rainbow-IQN, cpu", "last_model_pong_5000.pth", 4 * 4999, 7, 3, 100]
    assert found["protocol"] == "sticky actions 0.25"
    page = render_report(results)
    section = page[page.index("<h2>Evaluations") : page.index("<h2>How it was measured")]
    for text in ("20.0<", "5.0<", "3 of 100<", "19,996<", "last_model_pong_5000.pth", "sticky actions 0.25", str(path)):
        assert text in section
    assert "pong,last_model_pong_5000.pth" in all_exports(results)["evaluations.csv"]


def test_frames_and_rules_are_those_of_the_evaluation(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 5000)
    write_evaluation(tmp_path, Path("results/last_model_pong_700.pth"), proba_sticky_actions=0.0)
    write_evaluation(tmp_path, Path("results/best_model_pong.pth"), disable_SABER_mode=True)
    best, last = results_of(tmp_path).evaluations
    assert (last.frames, last.protocol) == (2800, "no sticky actions"), "by the snapshot's name"
    assert (best.frames, best.protocol) == (None, "sticky actions 0.25, cut at 30 min")


def test_a_snapshot_from_elsewhere_is_no_agents(tmp_path: Path) -> None:
    # Mutation: take the agent of the folder above.
    write_run(tmp_path, "pong", 1, 5000)
    write_evaluation(tmp_path, tmp_path / "elsewhere" / "best_model_pong.pth")
    results = results_of(tmp_path)
    assert results.agent_of(results.evaluations[0]) is None


def test_an_evaluation_moves_with_its_run(tmp_path: Path) -> None:
    # Mutation: look for the snapshot from the folder that the report is made in.
    write_run(tmp_path / "results", "pong", 1, 5000, agent="rainbow")
    write_evaluation(tmp_path / "results", Path("../last_model_pong_5000.pth"))
    (tmp_path / "results").rename(tmp_path / "old")
    write_run(tmp_path / "results", "pong", 1, 5000, agent="rainbow_iqn")
    results = results_of(tmp_path)
    assert [results.agent_of(one) for one in results.evaluations] == ["Rainbow"]


def test_a_copy_is_no_second_evaluation(tmp_path: Path) -> None:
    # Mutations: list both; compare the weights alone.
    write_run(tmp_path / "a", "pong", 1, 5000)
    first = write_evaluation(tmp_path / "a", Path("../last_model_pong_5000.pth"))
    write_evaluation(tmp_path / "a", Path("../best_model_pong.pth"), disable_SABER_mode=True)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    inputs = read_inputs([tmp_path])
    assert [one.path.parent for one in inputs.evaluations] == [first.parent] * 2
    assert f"{tmp_path}/b/evaluations/{first.name}: the same episodes as {first}" in inputs.left_out


@pytest.mark.parametrize("episodes", [2, 3])
def test_a_model_card_does_not_take_the_agent_of_an_evaluation(tmp_path: Path, episodes: int) -> None:
    # Mutations: keep the first by path; compare all scores of both.
    write_run(tmp_path, "pong", 1, 5000, agent="rainbow")
    original = write_evaluation(tmp_path, Path("../last_model_pong_5000.pth"))
    card = tmp_path / "cards" / "scores.csv"
    made = write_evaluation(tmp_path / "made", Path("model_pong_5000.pth"), scores=SCORES[:episodes])
    card.parent.mkdir()
    for suffix in (".csv", ".json"):
        made.with_suffix(suffix).rename(card.with_suffix(suffix))
    results = results_of(tmp_path)
    assert [results.agent_of(one) for one in results.evaluations] == ["Rainbow"]
    assert results.left_out == [f"{card}: the same episodes as {original}"]


def test_an_evaluation_changes_no_score_of_training(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 2_500_000, episodes=300)
    before = contents(results_of(tmp_path))
    write_evaluation(tmp_path, tmp_path / "best_model_pong.pth")
    after = contents(results_of(tmp_path))
    assert after["evaluations"] and before == after | {"evaluations": []}


def test_damaged_evaluations_are_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 5000)
    for name in ("torn", "alone", "odd"):
        write_evaluation(tmp_path, Path(f"{name}.pth"))
    folder = tmp_path / "evaluations"
    with (folder / "torn_seed7.csv").open("a") as file:
        file.write("1,2\n")
    (folder / "alone_seed7.json").unlink()
    (folder / "odd_seed7.json").write_text('{"model": 1}')
    inputs = read_inputs([tmp_path])
    assert inputs.evaluations == []
    told = "\n".join(inputs.left_out)
    for name in ("torn_seed7.csv, line 5", "alone_seed7.json", "not an evaluation's record"):
        assert name in told
    assert len(inputs.left_out) == 3


def test_a_single_episode_has_no_interval(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 5000)
    write_evaluation(tmp_path, Path("x.pth"), scores=[3.0])
    (one,) = results_of(tmp_path).evaluations
    assert one.estimates["saber"].low is None and np.isclose(one.estimates["saber"].value, 3)
