"""Agents side by side: which runs are of one agent, what each is called, and over which games they are compared."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex import args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.saber.report.aggregates import aggregate
from rainbow_iqn_apex.saber.report.exports import contents
from rainbow_iqn_apex.saber.report.inputs import Label, parse_label, read_inputs
from rainbow_iqn_apex.saber.report.results import WHOLE, Results, differences, group_runs
from rainbow_iqn_apex.saber.report.sections import render_report
from rainbow_iqn_apex.saber.report.table import to_html
from rainbow_iqn_apex.saber.report.tables import aggregate_table, game_table
from rainbow_iqn_apex.saber.results.task import Task
from tests.processes import run
from tests.saber.report.logs import plotly_figures, results_of, write_log, write_run

REACHED = 2_500_000  # agent steps: 10 M frames
IQN: dict[str, Any] = {"agent": "rainbow_iqn", "preset": "cpu", "lr_IQN": 1e-4, "nb_actor": 1}
OPTIONS = {"rainbow_iqn": frozenset({"lr_IQN"}), "rainbow": frozenset({"lr_Rainbow"})}
RAINBOW: dict[str, Any] = {"agent": "rainbow", "preset": "cpu", "lr_Rainbow": 1e-5, "nb_actor": 4}


def names_of(folder: Path, labels: tuple[Label, ...] = ()) -> list[str]:
    return [group.name for group in group_runs(read_inputs([folder], labels).runs, OPTIONS)]


def test_agents_are_named_by_algorithm_and_preset(tmp_path: Path) -> None:
    # Mutation: compare all settings, or refuse those that differ.
    for seed in (1, 2):
        for game in ("pong", "alien"):
            write_run(tmp_path / "a" / str(seed), game, seed, 5000, **IQN, T_max=seed)
            write_run(tmp_path / "b" / str(seed), game, seed, 5000, **RAINBOW)
    groups = group_runs(read_inputs([tmp_path / "b", tmp_path / "a"]).runs, OPTIONS)
    assert [group.name for group in groups] == ["Rainbow, cpu", "Rainbow-IQN, cpu"], "in the order of the command"
    assert [len(group.runs) for group in groups] == [4, 4]
    assert differences(groups) == {
        "agent": ["Rainbow", "Rainbow-IQN"],
        "lr_IQN": ["–", "0.0001"],
        "lr_Rainbow": ["1e-05", "–"],
    }


def test_equal_names_tell_what_differs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "pong", 1, 5000, **IQN)
    write_run(tmp_path / "b", "pong", 1, 5000, **IQN | {"lr_IQN": 2e-4})
    assert names_of(tmp_path) == ["Rainbow-IQN, cpu (lr_IQN 0.0001)", "Rainbow-IQN, cpu (lr_IQN 0.0002)"]
    write_run(tmp_path / "c", "pong", 1, 5000, **IQN | {"a": 1, "multi_step": 9, "hidden_size": 9, "lr_IQN": 3})
    assert names_of(tmp_path)[2] == "Rainbow-IQN, cpu (a 1, hidden_size 9, and 2 more)"
    assert len(set(names_of(tmp_path))) == 3


def test_labels_name_folders_and_keep_them_apart(tmp_path: Path) -> None:
    # Mutations: the label of the folder above; the copies of other labels left out.
    for folder in ("a", "a/deep", "b"):
        write_run(tmp_path / folder, "pong", 1, 5000, **IQN)
    labels = (Label("first", tmp_path / "b"), Label("all of a", tmp_path / "a"), Label("deep", tmp_path / "a" / "deep"))
    assert names_of(tmp_path, labels) == ["first", "all of a", "deep"], "of equal settings, and even of equal episodes"
    same = (Label("one", tmp_path / "a"), Label("one", tmp_path / "b"))
    write_run(tmp_path / "b", "pong", 2, 5000, **IQN)
    (group,) = group_runs(read_inputs([], same).runs)
    assert group.name == "one" and len(group.runs) == 2, "labelled folders need not be named once more"


def test_one_label_for_other_settings_names_them(tmp_path: Path) -> None:
    write_run(tmp_path / "1", "pong", 1, 5000, **IQN)
    write_run(tmp_path / "2", "pong", 2, 5000, **RAINBOW)
    found = names_of(tmp_path, (Label("mine", tmp_path),))
    assert found == ["mine (agent Rainbow-IQN)", "mine (agent Rainbow)"]


def test_a_log_with_other_line_ends_is_named(tmp_path: Path) -> None:
    # Mutations: take it for no log; name its header, which looks right.
    write_run(tmp_path, "pong", 1, 5000, **IQN)
    log = tmp_path / "pong.csv"
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(
        UserError, match=r"pong\.csv: its lines end in CRLF, as some editors write them; convert it to LF"
    ):
        read_inputs([tmp_path], ())


def test_a_label_is_split_where_a_folder_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=0.1").mkdir()
    assert parse_label("lr=0.1=lr=0.1") == Label("lr=0.1", Path("lr=0.1"))
    for text in ("name", "=lr=0.1", "name=", "name=nowhere", "a\nb=lr=0.1"):
        with pytest.raises(UserError, match="--label: expected NAME=FOLDER"):
            parse_label(text)
    with pytest.raises(UserError, match="a name of at most 60 characters, got 61"):
        parse_label(f"{'x' * 61}=lr=0.1")


def test_a_label_without_a_log_of_its_own_tells_why(tmp_path: Path) -> None:
    # Mutation: ask for a run, which a log without an episode is not yet.
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"--label: 'name': there is no training log in .*empty"):
        read_inputs([], [Label("name", tmp_path / "empty")])
    log = write_run(tmp_path / "a", "pong", 1, 5000)
    for path in (log, log.parent):
        with pytest.raises(UserError, match=r"--label: 'same': all logs in .* have a label already"):
            read_inputs([], [Label("same", log.parent), Label("same", path)])
    fresh = write_log(tmp_path / "b", "pong", [], [])
    inputs = read_inputs([tmp_path / "a"], [Label("name", tmp_path / "b")])
    assert len(inputs.runs) == 1 and inputs.left_out == [f"{fresh}: no episode has ended yet"]


def test_a_setting_that_not_all_record_is_compared_among_those_that_do(tmp_path: Path) -> None:
    # Mutations: compare all names; put a run that fits two agents into the first.
    write_run(tmp_path / "a", "alien", 1, 5000)
    write_run(tmp_path / "b", "pong", 2, 6000, later_option=0)
    (group,) = group_runs(read_inputs([tmp_path]).runs)
    assert len(group.runs) == 2
    write_run(tmp_path / "c", "qbert", 2, 6000, later_option=1)
    assert [name.partition(" (")[2] for name in names_of(tmp_path)] == [
        "later_option not recorded)", "later_option 0)", "later_option 1)"
    ]  # fmt: skip


def test_runs_that_record_the_same_are_of_one_agent(tmp_path: Path) -> None:
    # Mutation: compare a run with all that the agent's runs record together.
    for name, settings in {"1": {"old": 1}, "2": {"new": 1}, "3": {"new": 2}, "4": {"old": 1}}.items():
        write_run(tmp_path / name, "pong", int(name), 5000, **settings)
    groups = group_runs(read_inputs([tmp_path]).runs)
    (together,) = [group for group in groups if any(run.path.parent.name == "1" for run in group.runs)]
    assert "4" in [run.path.parent.name for run in together.runs]


def test_what_another_agent_does_not_have_is_a_dash_and_folded(tmp_path: Path) -> None:
    # Mutations: no options from saber_report.py; a dash for all that is not recorded.
    lost = {("discount", "PPO"), ("unroll_length", "PPO")}  # not recorded
    for agent, title in (("rainbow_iqn", "Rainbow-IQN"), ("impala", "IMPALA"), ("ppo", "PPO")):
        settings = args.parse(["--agent", agent, "--game", "pong"], "test", "").settings
        kept = {name: value for name, value in settings.items() if (name, title) not in lost and name != "game"}
        write_run(tmp_path / agent, "pong", **kept | {"seed": 1, "reached": 5000})
    code, _, errors = run("saber_report.py", tmp_path, "--output", tmp_path / "report")
    assert (code, errors) == (0, "")
    found = json.loads((tmp_path / "report" / "saber.json").read_text())["differences"]
    values = {(name, title): value for name, texts in found.items() for title, value in texts.items()}
    assert {where for where, value in values.items() if value == "not recorded"} == lost
    own = [texts for texts in found.values() if "–" in texts.values()]
    assert found["lr_IQN"]["PPO"] == found["epochs"]["IMPALA"] == "–" and found["trace_lambda"]["PPO"] != "–"
    page = (tmp_path / "report" / "saber.html").read_text()
    shown, _, folded = (
        page.partition("Differences of the agents</h3>")[2].partition("<h3>Runs")[0].partition("<details>")
    )
    assert "<td>–" not in shown and ">discount<" in shown
    assert f"{len(own)} settings that some of the agents do not have" in folded and folded.count("<td") == 3 * len(own)
    heads = re.findall("<th scope=.rowgroup.*?<div>(.*?)</div>", folded)
    assert {"IMPALA", "IMPALA, PPO", "PPO", "Rainbow-IQN"} <= set(heads) and len(set(heads)) == len(heads)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Agents that have pong and alien in common; one has skiing, the other qbert."""
    folder = tmp_path_factory.mktemp("two")
    for seed in (1, 2):
        for game in ("pong", "alien", "skiing"):
            write_run(folder / "a" / str(seed), game, seed, REACHED, episodes=300, **IQN)
        for game in ("pong", "alien", "qbert"):
            write_run(folder / "b" / str(seed), game, seed, REACHED, episodes=300, level=2.0, **RAINBOW)
    return results_of(folder)


