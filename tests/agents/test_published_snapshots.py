"""Snapshots that others have published: they load, and our networks then compute what theirs compute."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.networks.duelling import CategoricalNetwork, QuantileNetwork
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.evaluation.episode import begin_anew
from rainbow_iqn_apex.programs.evaluation.settings import network_args
from tests.ground_truth.published_network import PublishedNetwork, draw_noise, snapshot_of
from tests.specs import discrete

CPU, FRAME = torch.device("cpu"), Field((84, 84), "uint8")
STACK, ACTIONS, HIDDEN, EMBEDDING, ATOMS = 3, 5, 13, 7, 11
AGENTS = {"rainbow_iqn": {"embedding": EMBEDDING}, "rainbow": {"atoms": ATOMS}}
every_agent = pytest.mark.parametrize("name", AGENTS)
every_architecture = pytest.mark.parametrize("architecture", ["canonical", "data-efficient"])


def published(name: str, architecture: str = "canonical", seed: int = 0) -> PublishedNetwork:
    torch.manual_seed(seed)
    return PublishedNetwork(STACK, ACTIONS, HIDDEN, **AGENTS[name], architecture=architecture)


def saved(path: Path, content: dict[str, Any], *, legacy: bool = False) -> Path:
    """A file of the present format, or of the one that PyTorch wrote until 2020."""
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def loaded_agent(path: Path, *more: str, learns: bool = False) -> QLearningAgent:
    """The agent of a snapshot, with no options but those that `more` gives."""
    content = snapshot.load(path, "--model")
    args = network_args(
        options.parse(["--game", "pong", "--model", str(path), "--precision", "float32", *more], "test", ""), content
    )
    agent = make_agent(args, discrete(FRAME.shape, FRAME.dtype, ACTIONS), CPU, learns=learns, seed=9)
    snapshot.restore_weights(agent, content)
    assert isinstance(agent, QLearningAgent)
    return agent


def frames(batch: int) -> Tensor:
    return torch.randint(0, 256, (batch, STACK, 84, 84), dtype=torch.uint8)


# --- the same values ---


def both(name: str, architecture: str, folder: Path, *, with_noise: bool) -> tuple[PublishedNetwork, QLearningAgent]:
    """A published network, and the agent of its snapshot, whose settings are read from the shapes."""
    network = published(name, architecture)
    if with_noise:
        draw_noise(network, torch.Generator().manual_seed(1))
    return network, loaded_agent(saved(folder / "x.pth", snapshot_of(network, with_noise=with_noise)))


@pytest.mark.parametrize("with_noise", [True, False])
@pytest.mark.parametrize(("batch", "nb_taus"), [(1, 1), (1, 9), (4, 2), (5, 8)])
@every_architecture
def test_quantiles_equal(tmp_path: Path, architecture: str, batch: int, nb_taus: int, with_noise: bool) -> None:
    network, agent = both("rainbow_iqn", architecture, tmp_path, with_noise=with_noise)
    assert isinstance(agent.network, QuantileNetwork)
    obs, taus = frames(batch), torch.rand(nb_taus, batch)
    with torch.no_grad():
        ours = agent.network(obs, taus, agent.network.weights())  # [N, B, A]
        theirs = network.quantiles(obs, taus.flatten())  # [N * B, A]
    assert ours.std() > 0.01, "something to compare"
    for k in range(nb_taus):
        for b in range(batch):
            torch.testing.assert_close(ours[k, b], theirs[k * batch + b], atol=1e-5, rtol=0)


@pytest.mark.parametrize("with_noise", [True, False])
@pytest.mark.parametrize("batch", [1, 4])
@every_architecture
def test_probabilities_equal(tmp_path: Path, architecture: str, batch: int, with_noise: bool) -> None:
    network, agent = both("rainbow", architecture, tmp_path, with_noise=with_noise)
    assert isinstance(agent.network, CategoricalNetwork)
    obs = frames(batch)
    with torch.no_grad():
        ours, theirs = agent.network(obs, agent.network.weights()), network.log_probabilities(obs)
    assert ours.std() > 0.01, "something to compare"
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floating_point_formats_become_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    network = published("rainbow_iqn")
    agent = loaded_agent(saved(tmp_path / "x.pth", snapshot_of(network.to(dtype))))
    assert {value.dtype for value in agent.network.state_dict().values()} == {torch.float32}
    assert torch.equal(agent.network.get_parameter("conv1.weight"), network.conv1.weight.float())


@every_architecture
@every_agent
def test_our_snapshots_are_published_ones(tmp_path: Path, name: str, architecture: str) -> None:
    """There and back through a file: names, shapes and values."""
    agent = loaded_agent(saved(tmp_path / "x.pth", snapshot_of(published(name, architecture))), learns=True)
    snapshot.save(tmp_path / "ours.pth", agent, {"T_actors": 8, "T_learner": 4})
    content = torch.load(tmp_path / "ours.pth", weights_only=True)
    assert content.keys() >= {"T_actors", "T_learner", "model_state_dict", "optimiser_state_dict"}
    network = published(name, architecture, seed=1)
    network.load_state_dict(content["model_state_dict"])  # every name, and no other
    again = loaded_agent(saved(tmp_path / "again.pth", snapshot_of(network)))
    for key, value in agent.network.state_dict().items():
        assert torch.equal(value, again.network.state_dict()[key])


def test_an_evaluated_episode_begins_with_the_snapshot_s_weights(tmp_path: Path) -> None:
    """Whatever those of the agent were."""
    network = published("rainbow")
    content = snapshot_of(network)
    agent = loaded_agent(saved(tmp_path / "x.pth", content))
    agent.load({key: torch.zeros_like(value) for key, value in agent.network.named_parameters()}, 0)
    begin_anew(agent, content["model_state_dict"], 0, 1)
    assert all(torch.equal(value, network.state_dict()[key]) for key, value in agent.network.named_parameters())


# --- further training ---


def random_gradients(network: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(network.named_parameters())
    for name in sorted(parameters):  # the same for both networks, in whatever order their parameters stand
        parameters[name].grad = torch.randn(parameters[name].shape, generator=generator)


def trained(name: str, *, legacy: bool = False) -> tuple[PublishedNetwork, torch.optim.Adam, dict[str, Any]]:
    """A published network after three steps of Adam, its optimiser, and its snapshot."""
    network = published(name)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2, eps=1e-3, foreach=False)
    for seed in range(3):
        random_gradients(network, seed)
        optimiser.step()
    content = snapshot_of(network, optimiser=optimiser)
    if legacy:
        content["optimiser_state_dict"] = _of_2019(content["optimiser_state_dict"])
    return network, optimiser, content


def _of_2019(state: dict[str, Any]) -> dict[str, Any]:
    """Then parameters were numbered by their addresses, steps were plain numbers, and groups had fewer settings."""
    numbers = {i: 140_000_000_000_000 + 64 * i for i in state["state"]}
    (group,) = state["param_groups"]
    kept = {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "amsgrad")}
    states = {numbers[i]: values | {"step": int(values["step"])} for i, values in state["state"].items()}
    return {"state": states, "param_groups": [kept | {"params": list(numbers.values())}]}


def step_of(agent: QLearningAgent) -> dict[str, Tensor]:
    """What one more step of Adam makes of the parameters."""
    random_gradients(agent.network, 3)
    optimiser = agent.parts["optimiser"]
    assert isinstance(optimiser, torch.optim.Optimizer)
    optimiser.step()
    return {key: value.detach() for key, value in agent.network.named_parameters()}


@pytest.mark.parametrize("legacy", [False, True])
@every_agent
def test_further_training_goes_on_with_adam_as_it_was(tmp_path: Path, name: str, legacy: bool) -> None:
    network, optimiser, content = trained(name, legacy=legacy)
    path = saved(tmp_path / "x.pth", content, legacy=legacy)
    assert (path.read_bytes()[:2] == b"PK") != legacy, "older files are no zip files"
    rates = "--lr-IQN 1e-2 --adam-eps-IQN 1e-3 --lr-Rainbow 1e-2 --adam-eps-Rainbow 1e-3".split()
    agent = loaded_agent(path, *rates, learns=True)
    ours, theirs = ([key for key, _ in of.named_parameters()] for of in (agent.network, network))
    assert name == "rainbow" or ours != theirs, "moments have to find their parameters in another order"
    for key, value in network.state_dict().items():
        assert torch.equal(agent.target.state_dict()[key], value), "the target network begins equal to the online one"
    assert not any(value.requires_grad for value in agent.target.parameters())
    random_gradients(network, 3)
    optimiser.step()
    for key, value in step_of(agent).items():
        torch.testing.assert_close(value, network.state_dict()[key], atol=1e-6, rtol=1e-6, msg=key)


def _without_a_parameter(state: dict[str, Any]) -> Any:
    (group,) = state["param_groups"]
    return state | {"param_groups": [group | {"params": group["params"][:-1]}]}


def _with(**values: Any) -> Any:
    return lambda state: state | {"state": {**state["state"], 2: state["state"][2] | values}}


def _of_sgd(_: Any) -> Any:
    optimiser = torch.optim.SGD(published("rainbow_iqn").parameters(), lr=0.1)
    return optimiser.state_dict()


def test_an_optimiser_that_has_made_no_step_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, content = trained("rainbow_iqn")
    content["optimiser_state_dict"] = content["optimiser_state_dict"] | {"state": {}}
    loaded_agent(saved(tmp_path / "x.pth", content), learns=True)
    assert capsys.readouterr().out == (
        "Adam begins anew, without the snapshot's moments: its optimiser has made no step yet, as in snapshots that an "
        "actor has saved\n"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda _: {},
        lambda _: None,
        lambda _: "Adam",
        lambda state: state | {"param_groups": 3},
        _of_sgd,
        _without_a_parameter,
        _with(exp_avg=torch.zeros(3)),
        _with(exp_avg_sq=7.0),
        _with(exp_avg_sq=torch.full((64, 32, 4, 4), torch.inf)),
        _with(exp_avg_sq=torch.full((64, 32, 4, 4), -1.0)),
        _with(exp_avg=torch.full((64, 32, 4, 4), 1e300, dtype=torch.float64)),
        _with(step="soon"),
        _with(step=-1),
        _with(step=torch.tensor(torch.nan)),
        lambda state: state | {"state": []},
    ],
)
def test_moments_that_do_not_fit_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any) -> None:
    network, _, content = trained("rainbow_iqn")
    state = change(content["optimiser_state_dict"])
    content = content | {"optimiser_state_dict": state} if state is not None else {
        key: value for key, value in content.items() if key != "optimiser_state_dict"
    }  # fmt: skip
    agent = loaded_agent(saved(tmp_path / "x.pth", content), learns=True)
    lines = capsys.readouterr().out.splitlines()
    weights_alone = state is None
    assert [line.split(": ")[0] for line in lines] == [
        "Adam begins anew" if weights_alone else "Adam begins anew, without the snapshot's moments"
    ]
    assert agent.parts["optimiser"].state_dict()["state"] == {}
    weight = agent.network.get_parameter("conv1.weight")
    assert torch.equal(weight, network.conv1.weight), "the weights are used all the same"


def test_an_agent_that_does_not_learn_asks_for_no_moments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent: Agent = loaded_agent(saved(tmp_path / "x.pth", snapshot_of(published("rainbow"))))
    assert "optimiser" not in agent.parts
    assert capsys.readouterr().out == ""


def test_settings_of_our_snapshots_say_what_shapes_do_not() -> None:
    content = snapshot_of(published("rainbow"))
    args = options.parse(["--game", "pong"], "test", "")
    theirs = [f'{{"agent": {agent}}}' for agent in ("[]", "{}", "null", "3", '"dqn"')]
    for settings in ("3", "[]", "{", 7, '{"V_min": "a", "replay_frequency": true}', *theirs):  # somebody else's
        assert network_args(args, content | {"settings": settings}) == network_args(args, content)
    ours = network_args(args, content | {"settings": '{"V_min": -3.0, "V_max": 4.0, "history_length": 8}'})
    assert (ours.agent, ours.get("V_min"), ours.get("V_max"), ours.history_length) == ("rainbow", -3, 4, STACK)
    assert ours.replace(V_min=-10.0, V_max=10.0) == network_args(args, content), "shapes go before settings"
