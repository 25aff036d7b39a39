"""test_multiple_seed.py as its users call it: its result, whoever plays, and what it says when something is wrong."""

import json
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from tests import specs
from tests.failing import FAILING
from tests.processes import Ended, Process, Processes, clean_environment, wait_for_ends
from tests.small import CARTPOLE, TINY, save_untrained
from tests.videos import frames_of

BREAKOUT = "--game breakout --hidden-size 8 --architecture data-efficient --num-quantile-samples 8".split()
SCORES = "CartPole-v1_cart_seed123.csv"
ENDLESS = [*CARTPOLE[:2], "--evaluation-episodes", "1000000", "--evaluation-workers", "2"]


@pytest.fixture
def cartpole(tmp_path: Path) -> Path:
    return save_untrained(tmp_path / "cart.pth", [*CARTPOLE, "--hidden-size", "8"], specs.CARTPOLE)


@pytest.fixture
def breakout(tmp_path: Path) -> Path:
    return save_untrained(tmp_path / "brick.pth", BREAKOUT, specs.ATARI)


class Evaluations:
    """Starts evaluations with results in one folder."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.folder = folder
        self._processes = processes

    def start(self, path: Path, *more: str, **variables: str) -> Process:
        words = ["test_multiple_seed.py", "--model", path, "--disable-cuda", "--path-to-results", self.folder, *more]
        return self._processes.start(*words, environment=clean_environment() | variables)

    def run(self, path: Path, *more: str) -> Ended:
        return self.start(path, *more).end(300)

    def rows(self, name: str) -> list[list[str]]:
        """The lines of a CSV, without its header."""
        header, *lines = (self.folder / "evaluations" / name).read_text().splitlines()
        assert header == "episode,seed,score_5min,score_30min,score_saber,length,end"
        return [line.split(",") for line in lines]


@pytest.fixture
def evaluations(processes: Processes, tmp_path: Path) -> Evaluations:
    return Evaluations(processes, tmp_path / "results")


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(evaluations: Evaluations, cartpole: Path) -> None:
    # Mutations: `_calls` not set to 0 in `load`, so that noise lasts over the end of an episode; the agent's generator
    # not seeded; lines printed as episodes end.
    seen = {}
    for workers in ("1", "3"):
        options = [*CARTPOLE[:2], "--evaluation-episodes", "40", "--evaluation-workers", workers, "--seed", "8"]
        out = evaluations.run(cartpole, *options).succeeded()
        path = evaluations.folder / "evaluations" / "CartPole-v1_cart_seed8.csv"
        assert out.splitlines()[-1] == f"episodes: {path}"
        seen[workers] = (out, path.read_bytes())
        path.unlink()
    assert seen["1"] == seen["3"]
    (evaluations.folder / "evaluations" / "again.csv").write_bytes(seen["1"][1])
    rows = evaluations.rows("again.csv")
    assert [int(row[0]) for row in rows] == list(range(40))
    assert [int(row[1]) for row in rows] == [derive_seed(8, 4, episode) for episode in range(40)]
    assert len({tuple(row[2:]) for row in rows}) > 5, "episodes differ"
    assert all(row[4] == row[5] for row in rows), "a point a step"
    assert "40 episodes" in seen["1"][0] and "95 % interval" in seen["1"][0]


@pytest.mark.parametrize("words", ["--agent impala --lstm-size 5", "--agent r2d2 --lstm-size 5", "--agent reinforce"])
def test_agents_with_a_memory_or_a_policy_play_too(evaluations: Evaluations, tmp_path: Path, words: str) -> None:
    options = [*CARTPOLE, *words.split(), "--hidden-size", "8"]  # those of the training fit, though not all are used
    path = save_untrained(tmp_path / "model.pth", options, specs.CARTPOLE)
    more = ["--evaluation-episodes", "3", "--evaluation-workers", "1"]
    assert "3 episodes" in evaluations.run(path, *options, *more).succeeded()
    assert [row[0] for row in evaluations.rows("CartPole-v1_model_seed123.csv")] == ["0", "1", "2"]


def begin(evaluations: Evaluations, cartpole: Path, count: int) -> Process:
    """Start an evaluation without end, and wait until so many episodes are in SCORES."""
    process, path = evaluations.start(cartpole, *ENDLESS), evaluations.folder / "evaluations" / SCORES
    process.wait_until(lambda: path.exists() and len(evaluations.rows(SCORES)) >= count, f"{count} rows", 200)
    assert process.exit_code is None
    return process


def workers_of(process: Process) -> list[psutil.Process]:
    """Wait until the evaluation has processes that play, and list them."""
    found: list[psutil.Process] = []

    def are_there() -> bool:
        found[:] = [child for child in process.children() if "spawn_main" in words_of(child)]
        return bool(found)

    process.wait_until(are_there, "a process that plays")
    return found


def words_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # or a zombie of it: git has told its commit
        return ""


@pytest.mark.slow
def test_ctrl_c_keeps_what_has_ended_and_leaves_no_process(evaluations: Evaluations, cartpole: Path) -> None:
    process = begin(evaluations, cartpole, 30)
    children = process.children()
    assert len(children) >= 2
    process.press_ctrl_c()
    out = process.end().succeeded()
    assert len(rows := evaluations.rows(SCORES)) >= 30
    assert sum(line.startswith("episode ") for line in out.splitlines()) == len(rows)
    assert f"\n{len(rows):,} episodes" in out
    assert f"stopped: {len(rows):,} of 1,000,000 episodes" in out
    wait_for_ends(children)


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.4, 0.8, 1.5])
def test_ctrl_c_while_processes_begin_says_nothing_of_them(
    evaluations: Evaluations, cartpole: Path, after_s: float
) -> None:
    # Mutation: `blocked` that blocks nothing.
    process = evaluations.start(cartpole, *ENDLESS)
    process.wait_for(f"{cartpole} plays")
    time.sleep(after_s)
    process.press_ctrl_c()
    process.end().succeeded()


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_process_that_still_loads(evaluations: Evaluations, cartpole: Path) -> None:
    # Mutation: `close` that waits for all processes, however long they load.
    process = evaluations.start(cartpole, *ENDLESS)
    workers = workers_of(process)
    workers[0].suspend()
    process.press_ctrl_c()
    process.end(120).succeeded()
    wait_for_ends(workers)


@pytest.mark.slow
def test_missing_episodes_are_played_and_no_others(evaluations: Evaluations, cartpole: Path) -> None:
    path = evaluations.folder / "evaluations" / SCORES
    more = [*CARTPOLE[:2], "--evaluation-episodes", "60", "--evaluation-workers", "2"]
    _, undisturbed, _ = evaluations.run(cartpole, *more)
    whole = path.read_bytes()
    header, *lines = whole.splitlines(keepends=True)
    kept = [line for number, line in enumerate(lines) if number % 7 < 4]
    path.write_bytes(header + b"".join(kept))
    resumed = evaluations.run(cartpole, *more).succeeded()
    assert resumed.splitlines()[0] == f"{undisturbed.splitlines()[0]}; {len(kept)} of them in {path}"
    assert resumed.splitlines()[1:] == undisturbed.splitlines()[1:]
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b",game_over", b",stuck", 5))  # nothing is played again
    _, third, _ = evaluations.run(cartpole, *more)
    assert "ended by: game_over" in third and "stuck 5" in third
    (line,) = evaluations.run(cartpole, *more, "--replay-frequency", "2", "--force").refused()
    told = f"is of another evaluation (of {cartpole.name}): replay_frequency is 2, and was 4; move it away with its"
    assert told in line


@pytest.mark.slow
def test_processes_end_with_a_killed_parent_and_its_episodes_are_there(
    evaluations: Evaluations, cartpole: Path
) -> None:
    process = begin(evaluations, cartpole, 3)
    children = process.children()
    process.kill()
    wait_for_ends(children)
    assert len(evaluations.rows(SCORES)) >= 3


def test_a_process_that_dies_at_its_start_is_an_error(evaluations: Evaluations, tmp_path: Path) -> None:
    # Mutation: the weights among what the processes are begun with, which more than fills a pipe.
    large = [*CARTPOLE, "--hidden-size", "256"]
    path = save_untrained(tmp_path / "cart.pth", large, specs.CARTPOLE)
    process = evaluations.start(path, *CARTPOLE[:2], "--evaluation-episodes", "100", "--evaluation-workers", "2")
    workers_of(process)[0].kill()
    code, _, errors = process.end()
    assert code == 1
    assert "test_multiple_seed.py: a process of the evaluation was killed by SIGKILL" in errors.splitlines()[-1]


@pytest.mark.slow
def test_what_a_process_lacks_is_named(evaluations: Evaluations, tmp_path: Path) -> None:
    # Mutation: let the pool tell of the process that has not begun.
    words = [*FAILING.split(), "--history-length", "1", *TINY]
    path = save_untrained(tmp_path / "model.pth", words, EnvironmentSpec(Field((3,), "float32"), Discrete(2)))
    code, _, errors = evaluations.start(path, *words[:2], "--evaluation-workers", "2", FAILS_IN="child").end()
    assert (code, errors.count("\n")) == (1, 1), errors
    assert "cannot play (--env: tests.failing:Failing-v0 cannot be made: no module for levels)" in errors


def test_a_folder_is_enough(evaluations: Evaluations, cartpole: Path) -> None:
    evaluations.folder.mkdir()
    path = cartpole.rename(evaluations.folder / "last_model_CartPole-v1_2000.pth")
    (evaluations.folder / "best_model_CartPole-v1.pth").touch()
    out = evaluations.run(evaluations.folder, "--evaluation-episodes", "2", "--evaluation-workers", "1").succeeded()
    assert out.splitlines()[:2] == [
        f"The newest snapshot in {evaluations.folder} is {path.name}",
        f"{path} plays CartPole-v1: 2 episodes on cpu",
    ]
    name = "CartPole-v1_last_model_CartPole-v1_2000_seed123.csv"
    assert len(evaluations.rows(name)) == 2
    record = json.loads((evaluations.folder / "evaluations" / name).with_suffix(".json").read_text())
    assert record["model"] == f"../{path.name}", "as seen from the CSV, so that both can be moved"
    assert record["acting"]["noise"] and not record["acting"]["drawn"] and "  actions: greedy" in out


def test_a_window_needs_a_display(evaluations: Evaluations, breakout: Path) -> None:
    (line,) = evaluations.run(breakout, "--game", "breakout", "--render").refused()
    assert line.startswith("test_multiple_seed.py: error: --render: cannot render: there is no display")


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_played(
    evaluations: Evaluations, breakout: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for option in ("--path-to-results", "--record"):
        (line,) = evaluations.run(breakout, "--game", "breakout", option, str(tmp_path / "file")).refused()
        assert line.startswith(f"test_multiple_seed.py: error: {option}: ")


# --- model cards ---


def test_a_card_holds_what_the_hub_reads_and_is_evaluated_to_the_same_scores(
    evaluations: Evaluations, cartpole: Path, tmp_path: Path
) -> None:
    # Mutations: leave the settings out of the snapshot; write the card of the episodes that were asked for before.
    card = tmp_path / "card"
    (card / ".git").mkdir(parents=True)  # as a clone of the hub's empty folder
    few = ["--env", "gymnasium:CartPole-v1", "--evaluation-workers", "1", "--evaluation-episodes"]
    for episodes in ("5", "3"):  # a card takes the place of an older one
        out = evaluations.run(cartpole, *few, episodes, "--export", str(card)).succeeded()
    assert f"model card: {card}, with" in out
    _, head, body = (card / "README.md").read_text().split("---\n", 2)
    page = yaml.safe_load(head)
    assert page["library_name"] == "rainbow-iqn-apex" and "CartPole-v1" in page["tags"]
    ((result,),) = [model["results"] for model in page["model-index"]]
    assert page["model-index"][0]["name"] == "Rainbow-IQN"
    assert result["task"]["type"] == "reinforcement-learning"
    assert result["dataset"] == {"name": "CartPole-v1", "type": "CartPole-v1"}
    (metric,) = result["metrics"]
    rows = [line.split(",") for line in (card / "scores.csv").read_text().splitlines()[1:]]
    scores = [float(row[4]) for row in rows[:3]]
    assert (
        metric["type"] == "mean_reward" and metric["value"] == f"{np.mean(scores):.2f} +/- {np.std(scores, ddof=1):.2f}"
    )
    assert "rules of CartPole-v1; 3 episodes" in body and "95 % interval" in body
    assert "\n  actions: greedy" in body
    film = (card / "replay.webm").exists()
    assert film == ("without a film" not in out) == ('<video src="replay.webm"' in body)
    if film:
        assert len(frames_of(card / "replay.webm", 50)) > 5  # CartPole has 50 steps a second
    (model,) = card.glob("*.pth")
    other = tmp_path / "other"
    more = ["--config", str(card / "settings.yaml"), "--path-to-results", str(other)]
    assert f"{model} plays CartPole-v1: 3 episodes" in evaluations.run(card, *few, "3", *more).succeeded()
    (again,) = (other / "evaluations").glob("*.csv")
    assert again.read_text().splitlines()[1:] == [",".join(row) for row in rows[:3]]


def test_a_folder_that_is_no_card_is_left_as_it_is(evaluations: Evaluations, cartpole: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("# Mine\n")
    words = ["--env", "gymnasium:CartPole-v1", "--export", str(tmp_path / "mine")]
    assert evaluations.run(cartpole, *words).refused() == [
        f"test_multiple_seed.py: error: --export: {tmp_path / 'mine'} holds something else than a model card; name an "
        "empty folder, or a new one"
    ]
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["README.md"]
