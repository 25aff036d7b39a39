"""Evaluations of our own snapshots: what they take from them, and how they count."""

import dataclasses
import json
import os
import re
import statistics
import sys
import threading
from pathlib import Path

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.evaluation.program import Bar, Lines, run_evaluation
from rainbow_iqn_apex.programs.evaluation.settings import decisive_settings, network_args, other_rules, trained_steps
from rainbow_iqn_apex.programs.evaluation.workers import EpisodePlayer, number_of_workers
from tests.ground_truth.published_network import PublishedNetwork, snapshot_of
from tests.small import save_untrained
from tests.specs import ATARI, discrete


def test_what_belongs_to_a_policy_is_read_from_our_snapshots() -> None:
    trained = options.parse(
        "--num-quantile-samples 8 --replay-frequency 2 --action-repeat 3 --disable-SABER-mode".split(), "test", ""
    )
    content = snapshot_of(PublishedNetwork(4, 18, 5, embedding=3)) | {"settings": json.dumps(trained.shared)}
    evaluated = network_args(options.parse([], "test", ""), content)
    assert (evaluated.get("num_quantile_samples"), evaluated.replay_frequency, evaluated.action_repeat) == (8, 2, 3)
    assert not evaluated.disable_SABER_mode, "the rules of an evaluation are those of its command"
    assert other_rules(evaluated, content) == ["--disable-SABER-mode is False, and was True in training"]
    assert other_rules(trained, content) == []


@pytest.mark.parametrize("agent", sorted(AGENTS.keys() - {"reinforce"}))
def test_a_snapshot_of_any_agent_plays_a_game_and_is_known_by_its_weights(agent: str, tmp_path: Path) -> None:
    # Mutations: the hash of weights that the player has rounded; sizes of the network that are not the snapshot's;
    # compare a common option that the agent does not use, and that its snapshot so does not hold as it was given.
    words = f"--agent {agent} --preset cpu --game breakout --hidden-size 24 --disable-cuda --precision bfloat16"
    words += " --replay-frequency 3"
    path = save_untrained(tmp_path / "model.pth", words.split(), ATARI)
    content = snapshot.load(path, "--model")
    args = network_args(options.parse(["--disable-cuda"], "test", ""), content)
    assert (args.agent, args.game, args.get("hidden_size")) == (agent, "breakout", 24)
    in_words_of_training = network_args(options.parse(words.split(), "test", ""), content)
    assert in_words_of_training.get("hidden_size") == 24
    trained = make_agent(options.parse(words.split(), "test", ""), ATARI, torch.device("cpu"), learns=True, seed=3)
    player = EpisodePlayer(args, content["model_state_dict"], threading.Event())
    assert player.weights_hash == snapshot.weights_hash(trained.model)


def test_options_that_the_agent_does_not_use_are_recorded_as_if_not_given(tmp_path: Path) -> None:
    # Mutation: record what the command gives where it does not name the agent, which is known from the snapshot.
    words = "--env gymnasium:CartPole-v1 --history-length 2 --replay-frequency 3 --precision".split()
    of_command = [[*words, precision] for precision in ("float32", "bfloat16")]  # one is what `auto` comes to here
    named = ["--agent", "reinforce", *of_command[0]]
    content = snapshot.load(save_untrained(tmp_path / "model.pth", named, discrete((4,), "float32", 2)), "--model")
    recorded = [
        decisive_settings(network_args(options.parse(given, "test", ""), content), torch.device("cpu"))
        for given in (*of_command, named, [])
    ]
    assert all(record == recorded[0] for record in recorded)


@pytest.mark.parametrize("given", [[], ["--agent", "ppo"], ["--precision", "float32"]])
def test_an_agent_that_needs_float32_plays_in_it_whether_the_command_names_it_or_not(
    given: list[str], tmp_path: Path
) -> None:
    # Mutation: the precision that is the default of the default agent.
    words = ["--agent", "ppo", "--preset", "cpu", "--game", "pong", "--hidden-size", "8"]
    content = snapshot.load(save_untrained(tmp_path / "model.pth", words, ATARI), "--model")
    assert network_args(options.parse(given, "test", ""), content).precision == "float32"


def test_the_record_tells_how_long_a_snapshot_was_trained() -> None:
    # Mutation: T_actors in lockstep, which lacks the last round.
    args = options.parse([], "test", "")
    for lockstep, steps in (("True", 900), ("False", 800)):
        words = ["--nb-actor", "2", "--synchronize-actors-with-learner", lockstep]
        settings = json.dumps(options.parse(words, "test", "").shared)
        assert trained_steps(args, {"T_actors": 800, "T_learner": 900, "settings": settings}) == steps
        assert trained_steps(args, {"T_actors": 70, "T_learner": 0, "settings": settings}) == 70, "as in a report"
    assert trained_steps(args, {"T_actors": 700}) == 700, "of others, who have no settings"
    for odd in ({}, {"T_actors": "7"}, {"T_actors": -1}, {"T_actors": True}):
        assert trained_steps(args, odd) is None


