"""Settings that the runs of a report share, that differ, that changed within a run, or that nobody recorded."""

from pathlib import Path

from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.args import Args, parse
from rainbow_iqn_apex.saber.report.exports import contents
from rainbow_iqn_apex.saber.report.inputs import read_inputs
from rainbow_iqn_apex.saber.report.results import group_runs
from rainbow_iqn_apex.saber.report.settings import agent_name, agree, applicable, comparable
from rainbow_iqn_apex.saber.report.table import to_html
from rainbow_iqn_apex.saber.report.tables import (
    format_changes,
    format_values,
    notes,
    run_table,
    setting_table,
    value_counts,
)
from rainbow_iqn_apex.saber.results.run_record import Start, read_record, write_record
from tests.saber.report.logs import results_of, write_run


def resume(log: Path, **settings: object) -> None:
    path = log.with_suffix(".json")
    record = read_record(path)
    assert record
    write_record(path, record.started(Start(record.starts[-1].settings | settings, {}, "def5678")))


def test_what_does_not_change_what_is_learnt_is_no_difference() -> None:
    # Mutation: drop a name from FREE.
    one: dict[str, object] = dict.fromkeys(("nb_actor", "nb_env_per_actor", "seed", "T_max", "learner_threads"), 1)
    one |= {"device": "cpu", "precision": "float32", "game": "pong", "preset": "cpu", "hidden_size": 512}
    other = dict.fromkeys(one, 2) | {"hidden_size": 512}
    assert comparable(one, None) == comparable(other, None) == {"hidden_size": 512}
    for name in ("hidden_size", "synchronize_actors_with_learner", "proba_sticky_actions", "lr_IQN", "multi_step"):
        assert not agree(comparable({name: 1}, None), comparable({name: 2}, None))


def test_the_length_of_a_run_is_a_difference_where_the_learning_rate_falls_over_it() -> None:
    # Mutations: leave an agent's rate out of those that fall, or `rate_decay`.
    for name in AGENTS:
        for decays in (["--rate-decay", "True"], []) if "rate_decay" in vars(AGENTS[name].options()) else ([],):
            args = parse(["--agent", name, *decays], "test", "")
            assert ("T_max" in comparable(args.settings, None)) == args.own.rate_falls, name
    assert {name for name in AGENTS if parse(["--agent", name], "test", "").own.rate_falls} == {
        "impala", "ppo", "vmpo", "awr", "vpg", "vtrace",
    }  # fmt: skip


def test_a_record_from_before_the_rate_could_fall_is_of_one_that_stays() -> None:
    before, stays, falls = ({"agent": "Rainbow"} | more for more in ({}, {"rate_decay": False}, {"rate_decay": True}))
    assert agree(before, stays) and not agree(before, falls) and not agree(stays, falls)
    assert agree({}, falls), "a log without a record may be a copy"


def test_settings_that_an_environment_has_no_use_for_are_left_out() -> None:
    everything = Args().settings
    atari = {"game", "proba_sticky_actions", "action_repeat", "disable_SABER_mode"}
    assert applicable(everything).keys() >= atari
    assert not applicable(everything | {"env": "gymnasium:CartPole-v1"}).keys() & atari
    assert applicable(everything | {"env": "vizdoom:basic"}).keys() & atari == {"action_repeat"}


def test_folders_of_an_environment_are_no_difference() -> None:
    # Mutations: FREE without the options marked `machine`; all options of environments.
    settings = {"env": "dmlab:lt_chasm", "dmlab_level_cache": "/a", "dmlab_level_cache_gb": 1, "dmlab_dataset": "/b"}
    assert comparable(settings | {"dmlab_renderer": "software"}, None) == {"env": "dmlab", "dmlab_renderer": "software"}


def test_environments_of_one_kind_are_one_agents_games() -> None:
    settings = [{"env": f"gymnasium:{name}", "game": "pong", "proba_sticky_actions": 0.0} for name in "AB"]
    assert comparable(settings[0], None) == comparable(settings[1], None) == {"env": "gymnasium"}


def test_machines_may_differ(tmp_path: Path) -> None:
    settings = "device precision replay_device learner_threads length_actor_buffer nb_actor".split()
    settings += ["redis_shards", "redis_replicas"]
    for seed in (1, 2, 3):
        write_run(tmp_path / str(seed), "pong", seed, 5000, **{name: max(2, seed) for name in settings})
    runs = read_inputs([tmp_path]).runs
    (group,) = group_runs(runs)
    assert notes([group]) == []
    values = {name: format_values(counts, 3) for name, counts in value_counts(runs).items()}
    assert values == dict.fromkeys(settings, "2 (2 of 3 runs), 3 (1 of 3 runs)") | {
        "hidden_size": "512",
        "proba_sticky_actions": "0.25",
        "disable_SABER_mode": "False",
    }
    assert "2 (2 of 3 runs), 3 (1 of 3 runs)" in to_html(setting_table(results_of(tmp_path)))


def test_a_setting_is_not_claimed_for_runs_without_a_record(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "pong", 1, 5000)
    write_run(tmp_path / "b", "pong", 2, 5000).with_suffix(".json").unlink()
    runs = read_inputs([tmp_path]).runs
    assert notes(group_runs(runs)) == ["no record of 1 of 2 runs: how they were made is not known"]
    assert format_values(value_counts(runs)["hidden_size"], 2) == "512 (1 of 2 runs), not recorded (1 of 2 runs)"


def test_what_changed_within_a_run_is_said(tmp_path: Path) -> None:
    # Mutation: look at the newest start only.
    changed = write_run(tmp_path / "a", "pong", 1, 5000, lr=1.0)
    resume(changed, lr=0.5, batch_size=8)  # the batch size was not recorded before, which is no change
    resume(changed, lr=1.0)
    write_run(tmp_path / "b", "pong", 2, 5000, lr=1.0)
    runs = read_inputs([tmp_path]).runs
    assert [run.changed for run in runs] == [{"lr": [1.0, 0.5, 1.0]}, {}]
    assert format_changes(runs[0]) == "lr 1.0, then 0.5, then 1.0"
    assert notes(group_runs(runs))[-1] == "settings that changed when a run was resumed, in 1 of 2 runs: lr"
    found = contents(results_of(tmp_path))
    assert found["notes"] == notes(group_runs(runs)) and found["runs"][0]["changed"] == {"lr": [1.0, 0.5, 1.0]}
    assert "lr 1.0, then 0.5, then 1.0" in to_html(run_table(results_of(tmp_path)))
    assert ">changed<" in to_html(run_table(results_of(tmp_path)))
    assert ">changed<" not in to_html(run_table(results_of(tmp_path / "b")))


def test_every_agent_has_a_title_of_its_own() -> None:
    titles = {agent_name({"agent": name}) for name in AGENTS}
    assert len(titles) == len(AGENTS) and titles.isdisjoint(AGENTS), "none is shown by the name of its option"