def test_agents_are_compared_over_the_games_in_common(two: Results) -> None:
    # Mutations: each agent over all of its games; a union for the intersection.
    assert two.mark == 4 * REACHED
    assert two.common(two.mark, "human") == [Task("alien"), Task("pong")]
    for agent in two.agents:
        shares = [agent.games[Task(game)].normalised(two.mark, WHOLE, "human") for game in ("alien", "pong")]
        assert two.aggregates[agent.name, two.mark, WHOLE, "human"] == aggregate([s for s in shares if s is not None])
    assert {found.games for found in two.published_aggregates.values() if found} == {2}
    page = render_report(two)
    assert "over the 2 games that both agents here have a score of; not all have Qbert, Skiing" in page
    assert "Nor is the length of a run, T_max" in page
    assert contents(two)["games_in_common"][str(two.mark)]["human"] == ["alien", "pong"]


def test_agents_without_a_common_game_are_not_compared(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "pong", 1, REACHED, episodes=300, **IQN)
    write_run(tmp_path / "b", "alien", 1, REACHED, episodes=300, **RAINBOW)
    results = results_of(tmp_path)
    page = render_report(results)
    assert "no game has known references and a score of every agent, so there is no plot over games." in page
    assert "<h2>Over games" not in page and "in a legend" not in page
    (row,) = aggregate_table(results).rows
    assert row.note == "over the 0 games that both agents here have a score of; not all have Alien, Pong"
    assert not results.profiles and not any(results.aggregates.values())