def test_an_evaluation_of_cartpole_counts_agent_steps_and_no_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--env gymnasium:CartPole-v1 --history-length 1 --hidden-size 8 --evaluation-episodes 3 --disable-cuda"
    words += f" --evaluation-workers 1 --path-to-results {tmp_path}"
    args = options.parse(words.split(), "test", "")
    agent = make_agent(args, discrete((4,), "float32", 2), torch.device("cpu"), learns=True, seed=0)
    counts = {"T_actors": 0, "T_learner": 0, "settings": json.dumps(args.shared)}
    snapshot.save(tmp_path / "x.pth", agent, counts)
    run_evaluation(dataclasses.replace(args, model=tmp_path / "x.pth"), threading.Event())
    out = capsys.readouterr().out
    steps = statistics.mean(int(number) for number in re.findall(r"(\d+) steps", out))
    assert f"length, mean: {steps:,.2f} agent steps\n" in out and "SABER" not in out


def test_settings_of_the_command_that_the_snapshot_denies_are_refused() -> None:
    trained = options.parse("--action-repeat 3 --game pong".split(), "test", "")
    content = snapshot_of(PublishedNetwork(4, 18, 5, embedding=3)) | {"settings": json.dumps(trained.shared)}
    command = "--game pong --model pyproject.toml --hidden-size 512 --action-repeat 4".split()  # also the defaults
    with pytest.raises(UserError) as caught:
        network_args(options.parse(command, "test", ""), content)
    assert str(caught.value).splitlines() == [
        "--action-repeat: pyproject.toml has learned with 3, not 4; leave it out, or --force evaluates it so",
        "--hidden-size: pyproject.toml has learned with 5, not 512; leave it out",
    ]
    forced = options.parse("--game breakout --action-repeat 4 --hidden-size 5 --force".split(), "test", "")
    assert network_args(forced, content).action_repeat == 4
    preset = options.parse("--game pong --preset cpu".split(), "test", "")
    assert network_args(preset, content).get("hidden_size") == 5, "a preset's settings are defaults"


def test_what_an_agent_of_a_snapshot_does_not_use_is_told_and_no_force_changes_its_layers(tmp_path: Path) -> None:
    # Mutations: tell what the default agent does not use; let --force give a layer another size.
    vectors = ["--agent", "ppo", "--env", "gymnasium:CartPole-v1", "--mlp-size", "8"]
    content = snapshot.load(save_untrained(tmp_path / "x.pth", vectors, discrete((4,), "float32", 2)), "--model")

    def asked(*words: str) -> options.Args:
        return network_args(options.parse([*words], "test", ""), content)

    assert asked("--stochastic").not_used() == ""
    assert asked("--num-quantile-samples", "8").not_used() == "Not used by --agent ppo: --num-quantile-samples"
    with pytest.raises(UserError, match=r"--mlp-size: .* has learned with 8, not 9; leave it out$"):
        asked("--mlp-size", "9", "--force")


def test_no_setting_of_training_alone_is_asked_for(tmp_path: Path) -> None:
    # Mutation: verify all options of the agent: those that are not the policy's have its defaults here.
    words = "--agent ppo --lstm-size 5 --minibatch-split sequences --minibatches 1 --env gymnasium:CartPole-v1"
    path = save_untrained(tmp_path / "x.pth", words.split(), discrete((4,), "float32", 2))
    args = network_args(options.parse([], "test", ""), snapshot.load(path, "--model"))
    assert (args.agent, args.get("lstm_size")) == ("ppo", 5)


CARTPOLE = {"env": "gymnasium:CartPole-v1", "game": "space_invaders"}  # --game does not count there


def played(words: str, **settings: str) -> tuple[str, str]:
    """Environment and game of the evaluation of a snapshot with these settings."""
    content = snapshot_of(PublishedNetwork(4, 18, 5, embedding=3)) | {"settings": json.dumps(settings)}
    args = options.parse(["--model", "pyproject.toml", *words.split()], "test", "")
    evaluated = network_args(args, content)
    return evaluated.env, evaluated.game


