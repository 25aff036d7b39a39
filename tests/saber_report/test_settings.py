"""Settings that the runs of a report share, that differ, that changed within a run, or that nobody recorded."""

from pathlib import Path

import pytest

from memory.errors import UserError
from saber.report.contents import contents
from saber.report.results import Results
from saber.report.runs import read_runs
from saber.report.settings import format_changes, format_values, notes, value_counts
from saber.report.tables import run_table, setting_table
from saber.run_record import Start, read_record, write_record
from tests.saber_report.logs import write_run


def resume(log: Path, **settings: object) -> None:
    path = log.with_suffix(".json")
    record = read_record(path)
    assert record
    write_record(path, record.started(Start(record.starts[-1].settings | settings, {}, "def5678")))


def test_runs_of_different_settings_are_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", "alien", 1, 5000)
    second = write_run(tmp_path / "b", "pong", 2, 6000, hidden_size=256, T_max=7)
    with pytest.raises(UserError) as caught:
        read_runs([tmp_path])
    assert str(caught.value) == (
        f"{second}: hidden_size is 256, and 512 in {first}; runs of different settings need reports of their own"
    )


def test_a_setting_that_not_all_record_is_compared_among_those_that_do(tmp_path: Path) -> None:
    # Mutations: compare all names; compare with the first run only.
    write_run(tmp_path / "a", "alien", 1, 5000)
    first = write_run(tmp_path / "b", "pong", 2, 6000, later_option=0)
    runs, _ = read_runs([tmp_path])
    assert notes(runs) == ["only some of the runs with a record say what these settings were: later_option"]
    second = write_run(tmp_path / "c", "qbert", 2, 6000, later_option=1)
    with pytest.raises(UserError, match=rf"{second}: later_option is 1, and 0 in {first}"):
        read_runs([tmp_path])


def test_machines_may_differ(tmp_path: Path) -> None:
    settings = ("device", "precision", "replay_device", "learner_threads", "queue_size", "length_actor_buffer")
    for seed in (1, 2, 3):
        write_run(tmp_path / str(seed), "pong", seed, 5000, **{name: max(2, seed) for name in settings})
    runs, _ = read_runs([tmp_path])
    assert notes(runs) == []
    values = {name: format_values(counts, 3) for name, counts in value_counts(runs).items()}
    assert values == dict.fromkeys(settings, "2 (2 of 3 runs), 3 (1 of 3 runs)") | {
        "hidden_size": "512",
        "proba_sticky_actions": "0.25",
        "disable_SABER_mode": "False",
    }
    assert "2 (2 of 3 runs), 3 (1 of 3 runs)" in setting_table(Results(runs))


def test_a_setting_is_not_claimed_for_runs_without_a_record(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "pong", 1, 5000)
    write_run(tmp_path / "b", "pong", 2, 5000).with_suffix(".json").unlink()
    runs, _ = read_runs([tmp_path])
    assert notes(runs) == ["1 of 2 runs have no record: how they were made is not known"]
    assert format_values(value_counts(runs)["hidden_size"], 2) == "512 (1 of 2 runs), not recorded (1 of 2 runs)"


def test_what_changed_within_a_run_is_said(tmp_path: Path) -> None:
    # Mutation: look at the newest start only.
    changed = write_run(tmp_path / "a", "pong", 1, 5000, lr=1.0)
    resume(changed, lr=0.5, batch_size=8)  # the batch size was not recorded before, which is no change
    resume(changed, lr=1.0)
    write_run(tmp_path / "b", "pong", 2, 5000, lr=1.0)
    runs, _ = read_runs([tmp_path])
    assert [run.changed for run in runs] == [{"lr": [1.0, 0.5, 1.0]}, {}]
    assert format_changes(runs[0]) == "lr 1.0, then 0.5, then 1.0"
    assert notes(runs)[-1] == "settings that changed when a run was resumed, in 1 of 2 runs: lr"
    found = contents(Results(runs), [])
    assert found["notes"] == notes(runs) and found["runs"][0]["changed"] == {"lr": [1.0, 0.5, 1.0]}
    assert "lr 1.0, then 0.5, then 1.0" in run_table(Results(runs))
    assert ">changed<" not in run_table(Results(runs[1:]))
