"""Both agents with a CUDA device, with the replay beside the network and on the host."""

import pytest
import torch

from agents.registry import AGENTS, make_agent
from memory.chunk import ChunkId
from memory.replay import Replay
from tests.agents.test_agents import ACTIONS, OBSERVATION, agent_of, arguments, play


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_update_on_the_gpu(name: str, place: str) -> None:
    agent = make_agent(arguments(name), OBSERVATION, ACTIONS, torch.device("cuda", 0), learns=True, seed=3)
    device = torch.device(place, 0) if place == "cuda" else torch.device("cpu")
    replay = Replay(agent.spec, OBSERVATION, 4000, torch.Generator(device).manual_seed(1), device)
    for number, chunk in enumerate(play(agent_of(name), 700)):
        replay.add(ChunkId(0, number), chunk)
    losses = []
    for _ in range(60):
        batch = replay.sample(10, 0.4)
        update = agent.update(batch)
        replay.update_priorities(batch, update.priorities)
        losses.append(update.metrics["loss"].item())
    replay.check_valid()
    assert sum(losses[-10:]) < sum(losses[:10])