def test_the_snapshot_knows_what_it_has_learned_to_play() -> None:
    assert played("", env="atari", game="pong") == ("atari", "pong")
    assert played("", env="atari", game="pong,krull") == ("atari", "pong,krull"), "one process plays all of them"
    assert played("--game pong", env="atari", game="pong") == ("atari", "pong")
    assert played("--env atari", env="atari", game="pong") == ("atari", "pong")
    assert played("", **CARTPOLE)[0] == "gymnasium:CartPole-v1"
    assert played("--env gymnasium:CartPole-v1", **CARTPOLE)[0] == "gymnasium:CartPole-v1"
    assert played("--game pong") == ("atari", "pong"), "other people's snapshots have no settings"
    assert played("--game krull --force", env="atari", game="pong") == ("atari", "krull")
    assert played("--game krull --force", **CARTPOLE) == ("atari", "krull")
    assert played("--force", env="atari", game="pong") == ("atari", "pong")


@pytest.mark.parametrize(
    ("words", "settings", "line"),
    [
        (
            "--game krull",
            {"env": "atari", "game": "pong"},
            "--game: pyproject.toml has learned pong, not krull; --force evaluates it so",
        ),
        ("--game krull", CARTPOLE, "--game: pyproject.toml has learned gymnasium:CartPole-v1, not krull; --force"),
        ("--env atari", CARTPOLE, "--env: pyproject.toml has learned gymnasium:CartPole-v1, not atari; --force"),
        (
            "--env gymnasium:Acrobot-v1 --game krull",
            {"env": "atari", "game": "pong"},
            "--env: pyproject.toml has learned pong, not gymnasium:Acrobot-v1; --force",
        ),
        ("", {}, "--game: pyproject.toml holds no settings that name its game: name it, as in --game pong"),
        ("--env atari --force", CARTPOLE, "--game: pyproject.toml holds no settings that name its game: name it"),
        ("", {"env": "atari", "game": "../../x"}, "--model: the settings in pyproject.toml make no sense: --game: "),
        ("", {"env": "atari", "game": "a\nb"}, "--game: pyproject.toml holds no settings that name its game"),
        (
            "",
            {"env": "gymnasium:antigravity:CartPole-v1"},
            "--env: pyproject.toml has learned gymnasium:antigravity:CartPole-v1, which would import antigravity; if",
        ),
        ("", {"env": "gymnasium:CartPole-v9"}, "--env: gymnasium knows no environment 'CartPole-v9'; did you mean"),
        ("", {"env": "this:make"}, "--env: pyproject.toml has learned this:make, which would import this; if"),
    ],
)
def test_one_line_says_why_a_game_cannot_be_played(words: str, settings: dict[str, str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        played(words, **settings)
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)
    assert not {"antigravity", "this"} & sys.modules.keys()


def test_a_package_is_imported_for_a_snapshot_whose_user_names_it() -> None:
    env = "gymnasium:ale_py:ALE/Pong-v5"
    assert played(f"--env {env}", env=env)[0] == env


def test_the_newest_snapshot_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutations: compare the steps as texts; compare those of checkpoints with those of kept weights.
    names = (
        "last_model_pong_900.pth last_model_pong_1000.pth model_pong_2000.pth best_model_pong.pth "
        "best_model_pong_7000.pth"
    )
    for name in (*names.split(), ".last_model_pong_8000.pth.1f2e.tmp", "pong.csv"):
        (tmp_path / name).touch()
    assert snapshot.choose(tmp_path, None) == snapshot.choose(tmp_path, "pong") == tmp_path / "last_model_pong_1000.pth"
    assert capsys.readouterr().out == 2 * f"The newest snapshot in {tmp_path} is last_model_pong_1000.pth\n"
    assert snapshot.choose(tmp_path / "best_model_pong.pth", None) == tmp_path / "best_model_pong.pth", (
        "a file is itself"
    )
    (tmp_path / "last_model_CartPole-v1_5000.pth").touch()
    assert snapshot.choose(tmp_path, "pong").name == "last_model_pong_1000.pth"
    with pytest.raises(
        UserError, match=r"holds no snapshot of krull \(.* or last_model_krull_<steps>\.pth\), only of Cart.*pong$"
    ):
        snapshot.choose(tmp_path, "krull")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "best_model_pong.pth").touch()
    with pytest.raises(
        UserError,
        match=r"^--model: .* holds no snapshot \(model_<game>_<steps>\.pth or last_model_<game>_<steps>\.pth\)$",
    ):
        snapshot.choose(tmp_path / "empty", None)
    for steps in (900, 1000):
        (tmp_path / "empty" / f"model_pong_{steps}.pth").touch()
    assert snapshot.choose(tmp_path / "empty", None).name == "model_pong_1000.pth"
    (tmp_path / "sweep" / "pong_seed-1").mkdir(parents=True)
    (tmp_path / "sweep" / "pong_seed-1" / "last_model_pong_1.pth").touch()
    with pytest.raises(UserError, match=r"there are snapshots in \S*/sweep/pong_seed-1$"):
        snapshot.choose(tmp_path / "sweep", "pong")


