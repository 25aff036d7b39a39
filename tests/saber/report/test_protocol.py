"""Scores are shown with the rules that they were made by, beside those that were made by the same."""

from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.saber.report.inputs import read_inputs
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.report.sections import render_report
from rainbow_iqn_apex.saber.report.settings import Protocols, protocol_of, protocols_of
from rainbow_iqn_apex.saber.report.table import to_html
from rainbow_iqn_apex.saber.report.tables import game_table
from rainbow_iqn_apex.saber.results.run_record import read_record, write_record
from rainbow_iqn_apex.saber.results.task import COLUMNS, STICKY
from tests.saber.report.logs import figures_of, plotly_figures, results_of, write_run

REACHED = 2_500_000  # agent steps: 10 M frames


def played(folder: Path, reached: int = REACHED, **settings: Any) -> Results:
    for seed in (1, 2):
        write_run(folder / str(seed), "pong", seed, reached, episodes=300, **settings)
    return results_of(folder)


def forget(log: Path, *names: str) -> None:
    path = log.with_suffix(".json")
    record = read_record(path)
    assert record
    for name in names:
        del record.starts[0].settings[name]
    write_record(path, record)


def published_shown(results: Results) -> set[str]:
    """Agents of the table that are drawn without being asked for."""
    labels = {about.label for about in COLUMNS.values()}
    traces = [trace for figure in plotly_figures(results).values() for trace in figure["data"]]
    assert {trace["name"] for trace in traces} >= labels
    return {trace["name"] for trace in traces if trace["name"] in labels and trace.get("visible", True) is True}


STICKY_AGENTS = {about.label for about in COLUMNS.values() if about.protocol == STICKY}


@pytest.mark.parametrize(
    ("settings", "name", "sentence"),
    [
        ({}, "agent not recorded, unlimited (sticky actions 0.25, 10 M)", "Sticky actions 0.25, by SABER's rules."),
        (
            {"proba_sticky_actions": 0.0},
            "agent not recorded, unlimited (no sticky actions, 10 M)",
            "No sticky actions, not SABER's rules.",
        ),
        (
            {"action_repeat": 1},
            "agent not recorded, unlimited (sticky actions 0.25, action repeat 1, 10 M)",
            "Sticky actions 0.25, action repeat 1, not SABER's rules.",
        ),
        (
            {"disable_SABER_mode": True},
            "agent not recorded, whole episodes (sticky actions 0.25, cut at 30 min, 10 M)",
            "Sticky actions 0.25, cut at 30 min, not SABER's rules.",
        ),
        (
            {"proba_sticky_actions": None},
            "agent not recorded, whole episodes (protocol unknown, 10 M)",
            "By what rules 2 of 2 runs were played was not recorded.",
        ),
    ],
)
def test_our_scores_name_their_rules(tmp_path: Path, settings: dict[str, Any], name: str, sentence: str) -> None:
    results = played(tmp_path, **settings)
    assert results.protocols.sentence == sentence
    page = render_report(results)
    figures = figures_of(page)
    for figure in ("bars-human", "profile-human", "bars-world_record", "profile-world_record"):
        assert name in [trace["name"].replace("<br>", " ") for trace in figures[figure]["data"]]
    assert ("by SABER&#x27;s rules" in page) == (not settings), "said of nothing else"
    assert ("unlimited" in to_html(game_table(results))) == ("unlimited" in name)
    assert published_shown(results) == set(), "they have played 20 times as many frames"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, STICKY_AGENTS),
        ({"disable_SABER_mode": True}, STICKY_AGENTS),
        ({"proba_sticky_actions": 0.0}, set()),
        ({"proba_sticky_actions": None}, set()),
        ({"action_repeat": 1}, set()),
    ],
)
def test_published_agents_of_the_same_task_and_length_are_drawn(
    tmp_path: Path, settings: dict[str, Any], shown: set[str]
) -> None:
    # Mutations: draw those of another length, or of another task.
    assert published_shown(played(tmp_path, 20 * REACHED, **settings)) == shown


def test_other_levels_and_drawn_actions_are_other_rules() -> None:
    rules = {"env": "atari", "game": "pong", "proba_sticky_actions": 0.25, "disable_SABER_mode": False}
    levels = {"env": "procgen:maze", "procgen_mode": "hard", "procgen_num_levels": 200, "action_repeat": 4}
    for settings, label in (
        (rules, "sticky actions 0.25"),
        ({"env": "gymnasium:CartPole-v1"}, "rules of CartPole-v1"),
        (levels, "rules of procgen:maze, procgen num levels 200"),
        (
            {"env": "football:academy_run", "football_planes": "90x120", "football_engine": "gfootball"},
            "rules of football:academy_run, football engine gfootball",
        ),
        ({"env": "vizdoom:basic", "action_repeat": 12}, "rules of vizdoom:basic, action repeat 12"),
    ):
        for drawn, words in ((False, ""), (True, ", actions drawn")):
            found = protocol_of({**settings, "stochastic": drawn})
            assert found and found.label == label + words


def test_known_and_unknown_protocols_are_not_mixed_silently(tmp_path: Path) -> None:
    # Mutation: read the first record only.
    played(tmp_path)
    forget(tmp_path / "2" / "pong.csv", "proba_sticky_actions")
    results = results_of(tmp_path)
    assert results.protocols.label == "sticky actions 0.25 or unknown"
    assert results.protocols.limit_name("saber") == "whole episodes"
    assert results.protocols.sentence == (
        "Sticky actions 0.25, by SABER's rules; by what rules 1 of 2 runs were played was not recorded."
    )
    assert published_shown(results) == set()


def test_runs_without_any_record_have_no_protocol(tmp_path: Path) -> None:
    played(tmp_path)
    for seed in "12":
        (tmp_path / seed / "pong.json").unlink()
    found = protocols_of([run.record for run in read_inputs([tmp_path]).runs])
    assert found == Protocols((), 2, 2) and found.label == "protocol unknown"
