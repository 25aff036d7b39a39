"""Runs of several games or environments: actors play them in turn, and all that is written keeps them apart."""

import signal
from pathlib import Path
from statistics import fmean

import pytest

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.registry import EnvId, entry_of, parted, task_name
from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.programs.common import look_at_entries
from rainbow_iqn_apex.programs.dashboard.results import Results as DashboardResults
from rainbow_iqn_apex.programs.learner.gauges import Summary
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress
from rainbow_iqn_apex.programs.machine import parse_for_start
from rainbow_iqn_apex.saber.report.inputs import read_inputs
from rainbow_iqn_apex.saber.report.results import Results
from rainbow_iqn_apex.saber.results.evaluation_log import read_evaluation
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, write_record
from rainbow_iqn_apex.saber.results.task import Task, mean_over
from rainbow_iqn_apex.saber.results.training_log import EvaluationScores, TrainingLog, read_records
from tests.system import EVALUATION, EVALUATORS, LEARNER, Run, System

POLES = "--env gymnasium:CartPole-v1,CartPole-v0"  # of 500 and of 200 steps at most, and else the same
SHORT = (
    "--agent impala --history-length 1 --unroll-length 5 --batch-size 4 --hidden-size 16 --T-max 4000 "
    "--log-interval 500 --learner-threads 1 --disable-cuda"
).split()
NAME = "CartPole-v1-CartPole-v0"
TWO = """
from dataclasses import dataclass
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, OwnOptions
from rainbow_iqn_apex.environments.registry import make_environment

@dataclass(frozen=True)
class CostOptions(OwnOptions):
    "costs"
    step_cost: float = option(0.1, "of a step")

def free(settings, seed):
    return make_environment(EnvironmentSettings(env="gymnasium:CartPole-v1"), seed)

def costly(settings, seed):
    return free(settings, seed)

dear = lambda settings, seed: free(settings, seed)
costly.options_type = dear.options_type = CostOptions
"""
_MODULE = "tests.environments.counting"
PAYING = ["--env", f"gymnasium:{_MODULE}:counting/One-v0,{_MODULE}:counting/Two-v0"]
SCORES = {f"{_MODULE}-counting-One-v0": 5, f"{_MODULE}-counting-Two-v0": 10}


def parsed(words: str) -> options.Args:
    return options.parse(words.split(), "test", "")


@pytest.mark.parametrize(
    ("words", "task", "entries"),
    [
        ("--game pong", "pong", [("atari", "pong")]),
        ("--game pong,ms_pacman", "pong-ms_pacman", [("atari", "pong"), ("atari", "ms_pacman")]),
        (POLES, NAME, [("gymnasium:CartPole-v1", "space_invaders"), ("gymnasium:CartPole-v0", "space_invaders")]),
    ],
)
def test_a_list_is_of_entries_with_one_name(words: str, task: str, entries: list[tuple[str, str]]) -> None:
    args = parsed(words)
    assert args.task == task and args.entries == tuple(EnvId(*one) for one in entries)
    for number in range(5):  # actor i plays entry i mod n
        alone = args.entry(number)
        assert (alone.env, alone.game) == entries[number % len(entries)]
        assert alone.entries == (args.entries[number % len(entries)],)


def test_a_name_may_stand_for_many() -> None:
    args = parsed("--env dmlab:dmlab30")
    assert args.task == "dmlab30" and len(set(args.entries)) == 30
    assert args.entry(31).env == "dmlab:rooms_exploit_deferred_effects" != args.entry(0).env == args.entry(30).env