def test_the_newest_run_of_a_folder_with_several_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutations: compare the steps of different games; a game's oldest file; take all games' files for its snapshots.
    written = {"last_model_pong_9000.pth": 10, "last_model_krull_30.pth": 5, "last_model_krull_200.pth": 20}
    for name, seconds in written.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    assert snapshot.choose(tmp_path, None).name == "last_model_krull_200.pth"
    line, _ = capsys.readouterr().out.splitlines()
    assert "krull, pong" in line and "krull is the newest run: --game " in line
    assert snapshot.choose(tmp_path, "pong").name == "last_model_pong_9000.pth"
    assert "newest run" not in capsys.readouterr().out
    os.utime(tmp_path / "last_model_pong_9000.pth", (30, 30))
    assert snapshot.choose(tmp_path, None).name == "last_model_pong_9000.pth"


def test_a_folder_of_one_run_has_the_snapshots_of_each_of_its_games(tmp_path: Path) -> None:
    # Mutation: take them for a game that another run in the folder has not played either.
    name = "last_model_adventure-and-13-more_1000.pth"
    (tmp_path / name).touch()
    assert snapshot.choose(tmp_path, "pong", or_the_only=True).name == name
    with pytest.raises(UserError, match=r"holds no snapshot of pong"):
        snapshot.choose(tmp_path, "pong")
    (tmp_path / "last_model_krull_10.pth").touch()
    assert snapshot.choose(tmp_path, "krull", or_the_only=True).name == "last_model_krull_10.pth", "its own comes first"
    with pytest.raises(UserError, match=r"holds no snapshot of pong"):
        snapshot.choose(tmp_path, "pong", or_the_only=True)


def test_the_name_of_a_snapshot_without_settings_tells_its_game(tmp_path: Path) -> None:
    content = snapshot_of(PublishedNetwork(4, 18, 5, embedding=3))

    def evaluate(name: str, words: str) -> None:
        args = options.parse(words.split(), "test", "")
        (tmp_path / name).touch()
        network_args(dataclasses.replace(args, model=tmp_path / name), content)

    for name in ("best_model_ms_pacman.pth", "last_model_ms_pacman_50000.pth", "model_ms_pacman_50000.pth"):
        evaluate(name, "--game ms_pacman")
        evaluate(name, "--game pong --force")
        with pytest.raises(UserError, match=r"--game: .* is of ms_pacman by its name, not of pong; --force"):
            evaluate(name, "--game pong")
        with pytest.raises(UserError, match=r"--game: .* name it, as in --game ms_pacman$"):
            evaluate(name, "")
    for name in ("pacman.pth", "best_model_of_all.pth"):
        evaluate(name, "--game pong")


def test_how_many_processes() -> None:
    def workers(words: str, device: str = "cpu") -> int:
        return number_of_workers(options.parse(words.split(), "test", ""), torch.device(device))

    cores = len(os.sched_getaffinity(0))
    assert workers("") == min(32, cores)
    assert workers("", "cuda") == min(8, cores)
    assert workers("--render") == 1
    assert workers("--evaluation-workers 50") == workers("--render --evaluation-workers 50") == 50
    assert workers("--evaluation-workers 50 --evaluation-episodes 3") == 3


def record(number: int, score: float) -> EpisodeRecord:
    return EpisodeRecord(episode=number, score_saber=score, length=10, end="stuck")


def test_lines_come_in_the_order_of_the_episodes(capsys: pytest.CaptureFixture[str]) -> None:
    with Lines(atari=True) as lines:
        for number in (2, 0, 4, 1):
            lines.add(record(number, 1234567))
        assert re.findall(r"episode (\d): score 1234567,", capsys.readouterr().out) == ["0", "1", "2"]
    assert re.findall(r"episode (\d)", capsys.readouterr().out) == ["4"], "what ended before a stop is told"


def test_the_bar_fits_into_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar(4)
    assert bar.text(80).startswith("[....") and " 0/4 episodes, 0:00:0" in bar.text(80)
    with bar:
        for number in range(3):
            bar.add(record(number, 10.0))
    assert bar.text(80).startswith("[" + "#" * 28 + ".") and "3/4 episodes, mean score 10.0" in bar.text(80)
    assert {len(bar.text(columns)) for columns in (20, 30, 80)} == {19, 29, 79}
    assert " 3/4, 0:00:0" in bar.text(20), "the clock stays"
    assert "3/4 episodes" in capsys.readouterr().out, "drawn once more at the end"