def test_an_agent_that_has_not_come_so_far_is_not_compared_there(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "pong", 1, 5 * REACHED, episodes=900, **IQN)
    write_run(tmp_path / "b", "pong", 1, REACHED, episodes=300, **RAINBOW)
    results = results_of(tmp_path)
    assert [[agent.name for agent in results.compared(mark)] for mark in results.marks] == [
        ["Rainbow-IQN, cpu"], ["Rainbow-IQN, cpu", "Rainbow, cpu"]
    ]  # fmt: skip
    assert results.mark == 4 * REACHED, "where both can be compared"
    assert "1 game, Rainbow-IQN, cpu alone" in to_html(aggregate_table(results))


def test_tables_and_plots_show_all_agents(two: Results) -> None:
    names = [agent.name for agent in two.agents]
    rows = [row.name for row in game_table(two).rows]
    assert rows == ["Alien", *names, "Pong", *names, "Qbert", names[1], "Skiing", names[0]]
    figures = plotly_figures(two)
    for figure in ("bars-human", "profile-human", "curve-0"):
        drawn = [trace for trace in figures[figure]["data"] if trace["name"].startswith(names[0])]
        other = [trace for trace in figures[figure]["data"] if trace["name"].startswith(names[1])]
        assert drawn and other
    means = [trace for trace in figures["curve-0"]["data"] if "hovertemplate" in trace]
    assert len({trace["line"]["color"] for trace in means}) == len(means) == 2
    best = figures["bars-human"]["layout"]["yaxis"]["categoryarray"]
    shares: dict[str, float] = {}
    for agent in two.agents:
        for task, scores in agent.normalised(4 * REACHED, WHOLE, "human").items():
            shares[task.title] = max(float(scores.mean()), shares.get(task.title, -np.inf))
    assert best == sorted(shares, key=lambda title: shares[title])