def test_modules_and_long_lists_have_names_that_files_can_have() -> None:
    assert task_name("corridor:make", "") == "corridor-make"
    games = ",".join(f"game_of_number_{number}" for number in range(57))
    assert task_name("atari", games) == "game_of_number_0-and-56-more"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--game pong,brekout", "--game: unknown game 'brekout'; did you mean breakout?"),
        ("--game pong,pong", "--game: pong stands twice in the list"),
        ("--env gymnasium:a/B-v0,a-B-v0", "--env: a-B-v0 stands twice in the list, as the names of files spell it"),
        ("--game pong,", "--game: unknown game ''"),
        ("--env gymnasium:CartPole-v1,", "--env: gymnasium needs a name, as in gymnasium:CartPole-v1"),
        (f"--game {','.join(map(str, range(257)))}", "--game: expected at most 256 in a list, got 257"),
    ],
)
def test_each_name_of_a_list_is_checked(words: str, error: str) -> None:
    with pytest.raises(UserError) as refused:
        parsed(words)
    assert str(refused.value).startswith(error) and "\n" not in str(refused.value)


def test_a_list_has_the_actors_of_the_preset_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: count the actors before the preset of such a machine.
    monkeypatch.setattr("rainbow_iqn_apex.programs.machine.preset_for", lambda _: "cpu")
    assert parse_for_start("--game pong,krull --agent impala".split()).nb_actor == 2
    with pytest.raises(
        UserError, match="--nb-actor: expected at least 2 actors, one for each that --game lists, got 1"
    ):
        parse_for_start("--game pong,krull".split())


def test_other_spaces_are_refused_in_one_line() -> None:
    # Mutation: compare actions alone.
    with pytest.raises(UserError) as refused:
        look_at_entries(parsed("--env gymnasium:CartPole-v1,CartPole-v0,Acrobot-v1"))
    assert str(refused.value) == (
        "--env: all that it lists must have the same observations, actions and options, and Acrobot-v1 has "
        "float32 [6], where CartPole-v1 has float32 [4]"
    )
    look_at_entries(parsed(POLES))
    look_at_entries(parsed("--game pong,skiing"))


def test_other_options_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: compare spaces alone: the second one was played with its defaults, whatever the command gave.
    (tmp_path / "two.py").write_text(TWO)
    monkeypatch.syspath_prepend(tmp_path)
    look_at_entries(parsed("--env two:costly,dear --step-cost 0.5"))
    with pytest.raises(
        UserError, match=r"and options, and two-free has \S+\.OwnOptions, where two-costly has two\.CostOptions$"
    ):
        look_at_entries(parsed("--env two:costly,free --step-cost 0.5"))


def test_episodes_are_parted_by_who_played_them() -> None:
    training = [EpisodeRecord(actor=actor, episode=7) for actor in (0, 1, 2, 4)]
    assert [entry_of(record, 3) for record in training] == [0, 1, 2, 1]
    assert parted(training, 3) == [[training[0]], [training[1], training[3]], [training[2]]]
    evaluations = [VersionedRecord(actor=1, episode=episode) for episode in range(4)]
    assert [entry_of(record, 3) for record in evaluations] == [1, 2, 0, 1], "an evaluation actor plays all in turn"
    assert [entry_of(record, 1) for record in (*training, *evaluations)] == [0] * 8


def test_the_best_is_that_of_all_games() -> None:
    # Mutation: a mean of raw scores.
    pong, breakout, pole = Task("pong"), Task("breakout"), Task("CartPole-v1", "gymnasium:CartPole-v1")
    tables = pong.scores, breakout.scores
    assert tables[0] and tables[1] and tables[0].human is not None and tables[1].human is not None
    assert mean_over([(pong, tables[0].human), (breakout, tables[1].random)]) == pytest.approx(0.5)
    assert mean_over([(pong, -3.0)]) == -3
    assert mean_over([(pole, 10.0), (pong, 20.0)]) == 15


