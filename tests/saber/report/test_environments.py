"""Reports of environments that are no games of the emulator."""

import csv
import json
import re
from html import unescape
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.report.exports import all_exports, contents
from rainbow_iqn_apex.saber.report.program import render_figures
from rainbow_iqn_apex.saber.report.sections import render_report
from rainbow_iqn_apex.saber.report.tables import run_table
from tests.saber.report.logs import results_of, write_log, write_run, write_settings
from tests.saber.report.test_evaluations import write_evaluation

SETTINGS = {"agent": "rainbow_iqn", "preset": "cpu", "game": "pong", "proba_sticky_actions": 0.25}
SETTINGS |= {
    "architecture": "canonical",
    "disable_SABER_mode": False,
    "action_repeat": 4,
    "kappa": 1.0,
    "hidden_size": 512,
}


def write_environment(folder: Path, env: str, seed: int = 1) -> None:
    name = re.sub(r"[^\w.-]", "-", env.partition(":")[2])
    ends = [10 * n - seed for n in range(1, 121)]  # with equal ones a log would be a copy of another seed's
    path = write_log(folder, name, ends, [float(n) for n in range(120)])
    write_settings(path, 1200, SETTINGS | {"env": env, "seed": seed}, 4 if env.startswith("dmlab") else 1)


def text_of(page: str) -> str:
    """What a reader sees, with the texts of the plots."""
    body = page[page.index("<title>") : page.index("<script>") if "<script>" in page else None]
    return unescape(re.sub(r"<style>.*?</style>|<(?!script)[^>]*>", " ", body, flags=re.DOTALL))


def test_a_report_of_gymnasium_has_nothing_of_atari(tmp_path: Path) -> None:
    # Mutations: the settings that do not apply; the title of a game for an id.
    write_environment(tmp_path / "1", "gymnasium:CartPole-v1")
    write_environment(tmp_path / "2", "gymnasium:CartPole-v1", seed=2)
    write_environment(tmp_path / "1", "gymnasium:ale_py:ALE/Pong-v5")
    write_evaluation(tmp_path / "1", tmp_path / "1" / "last_model_CartPole-v1_700.pth", env="gymnasium:CartPole-v1")
    results = results_of(tmp_path)
    text = text_of(render_report(results))
    for word in ("SABER", "Atari", "sticky", "30 min", "human", "record", "ale-py", "frames", "atoms", "Cartpole"):
        assert not re.search(rf"\b{word}", text.replace(str(tmp_path), "")), word
    for word in (
        "Training report",
        "CartPole-v1",
        "ale_py:ALE/Pong-v5",
        "gymnasium",
        "kappa",
        "agent steps",
        "1,200",
        "700",
    ):
        assert word in text
    assert "Rainbow-IQN, 512 hidden units." in text, "a network of convolutions needs images"
    assert "69.5" in text, "the mean of the last 100 episodes, now"
    assert sorted(render_figures(results)) == [
        "curve-gymnasium-CartPole-v1.svg",
        "curve-gymnasium-ale_py-ALE-Pong-v5.svg",
    ]
    assert json.loads(json.dumps(contents(results)))["games"].keys() == {
        "gymnasium:CartPole-v1", "gymnasium:ale_py:ALE/Pong-v5"
    }  # fmt: skip


def test_other_environments_are_counted_in_agent_steps(tmp_path: Path) -> None:
    # Mutations: `action_repeat` for other environments; four frames where there is no record.
    env = "dmlab:lt_chasm"
    write_environment(tmp_path, env)
    write_evaluation(tmp_path, tmp_path / "last_model_lt_chasm_700.pth", env=env)
    write_log(tmp_path, "CartPole-v1", [10 * n for n in range(1, 121)], [0.0] * 120)  # without a record
    results = results_of(tmp_path)
    assert [run.reached for run in results.runs] == [1200, 1200]
    assert [one.frames for one in results.evaluations] == [700]
    table = run_table(results)
    (column,) = [number for number, column in enumerate(table.columns) if column.title == "agent steps"]
    assert [row.cells[column].text for row in table.rows] == ["1,200", "1,200"]


def test_an_evaluation_of_an_entry_point_is_of_its_run(tmp_path: Path) -> None:
    # Mutation: name it by its file, as its record has no game.
    log = write_log(tmp_path, "myenv", [10 * n for n in range(1, 121)], [0.0] * 120)
    write_settings(log, 1200, {"env": "myenv", "agent": "ppo"}, 1)
    path = write_evaluation(tmp_path, Path("../last_model_myenv_1200.pth"))
    record = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(record | {"settings": {"env": "myenv"}}))
    results = results_of(tmp_path)
    (evaluation,) = results.evaluations
    assert [evaluation.task] == results.tasks and results.agent_of(evaluation) == "PPO"


