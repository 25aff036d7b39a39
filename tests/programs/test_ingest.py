"""What the learner takes in of a real Redis server, without lockstep where no test says otherwise."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.log import Entry
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, encode_message
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import make_limiter
from rainbow_iqn_apex.programs.learner.budget import make_buffer
from rainbow_iqn_apex.programs.learner.ingest import Evaluations, Ingest, actor_messages, make_evaluations
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress, Run, make_pace
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.small import CARTPOLE, FREE
from tests.specs import CARTPOLE as ENVIRONMENT

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]
CPU = torch.device("cpu")
T_MAX = 1000
QUEUE = 40  # sequences, as all chunks have 5 steps
MIX = "--agent impala --unroll-length 5 --batch-size 8 --hidden-size 8 --replay-mix"
OPTIONS = {
    "impala": "--agent impala --unroll-length 5 --batch-size 4 --hidden-size 8",
    "r2d2": "--agent r2d2 --sequence-length 8 --sequence-period 4 --batch-size 6 --lstm-size 7 --learn-start 100",
}
QUEUES = {
    "impala": OPTIONS["impala"],
    "mixture": f"{MIX} queue:0.5,uniform:0.25:60,prioritised:0.25:30",
    "elite": f"{MIX} queue:0.5,elite:0.25:20,attentive:0.25:50 --elite-insertion",
}
SCORE: dict[str, int | float | str] = {
    "T_actors": 3, "env": 0, "score_5min": 1.0, "score_30min": 1.0, "score_saber": 1.0, "length": 1, "end": "stuck",
}  # fmt: skip


class Parts(NamedTuple):
    """Parts of a learner."""

    ingest: Ingest
    results: ResultsFolder
    buffer: Buffer
    progress: Progress
    limiter: RateLimiter
    evaluations: Evaluations


def arguments(agent: str, pace: Iterable[str] = FREE) -> options.Args:
    memory = ["--T-max", str(T_MAX), "--memory-capacity", "200", "--disable-cuda"]
    return options.parse([*(OPTIONS | QUEUES)[agent].split(), *CARTPOLE, *pace, *memory], "test", "")


def agent_of(args: options.Args) -> Agent:
    return make_agent(args, ENVIRONMENT, CPU, learns=True, seed=1)


@contextmanager
def learner(
    client: Client, name: str, folder: Path, agent: str, *, afresh: bool = True, pace: Iterable[str] = FREE
) -> Iterator[Parts]:
    args, progress = arguments(agent, pace), Progress("id")
    made = agent_of(args)
    limiter, generator = make_limiter(args, made.spec, ()), torch.Generator()
    buffer = make_buffer(args, made, ENVIRONMENT, generator)
    its_pace = make_pace(args, made, buffer, limiter, progress)
    schema = actor_messages(made.spec, ENVIRONMENT, 1)
    with LearnerClient(client, name, {}, 1, folder=folder) as link, ResultsFolder(folder, "pole", 4) as results:
        link.lead("id", limiter.crews, afresh=afresh)
        run = Run(args, link, results, progress, limiter, threading.Event())
        ingest = Ingest(run, buffer, its_pace, schema, LoopClock("wait"))
        evaluations = make_evaluations(run)
        with closing(ingest), closing(evaluations):
            yield Parts(ingest, results, buffer, progress, limiter, evaluations)


@contextmanager
def actor(client: Client, name: str, number: int = 0, *, evaluation: bool = False) -> Iterator[ActorClient]:
    with ActorClient(client, name, "id", number, threading.Event(), evaluation=evaluation) as link:
        link.saved()
        yield link


def take_until(ingest: Ingest, true: Callable[[], object], what: str) -> None:
    def is_true() -> object:
        ingest.take_meanwhile()
        return true()

    wait_until(is_true, what, 20)


@pytest.mark.parametrize("agent", OPTIONS)
def test_a_learner_stopped_as_it_starts_leaves_out_no_episode_that_it_has_counted(
    client: Client, run_name: str, tmp_path: Path, agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: log all episodes of the messages that were not taken, or none of them.
    with actor(client, run_name) as link:
        with learner(client, run_name, tmp_path, agent) as first:
            link.commit([Episode(SCORE | {"actor": 0, "episode": number}) for number in range(3)], b"state")
            take_until(first.ingest, lambda: len(first.results.log.records) == 3, "them")
        link.commit([Episode(SCORE | {"actor": 0, "episode": 3})], b"state")
    with learner(client, run_name, tmp_path, agent, afresh=False) as second:
        assert second.ingest.load_state_dict(first.ingest.counted, [])
        second.ingest.take_rest()
        assert [record.episode for record in second.results.log.records] == [0, 1, 2, 3]
    assert "Left out" not in capsys.readouterr().out


def test_messages_that_redis_loses_between_two_learners_are_named_once(
    client: Client, run_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: settle what is both counted and known.
    log, message = Keys(run_name, "id").log(0), encode_message(Episode(SCORE | {"actor": 0, "episode": 0}))
    with learner(client, run_name, tmp_path, "impala") as parts:
        for number in (1, 2):
            client.xadd(log, {"m": message}, id=f"{number}-0")
    with learner(client, run_name, tmp_path, "impala", afresh=False) as parts:
        assert not parts.ingest.load_state_dict({0: 5}, [])
        client.xadd(log, {"m": message}, id="6-0")
        take_until(parts.ingest, lambda: parts.ingest.counted[0] == 6, "the next message")
    out = capsys.readouterr().out
    assert "Redis has lost messages 3 to 5 of actor 0\n" in out and "have gone" not in out


def test_in_lockstep_an_actor_numbers_episodes_from_the_steps_before_its_round(
    client: Client, run_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: only steps that the learner has taken in can have been played.
    with learner(client, run_name, tmp_path, "impala", pace=()) as parts, actor(client, run_name) as link:
        parts.progress.round = 5  # is published; of its rounds none has been taken in
        first = parts.limiter.steps_before(5)
        link.commit([Joined(5), *(Episode(SCORE | {"actor": 0, "episode": first + more}) for more in (0, 1))], b"")
        parts.ingest.take_rest()
        assert [record.episode for record in parts.results.log.records] == [first, first + 1]
    assert "Left out" not in capsys.readouterr().out


def chunks(spec: ChunkSpec, versions: Iterable[int]) -> list[Message]:
    """Make chunks which their versions tell apart, of rows that are in the middle of an episode."""
    made: list[Message] = []
    for version in versions:
        fields = spec.row_fields(ENVIRONMENT).items()
        rows = {name: np.full((spec.window, *field.shape), version % 2, field.dtype) for name, field in fields}
        rows["step_type"][:] = StepType.MID
        made.append(Chunk(0, version, rows, {}, None))
    return made


def give(buffer: Queue | Mixture) -> list[int]:
    """Learn from a batch, and return the versions of what is fresh in it."""
    batch = buffer.sample(4 if isinstance(buffer, Queue) else None)
    assert batch.versions is not None
    buffer.learned(batch, None)
    return batch.versions.tolist()


def check_a_resumed_queue(client: Client, name: str, folder: Path, agent: str) -> None:
    """Resume with a full queue, as an actor has sent much that is new, and another one much that is old."""
    spec = agent_of(arguments(agent)).spec
    with actor(client, name) as few, actor(client, name, 1) as many:
        with learner(client, name, folder, agent) as (ingest, _, buffer, *_):
            assert isinstance(buffer, Queue | Mixture)
            for link, sent in ((few, range(12)), (many, range(12, 60))):
                link.commit(chunks(spec, sent), b"state")
            given: list[int] = []
            while len(given) < 60 - QUEUE:
                take_until(ingest, buffer.ready, "a batch")
                given += give(buffer)
            take_until(ingest, lambda: not buffer.room, "the others")
            saved, counted = buffer.checkpoint(), dict(ingest.counted)
        few.commit(chunks(spec, range(60, 120)), b"state")
        with learner(client, name, folder, agent, afresh=False) as (ingest, _, buffer, *_):
            assert isinstance(buffer, Queue | Mixture)
            assert ingest.load_state_dict(counted, [])
            buffer.restore(saved, counted)
            list(ingest.take_backlog())
            assert buffer.room == 0
            again = buffer.checkpoint()
            assert (again.first, again.extra.keys()) == (saved.first, saved.extra.keys())
            if isinstance(buffer, Mixture):  # a queue keeps the order of each actor
                same = {name: (again.extra[name], saved.extra[name]) for name in saved.extra}
                for one, other in (*same.values(), (again.ids, saved.ids), (again.priorities, saved.priorities)):
                    torch.testing.assert_close(one, other, rtol=0, atol=0)
            while len(given) < 120:
                take_until(ingest, buffer.ready, "a batch")
                given += give(buffer)
            assert sorted(given) == list(range(120)), "each is fresh once, and none was dropped"


@pytest.mark.parametrize("agent", QUEUES)
def test_a_resumed_queue_takes_no_new_messages_before_the_old_ones(
    client: Client, run_name: str, tmp_path: Path, agent: str
) -> None:
    check_a_resumed_queue(client, run_name, tmp_path, agent)


@pytest.mark.parametrize("agent", QUEUES)
def test_new_messages_before_old_ones_are_noticed(
    client: Client, run_name: str, tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_they_arrive(self: Ingest) -> Iterator[Entry | None]:
        for entry in self.reader.take_backlog():
            yield entry
            read = self.reader.read
            if not self._buffer.room and all(read[actor] >= last for actor, last in self.counted.items()):
                return

    monkeypatch.setattr(Ingest, "_backlog", as_they_arrive)
    with pytest.raises(AssertionError):
        check_a_resumed_queue(client, run_name, tmp_path, agent)


@pytest.mark.parametrize("agent", QUEUES)
def test_sequences_that_are_lost_take_no_room_in_a_resumed_queue(
    client: Client, run_name: str, tmp_path: Path, agent: str
) -> None:
    """A server without a file was started again, and its actors have gone on, before the learner was killed."""
    spec = agent_of(arguments(agent)).spec
    with actor(client, run_name) as link:
        with learner(client, run_name, tmp_path, agent) as (ingest, _, buffer, *_):
            link.commit(chunks(spec, range(QUEUE)), b"state")
            take_until(ingest, lambda: not buffer.room, "a full queue")
            saved, counted = buffer.checkpoint(), dict(ingest.counted)
        client.xtrim(Keys(run_name, "id").log(0), maxlen=0, approximate=False)
        link.commit(chunks(spec, range(QUEUE, QUEUE + 4)), b"state")
        with learner(client, run_name, tmp_path, agent, afresh=False) as (ingest, _, buffer, *_):
            assert isinstance(buffer, Queue | Mixture)
            assert ingest.load_state_dict(counted, [])
            buffer.restore(saved, counted)
            list(ingest.take_backlog())
            take_until(ingest, buffer.ready, "a batch")
            assert give(buffer) == [*range(QUEUE, QUEUE + 4)]


@pytest.mark.parametrize("agent", QUEUES)
def test_sequences_that_are_sent_again_while_a_learner_starts_are_taken_in(
    own_server: RedisServer, own_client: Client, run_name: str, tmp_path: Path, agent: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # Mutation: ask how much the log holds when the run is resumed, not when the reader is made.
    monkeypatch.setattr(lease, "TTL_MS", 2000)  # a restarted server has forgotten that the learner gave up its lease
    spec = agent_of(arguments(agent)).spec
    with actor(own_client, run_name) as link:
        with learner(own_client, run_name, tmp_path, agent) as (ingest, _, buffer, *_):
            link.commit(chunks(spec, range(20)), b"state")
            size = own_server.log.stat().st_size
            link.commit(chunks(spec, range(20, 30)), b"state")
            take_until(ingest, lambda: buffer.inserted == 30, "all")
            saved, counted = buffer.checkpoint(), dict(ingest.counted)
        own_server.restart_without(size)
        with learner(own_client, run_name, tmp_path, agent, afresh=False) as (ingest, _, buffer, *_):
            link.pause(link.wait_reporter("the test"))  # sends again
            assert not ingest.load_state_dict(counted, [])
            buffer.restore(saved, ingest.counted)
            list(ingest.take_backlog())
            take_until(ingest, lambda: buffer.chunks == 30, "all again")
