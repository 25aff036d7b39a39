"""Weights that are published beside training are those of the moment, and what goes wrong is said."""

import time
from collections.abc import Iterator

import pytest
import torch

from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.scripts import newest_version
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from tests.agents.test_agents import agent_of
from tests.deadline import Clock


@pytest.fixture
def link(client: Client, run_name: str) -> Iterator[LearnerClient]:
    with LearnerClient(client, run_name, {}, 1) as link:
        link.lead("id")
        yield link


def model_of(precision: str = "float32") -> Network:
    model = agent_of("rainbow_iqn", "--precision", precision).parts["model"]
    assert isinstance(model, Network)
    return model


def scale(model: Network, factor: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def version_of(packet: bytes, model: Network) -> int:
    """The version of a packet that holds the model's weights."""
    decoded = wire.decode(packet)
    for name, tensor in weights_packet.unpack(decoded).items():
        assert torch.equal(tensor, model.get_parameter(name))
    return int(decoded.meta["version"])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_published_does_not_change_with_the_model(precision: str) -> None:
    model = model_of(precision)
    published = model.published()
    before = {name: tensor.clone() for name, tensor in published.items()}
    scale(model, 2.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in published.items())


def packets_of(publisher: Publisher) -> dict[int, bytes]:
    """What a checkpoint of this moment holds of the weights."""
    return {version: packet.numpy().tobytes() for version, packet in publisher.state_dict()["published"].items()}


@pytest.mark.redis
def test_training_goes_on_while_weights_are_sent(client: Client, link: LearnerClient) -> None:
    model = model_of()
    publisher = Publisher(model, link)
    publisher.begin(4)
    scale(model, 2.0)
    began = time.monotonic()
    client.execute_command("CLIENT PAUSE", 600)  # the server answers nobody for this long
    clock = Clock()
    publisher.start(5)
    assert clock.seconds() < 0.3
    packets = packets_of(publisher)
    assert time.monotonic() - began > 0.5, "what is being sent is waited for"
    assert newest_version(client, link.keys) == 5
    assert version_of(packets[5], model) == 5
    scale(model, 0.5)
    assert version_of(packets[4], model) == 4
    sent = {version: client.get(link.keys.weights(version)) for version in (4, 5)}
    assert sent == packets
    publisher.start(6)
    assert list(packets_of(publisher)) == [5, 6]
    publisher.close()


@pytest.mark.redis
def test_restored_packets_are_published_as_they_were(client: Client, link: LearnerClient) -> None:
    model = model_of()
    packets = {version: weights_packet.pack(model.published(), version) for version in (7, 8)}
    scale(model, 2.0)
    publisher = Publisher(model, link)
    publisher.load_state_dict(packets)
    publisher.begin(8)
    assert {version: client.get(link.keys.weights(version)) for version in (7, 8)} == packets
    publisher.close()


@pytest.mark.redis
def test_a_lost_lease_is_told_to_the_learner(
    client: Client, link: LearnerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise RunError("somebody else leads the run")

    publisher = Publisher(model_of(), link)
    publisher.begin(0)
    monkeypatch.setattr(link.lease, "check", lost)
    publisher.start(1)
    assert list(packets_of(publisher)) == [0, 1], "a snapshot holds what could not be sent"
    with pytest.raises(RunError, match="somebody else"):
        publisher.start(2)
    assert list(packets_of(publisher)) == [1, 2], "nor is a version missing that comes after it"
    assert newest_version(client, link.keys) == 0
    publisher.close()