def test_the_learner_counts_games_apart(tmp_path: Path) -> None:
    args = parsed("--game pong,breakout --nb-actor 2")
    with ResultsFolder(tmp_path, args.task, 4) as results:
        results.begin(Start(args.settings, {}, "abc1234"), afresh=True)
        records = [
            EpisodeRecord(T_actors=n + 1, actor=n % 2, episode=n, score_saber=-20 + 21.3 * (n % 2), end="game_over")
            for n in range(199)
        ]
        results.log.append(records)
        assert results.mean_score(1) is None, "breakout has 99 episodes"
        results.log.append([EpisodeRecord(T_actors=200, actor=1, episode=199, score_saber=1.3, end="game_over")])
        assert results.mean_score(1) == pytest.approx(mean_over([(Task("pong"), -20.0), (Task("breakout"), 1.3)]))
        results.plot(now=True)
        line = Summary(args, Progress("run"), results.log, 4).score()
    assert {path.name for path in tmp_path.glob("*.html")} == {
        "Reward_pong-breakout_pong.html",
        "Reward_pong-breakout_breakout.html",
    }
    assert line == (
        "scores pong -20.00 level with -20.00, breakout 1.30 level with 1.30, means of up to 100 episodes of each"
    )


def test_a_rare_game_counts_as_much_as_one_with_many_more_episodes(tmp_path: Path) -> None:
    # Mutation: look at the newest 10 000 episodes of both together.
    args = parsed("--game pong,breakout --nb-actor 2")
    records = [
        EpisodeRecord(T_learner=n, actor=int(n % 110 > 0), episode=n, score_saber=n % 110 / 10, end="stuck")
        for n in range(12_000)
    ]
    means = [fmean([one.score_saber for one in records if one.actor == actor][-100:]) for actor in (0, 1)]
    for _ in range(2):  # and resumed
        with ResultsFolder(tmp_path, args.task, 4) as results:
            results.begin(Start(args.settings, {}, "abc1234"), afresh=True)
            results.log.append(records)
            expected = mean_over(list(zip(results.tasks, means, strict=True)))
            assert results.mean_score(12_000) == pytest.approx(expected)
            assert "pong 0.00 level" in Summary(args, Progress("run"), results.log, 4).score()


