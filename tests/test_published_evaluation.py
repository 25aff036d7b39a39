"""The programs, as their users call them, with snapshots of the published format and a real game."""

from pathlib import Path

import pytest
import torch

from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.snapshot import last_models
from tests.ground_truth.published_network import PublishedNetwork, draw_noise, snapshot_of
from tests.processes import Ended, run
from tests.system import LEARNER, Run

pytestmark = pytest.mark.slow

GAME, ACTION = "road_runner", 5  # one action all the time ends an episode within some hundred steps
NETWORKS = {
    "rainbow_iqn": lambda actions: PublishedNetwork(3, actions, 7, embedding=5),
    "rainbow": lambda actions: PublishedNetwork(4, actions, 9, atoms=6, architecture="data-efficient"),
}


def snapshot(path: Path, name: str, actions: int = 18) -> Path:
    """A published snapshot whose policy is `ACTION`, whatever it sees and whatever the noise."""
    torch.manual_seed(0)
    network = NETWORKS[name](actions)
    draw_noise(network, torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.fcnoisy_z_a.bias_mu.view(actions, -1)[ACTION, -1] = 1e4
    torch.save(snapshot_of(network), path)
    return path


def evaluate(path: Path, *more: str, game: str = GAME) -> Ended:
    words = ["--game", game, "--model", path, "--path-to-results", path.parent / "results", *more]
    return run("test_multiple_seed.py", *words, seconds=120)


def played(episode: int, seed: int, game: str = GAME, action: int = ACTION) -> str:
    """What the program must say of an episode: the environment alone knows."""
    environment = make_environment(EnvironmentSettings(game=game), derive_seed(seed, 4, episode))
    row, score, steps = environment.reset(), 0.0, 0
    while row.step_type != StepType.LAST:
        row = environment.step(action)
        score, steps = score + row.reward, steps + 1
    return f"score {score:g}, at 30 minutes {score:g}, at 5 minutes {score:g}, {steps} steps, {environment.end}"


def test_a_published_snapshot_of_skiing_has_nine_actions(tmp_path: Path) -> None:
    """Its sixth action is the emulator's code 6, as nobody fires in Skiing."""
    path = snapshot(tmp_path / "published.pth", "rainbow_iqn", actions=9)
    out = evaluate(path, "--evaluation-episodes", "1", "--seed", "8", game="skiing").succeeded()
    _, episode, *_ = out.splitlines()
    score, *_, steps, end = played(0, 8, "skiing", 6).split(", ")
    assert episode.startswith(f"episode 0: {score}, ") and episode.endswith(f", {steps}, {end}")
    assert steps != played(0, 8, "skiing", ACTION).split(", ")[-2], "code 5 would have been noticed"


@pytest.mark.parametrize(("name", "more"), [("rainbow_iqn", []), ("rainbow", ["--evaluation-workers", "1"])])
def test_a_published_snapshot_plays_without_network_options(tmp_path: Path, name: str, more: list[str]) -> None:
    path = snapshot(tmp_path / "published.pth", name)
    lines = evaluate(path, "--evaluation-episodes", "2", "--seed", "8", *more).succeeded().splitlines()
    assert [line for line in lines if line.startswith("episode ")] == [
        f"episode {episode}: {played(episode, 8)}" for episode in range(2)
    ]


@pytest.mark.redis
def test_a_published_snapshot_is_trained_further(tmp_path: Path, redis_port: int, run_name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS["rainbow"](18)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    for _ in range(7):
        adam.step()
    (tmp_path / "published").mkdir()
    path = tmp_path / "published" / f"model_{GAME}_7.pth"
    torch.save(snapshot_of(network, with_noise=False, optimiser=adam), path)
    settings = "--learn-start 100 --T-max 180 --memory-capacity 1000 --weight-synchro-frequency 40".split()
    settings += "--rainbow-only 1 --architecture data-efficient --hidden-size 9".split()
    model = ["--model", str(path.parent)]  # whose newest is meant
    with Run(redis_port, run_name, tmp_path, ["--game", GAME, *settings]) as training:
        errors = training.refusal(LEARNER, *model)
        assert errors == "launch_learner.py: error: --atoms: the snapshot's weights need 6, is 51\n"
        learner, actor = training.start(LEARNER, *model, "--atoms", "6"), training.start("0", "--atoms", "6")
        out = learner.end(120).succeeded()
        assert actor.finish(120) == 0
    assert f"Starting from the weights of {path}\n" in out and "Adam goes on with the snapshot's moments" in out
    trained = torch.load(last_models(tmp_path, GAME)[0], weights_only=True)
    most = (trained["T_learner"] - 100) // 4  # updates: one per four agent steps, from learn-start on at the earliest
    (steps,) = {float(state["step"]) for state in trained["optimiser_state_dict"]["state"].values()}
    assert 7 < steps <= 7 + most, "Adam goes on, the run's counts begin anew"
    moved = trained["model_state_dict"]["conv1.weight"] - network.conv1.weight.detach()
    assert 0 < moved.abs().max() < 0.1, "from where it was"