def test_an_environment_has_one_key_in_all_files(tmp_path: Path) -> None:
    # Mutations: the name of the log; its title, which a log without a record shares.
    for seed, env in enumerate(("gymnasium:ALE/Pong-v5", "gymnasium:CartPole-v1", "gymnasium:CartPole-v1")):
        write_environment(tmp_path / str(seed), env, seed)
        name = env.partition(":")[2]
        write_evaluation(tmp_path / str(seed), Path(f"../{name.replace('/', '-')}_{seed}.pth"), env=env)
    (tmp_path / "2" / "CartPole-v1.json").unlink()
    results = results_of(tmp_path)
    found = contents(results)
    played = {"gymnasium:ALE/Pong-v5", "gymnasium:CartPole-v1"}
    assert found["games"].keys() == {run["game"] for run in found["runs"]} == played | {"unknown:CartPole-v1"}
    assert {one["game"] for one in found["evaluations"]} == played
    for name, text in all_exports(results).items():
        keys = {row["game"] for row in csv.DictReader(text.splitlines())}
        assert keys == (played if name == "evaluations.csv" else found["games"].keys()), name
    assert len(render_figures(results)) == 3


def test_other_environments_do_not_choose_the_mark_of_the_plots(tmp_path: Path) -> None:
    # Mutation: count the scores of all tasks.
    write_run(tmp_path, "pong", 1, 12_500_000, episodes=2400)
    for name in "AB":
        path = write_log(tmp_path, name, [100_000 * n for n in range(1, 121)], [0.0] * 120)
        write_settings(path, 12_000_000, {"env": f"gymnasium:{name}"}, 1)
    assert results_of(tmp_path).mark == 50_000_000


def test_games_and_other_environments_stand_apart(tmp_path: Path) -> None:
    write_environment(tmp_path, "gymnasium:CartPole-v1")
    settings = {name: value for name, value in SETTINGS.items() if name != "game"}
    write_run(tmp_path, "pong", 1, 2_500_000, episodes=300, **settings, env="atari")  # type: ignore[arg-type]
    results = results_of(tmp_path)
    assert [group.name for group in results.agents] == [
        "Rainbow-IQN, cpu (env gymnasium)", "Rainbow-IQN, cpu (env atari)"
    ]  # fmt: skip
    text = text_of(render_report(results))
    assert "SABER report" in text and "Other environments" in text and "CartPole-v1" in text
    assert results.protocols.label == "sticky actions 0.25", "of the games alone"
    assert [task.name for task in results.atari] == ["pong"]


def test_levels_of_dmlab30_are_compared_with_the_human(tmp_path: Path) -> None:
    # Mutation: levels that have no human score among those that have.
    for env in ("dmlab:explore_goal_locations_large", "dmlab:psychlab_visual_search", "dmlab:lt_chasm"):
        write_environment(tmp_path, env)
    results = results_of(tmp_path)
    (agent,) = results.agents
    shares = {task.name: game.human_share for task, game in agent.games.items()}
    mean = 69.5  # of the last 100 scores, 20 to 119
    explore, search = (mean - 3.14) / (194.5 - 3.14), (mean - 0.085) / (78.5 - 0.085)
    assert shares == {
        "explore_goal_locations_large": pytest.approx(explore),
        "psychlab_visual_search": pytest.approx(search),
        "lt_chasm": None,
    }
    found = agent.dmlab30
    assert found and found.levels == 2 and found.capped_mean == pytest.approx((explore + search) / 2)
    assert contents(results)["agents"][agent.name]["dmlab30"] == found._asdict()
    text = text_of(render_report(results))
    assert f"mean capped human-normalised score {50 * (explore + search):.1f} % over 2 of the 30 levels" in text
    assert f"{100 * search:.1f}" in text and "% human" in text


def test_the_humans_share_is_of_the_newest_episodes(tmp_path: Path) -> None:
    # Mutation: the score at the latest mark, which a run has left behind.
    steps, scores = [100_000 * n for n in range(1, 201)], [0.0] * 100 + [50.0] * 100
    path = write_log(tmp_path, "psychlab_visual_search", steps, scores)
    write_settings(path, 20_000_000, {"env": "dmlab:psychlab_visual_search"}, 1)
    (game,) = results_of(tmp_path).agents[0].games.values()
    assert game.mean(10_000_000, "saber") == 0
    assert game.human_share == pytest.approx((50 - 0.085) / (78.5 - 0.085))


def test_a_level_counts_for_no_more_than_the_human(tmp_path: Path) -> None:
    write_environment(tmp_path, "dmlab:lasertag_one_opponent_small")  # whose human has 12.65
    (agent,) = results_of(tmp_path).agents
    assert agent.dmlab30 == (1, 1)