def test_a_report_keeps_games_apart_and_several_at_once_from_one(tmp_path: Path) -> None:
    # Mutation: `_TOGETHER` that `agree` does not look at.
    settings = {"agent": "impala", "preset": "cpu", "env": "atari", "game": "pong,breakout", "gamma": 1}
    several, alone = tmp_path / "several" / "pong-breakout.csv", tmp_path / "alone" / "pong.csv"
    for path in (several, alone):
        path.parent.mkdir()
        TrainingLog(path)
    records = [
        EpisodeRecord(T_actors=n + 1, actor=n % 4, episode=n // 4, score_saber=float(n % 2), end="game_over")
        for n in range(40)
    ]
    TrainingLog(several).append(records)
    TrainingLog(alone).append([record for record in records if record.actor == 0])
    write_record(several.with_suffix(".json"), RunRecord("pong-breakout", 4, 40, (Start(settings, {}, "a"),)))
    write_record(alone.with_suffix(".json"), RunRecord("pong", 4, 40, (Start(settings | {"game": "pong"}, {}, "a"),)))
    results = Results(read_inputs([tmp_path]))
    assert [task.title for task in results.tasks] == ["Breakout", "Pong"]
    assert [sorted(task.name for task in agent.games) for agent in results.agents] == [["pong"], ["breakout", "pong"]]
    together = results.agents[1]
    for name, score in (("pong", 0), ("breakout", 1)):
        game = together.games[Task(name)]
        assert [len(run.frames) for run in game.runs] == [20] and game.now_mean("saber") == score
    assert "played_together pong, breakout" in together.name


def test_the_dashboard_shows_games_apart(tmp_path: Path) -> None:
    # Mutation: the records of all games in each curve.
    path = tmp_path / "pong-breakout.csv"
    TrainingLog(path).append(
        [EpisodeRecord(T_actors=n + 1, actor=n % 2, episode=n, score_saber=float(n % 2), end="stuck") for n in range(9)]
    )
    start = Start({"env": "atari", "game": "pong,breakout", "agent": "impala"}, {}, "abc1234")
    results = DashboardResults(tmp_path)
    assert [run["title"] for run in results.scores(["pong-breakout"])["runs"]] == ["pong-breakout"]
    write_record(path.with_suffix(".json"), RunRecord("pong-breakout", 4, 9, (start,)))
    for _ in range(2):  # also if the record came later than the log
        shown = results.scores(["pong-breakout"])
        assert [run["title"] for run in shown["runs"]] == ["pong-breakout: Pong", "pong-breakout: Breakout"]
        assert [run["training"]["mean"][-1] for run in shown["runs"]] == [0, 1] and shown["lines"] == []
    facts = results.facts("pong-breakout")
    assert facts["game"] == "Pong, Breakout"
    assert facts["scores"] == {"training, Pong": 0, "training, Breakout": 1}
    tables = {one.title: one.scores for one in (Task("pong"), Task("breakout"))}
    assert facts["normalised"]["human"] == {
        f"training, {title}": table.normalised(score, "human")
        for (title, table), score in zip(tables.items(), (0, 1), strict=True)
        if table
    }


@pytest.mark.redis
@pytest.mark.slow
def test_a_run_of_two_plays_logs_evaluates_and_resumes_both(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutations: actors that open entry 0; an evaluation actor that plays one entry alone; an evaluation of entry 0.
    name, (one, two) = parsed(" ".join(PAYING)).task, SCORES
    with System(redis_port, run_name, tmp_path, [*PAYING, *SHORT], actors=3) as system:
        system.start(EVALUATORS[0])
        system.start(EVALUATORS[1])
        system.wait_for(LEARNER, "T = 1000 ")
        system.restart(LEARNER, signal.SIGTERM)
        assert system.learner.finish(400) == 0, system.last_words()
        assert all(f"Actor {actor} goes on after" in system.printed(str(actor)) for actor in range(3))
        line = f"Scores {one} 5.00 level with 5.00, {two} 10.00 level with 10.00, means of up to 100 episodes of each"
        assert line in system.printed(LEARNER)
    records = read_records(tmp_path / f"{name}.csv")
    assert {(record.actor, record.score_saber) for record in records} == {(0, 5), (1, 10), (2, 5)}
    evaluations = EvaluationScores(tmp_path / f"{name}_evaluation.csv").records
    played = {(record.actor, record.episode % 2, record.score_saber) for record in evaluations}
    assert played == {(0, 0, 5), (0, 1, 10), (1, 0, 10), (1, 1, 5)}
    pages = {path.name for path in tmp_path.glob("Reward_*.html")}
    assert pages == {f"Reward_{name}_{task}.html" for task in SCORES}
    (agent,) = Results(read_inputs([tmp_path])).agents
    assert {task.name: game.now_mean("saber") for task, game in agent.games.items()} == SCORES
    with Run(redis_port, run_name, tmp_path, ["--evaluation-episodes", "3", "--disable-cuda"]) as run:
        out = run.start(EVALUATION, "--model", str(tmp_path), *PAYING).end().succeeded()
    assert all(f"plays {task}: 3 episodes" in out for task in SCORES)
    logs = {path.name.partition("_last")[0]: path for path in (tmp_path / "evaluations").glob("*.csv")}
    found = {task: {episode.record.score_saber for episode in read_evaluation(path)} for task, path in logs.items()}
    assert found == {task: {score} for task, score in SCORES.items()}


@pytest.mark.redis
def test_a_learner_of_more_games_than_actors_is_refused(redis_port: int, run_name: str, tmp_path: Path) -> None:
    with Run(redis_port, run_name, tmp_path, [*POLES.split(), *SHORT]) as run:
        refusal = run.refusal(LEARNER, "--nb-actor", "1")
        assert refusal.endswith("at least 2 actors, one for each that --env lists, got 1\n")
