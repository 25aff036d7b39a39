"""What several learners are refused for before they begin, and what weights their samples have."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker import connection
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs.learner import budget
from rainbow_iqn_apex.programs.learner.budget import share_of
from rainbow_iqn_apex.programs.learner.checkpointer import Checkpointer, DivergenceCheck
from rainbow_iqn_apex.programs.learner.program import check_same_settings
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress
from rainbow_iqn_apex.programs.learner.world import ALONE, RankWatch, RoundState, join, local_rank, mean_metrics, merge
from tests.agents.ranks import ThreadRank, together
from tests.agents.sequences import play
from tests.agents.test_agents import ENVIRONMENT, agent_of
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.start_script import free_port

CPU = torch.device("cpu")
ALL = "--nb-actor 4 --memory-capacity 6000 --batch-size 8 --learn-start 301 --T-max 9000".split()


def share(size: int, *more: str) -> options.Args:
    return share_of(options.parse([*ALL, *more], "test", ""), size)


@pytest.mark.redis
def test_others_are_watched_again_after_redis_was_away_for_longer_than_a_command_is_tried(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: no RunError among what the watch outlives.
    monkeypatch.setattr(connection, "AWAY_S", 0.2)
    own_client.set(Keys("run", "").lease_of(1), b"theirs", px=600_000)
    with RankWatch(own_client, "run", 0, [b"ours", b"theirs"]):
        own_server.pause()
        wait_until(lambda: own_client.away.given_up, "a command to be given up")
        own_server.go_on()
        wait_until(lambda: not own_client.away.given_up, "a later command")


def test_learners_may_be_started_in_different_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: compare the paths as they are shown, which depend on the working directory.
    folders, results = [tmp_path, tmp_path / "other"], ["--path-to-results", str(tmp_path)]
    sent: dict[Any, list[Any]] = {}  # by kind: what the learners before have sent, too

    def exchange(value: Any, kind: Any) -> list[Any]:
        sent.setdefault(kind, []).append(value)
        return sent[kind]

    team: Any = SimpleNamespace(exchange=exchange)
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "start.pth").touch()
        monkeypatch.chdir(folder)
        check_same_settings(team, options.parse(["--model", str(tmp_path / "start.pth"), *results], "test", ""))
    with pytest.raises(UserError, match=r"--model: is .*: start all learners with the same settings"):
        check_same_settings(team, options.parse(["--model", "start.pth", *results], "test", ""))


@pytest.mark.parametrize("learners", [2, 4])
def test_each_learner_counts_the_log_of_all(learners: int) -> None:
    # Mutation: let each count the log of its own share, as if it had a server of its own.
    whole = options.parse(ALL, "test", "")
    agent = agent_of("rainbow_iqn")
    one = budget._redis_bytes(whole, agent, ENVIRONMENT, 0)
    assert one <= budget._redis_bytes(share(learners), agent, ENVIRONMENT, 0, learners) <= 1.1 * one


def test_a_largest_lag_is_the_largest_of_all_learners() -> None:
    # Mutation: take the mean of all learners' largest ones.
    def metrics(rank: ThreadRank) -> list[dict[str, Tensor]]:
        own = float(rank.rank)
        made = [{"loss": torch.tensor(own), "largest_policy_lag": torch.tensor(own)}]
        return mean_metrics(rank, made)

    assert together(3, metrics) == [[{"loss": 1.0, "largest_policy_lag": 2.0}]] * 3


def test_the_merged_state_has_what_all_ranks_have_and_what_any_wants() -> None:
    # Mutations: ready once one is; as many batches as one has; episodes in the order of arrival.
    first: dict[str, bool | int | float | str] = {"actor": 0}
    second: dict[str, bool | int | float | str] = {"actor": 1}
    ready = RoundState(received={0: 7}, new_steps=3, episodes=[first], fresh_steps=[5, 4, 5])
    waits = RoundState(is_ready=False, is_save_due=True, received={1: 9}, episodes=[second], fresh_steps=[2, 1])
    assert merge([ready]) == ready
    assert merge([ready, waits]) == RoundState(
        is_ready=False, is_save_due=True, received={0: 7, 1: 9}, new_steps=3, episodes=[first, second],
        fresh_steps=[7, 5],
    )  # fmt: skip
    assert merge([ready, RoundState(is_stopping=True, refills=True)]).is_stopping
    assert merge([RoundState(refills=True), ready]).refills


def test_a_learner_that_torchrun_has_not_started_is_alone() -> None:
    assert join({}, CPU) is ALONE
    assert join({"WORLD_SIZE": "1", "RANK": "0"}, CPU) is ALONE
    assert local_rank({"LOCAL_RANK": "3"}) == 0  # of a job manager, perhaps
    assert local_rank({"LOCAL_RANK": "3", "WORLD_SIZE": "4"}) == 3


def test_a_learner_without_the_others_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    for rank in ("0", "1"):
        with pytest.raises(RunError, match=rf"^learner {rank}: not all 2 learners .* within 1 sec: [^\n]*$"):
            join({"WORLD_SIZE": "2", "RANK": rank}, CPU, timeout_s=1)
    monkeypatch.delenv("MASTER_ADDR")  # Mutation: tell of others who are late
    with pytest.raises(
        UserError, match=r"^WORLD_SIZE: .* MASTER_ADDR .*; start the learners by torchrun, or unset it$"
    ):
        join({"WORLD_SIZE": "2", "RANK": "1"}, CPU, timeout_s=1)


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "2"}, {"WORLD_SIZE": "two", "RANK": "0"}], ids=str)
def test_an_environment_of_no_torchrun_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"^WORLD_SIZE: .*start them by torchrun"):
        join(environment, CPU)


def test_each_learner_has_its_share() -> None:
    own = share(2)
    assert (own.memory_capacity, own.batch_size, own.learn_start) == (3000, 4, 151)
    assert share_of(options.parse(ALL, "test", ""), 1).batch_size == 8


@pytest.mark.parametrize(("option", "value"), [("--nb-actor", 2), ("--memory-capacity", 6002), ("--batch-size", 30)])
def test_what_cannot_be_divided_is_refused_in_one_line(option: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"^{option}: {value} cannot be divided among 4 learners; give a multiple$"):
        share(4, option, str(value))


def refused(rank: ThreadRank, agents: list[QLearningAgent]) -> str:
    """Gather a checkpoint's parts, of an agent for each learner; return what is wrong with them."""
    agent = agents[rank.rank]
    replay = Replay(agent.spec, ENVIRONMENT, 4000, torch.Generator().manual_seed(1), CPU)
    ingest: Any = SimpleNamespace(counted={}, needs=dict, state_dict=dict, episodes=[])
    run: Any = SimpleNamespace(
        args=options.parse(ALL, "test", ""), client=None, results=None, progress=Progress("a1"), world=rank,
        limiter=SimpleNamespace(synchronize=True),
    )  # fmt: skip
    divergence = DivergenceCheck(agent.model)
    try:
        gathered = Checkpointer(run, agent, replay, ingest, None, divergence, EventLog())._gather()
    except RunError as error:
        return str(error)
    assert len(gathered.ranks) == 2
    return ""


def test_learners_with_different_weights_save_nothing() -> None:
    agents = [agent_of("rainbow_iqn") for _ in range(2)]
    assert together(2, partial(refused, agents=agents)) == ["", ""]
    with torch.no_grad():
        next(agents[1].model.parameters()).add_(1e-3)
    found = together(2, partial(refused, agents=agents))
    assert all(line.startswith("the learners' weights are not the same any more") for line in found), found


def test_the_largest_importance_weight_is_that_of_all_learners_samples() -> None:
    """The other learner's least probability is a third of this one's."""
    agent = agent_of("rainbow_iqn")
    chunks = play(agent, 700).chunks

    def drawn(least_of_all: Callable[[Tensor], Tensor] | None) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        replay = Replay(
            agent.spec, ENVIRONMENT, 4000, generator, CPU, priority_weight=(0.4, 1), least_of_all=least_of_all
        )
        for number, chunk in enumerate(chunks):
            replay.add(ChunkId(0, number), chunk)
        weights = replay.sample(10, 0.5).weights
        assert weights is not None
        return weights

    own = drawn(None)
    torch.testing.assert_close(drawn(lambda least: least / 3), own * (1 / 3) ** 0.7)
    torch.testing.assert_close(drawn(lambda least: least), own)
