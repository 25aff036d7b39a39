"""What hostile bytes are fed to: every decoder of the program, and whoever uses what it has let pass."""

import itertools
import json
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec import structs

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.environments.gymnasium.environment import GymnasiumEnvironment
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.broker.log import Entry
from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, RoundEnd, encode_message
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.budget import make_buffer
from rainbow_iqn_apex.programs.learner.checkpointer import damage_named, parse
from rainbow_iqn_apex.programs.learner.ingest import EVALUATION_MESSAGES, actor_messages, evaluation_record
from rainbow_iqn_apex.programs.learner.results_folder import training_record
from rainbow_iqn_apex.saber.results.page import to_plotly
from rainbow_iqn_apex.saber.results.reward_plot import reward_figure
from rainbow_iqn_apex.saber.results.summary import ScoreCurve
from rainbow_iqn_apex.saber.results.task import Task
from rainbow_iqn_apex.saber.results.training_log import HEADER, format_line, read_records
from tests.chain.environment import ChainEnvironment
from tests.fuzz.inference_targets import inference_targets
from tests.fuzz.mutate import bomb, damage_lines, forge_archive, forge_packet
from tests.fuzz.redis_targets import redis_targets
from tests.fuzz.target import Target
from tests.memory.valid import check_valid
from tests.specs import discrete

CPU = torch.device("cpu")
SETTINGS = (
    "--env chain --game chain --history-length 2 --multi-step 2 --hidden-size 3 --quantile-embedding-dim 2 "
    "--num-quantile-samples 3 --nb-env-per-actor 2 --replay-frequency 2 --precision float32 --id-actor 0"
).split()
MIXTURE = (  # actors record values and features
    "--agent impala --unroll-length 5 --lstm-size 3 --value-cloning-cost 0.01 --elite-insertion --batch-size 4 "
    "--replay-mix queue:0.5,prioritised:0.25:12,elite:0.25:20"
)
RECORD = EpisodeRecord(300, 200, 0, 1, 7, 1.5, -3.0, 21.0, 90, "game_over")


def targets(folder: Path, port: int) -> dict[str, Target]:
    """All of them by name; `folder` is for the files that they write, `port` that of a Redis server of their own."""
    args = options.parse(SETTINGS, "fuzz", "")
    agent = make_agent(args, discrete((5,), "uint8", 3), CPU, learns=True, seed=1)
    return {
        "wire": _wire(),
        "messages": _messages(args),
        "messages, impala": _sequences("--agent impala --unroll-length 5 --lstm-size 3 --target-entropy 1"),
        "messages, mixture": _sequences(MIXTURE),
        "messages, r2d2": _sequences("--agent r2d2 --burn-in 2 --sequence-length 4 --sequence-period 2 --lstm-size 3"),
        "messages, sac": _sequences("--agent sac --burn-in 2 --sequence-length 4 --sequence-period 2 --lstm-size 3"),
        "messages, ppo": _sequences(
            "--agent ppo --unroll-length 5 --lstm-size 3 --minibatch-split sequences --minibatches 1"
        ),
        "evaluation messages": _evaluations(),
        "weights": _weights(args),
        "actor state": _state(args, "chain", ChainEnvironment),
        "actor state, gymnasium": _state(args, "gymnasium", _cart_pole),
        "snapshot": _snapshots(args, agent, folder / "last_model_chain_1.pth", _saved_replay(agent)),
        "snapshot, mixture": _mixture_snapshots(folder / "last_model_chain_2.pth"),
        "training log": _log(folder / "chain.csv"),
        **redis_targets(port),
        **inference_targets(),
    }


def _wire() -> Target:
    arrays = {"a": np.arange(12, dtype=np.uint8).reshape(3, 4), "b": np.ones((2, 0, 3)), "c": np.float32(2)}
    samples = [
        wire.encode(wire.Tag.STATE, {"round": 1, "deep": [{"x": [1, None]}]}, arrays, compress=compress)  # type: ignore[arg-type]
        for compress in (False, True)
    ]

    def use(packet: wire.Packet) -> None:
        assert sum(array.nbytes for array in packet.arrays.values()) <= 1 << 16
        repr(packet.meta)

    hostile = [*samples * 4, bomb(wire.Tag.STATE)]
    return Target(0.43, hostile, forge_packet, lambda data: wire.decode(data, 1 << 16), use, (wire.WireError,))


def _messages(args: options.Args) -> Target:
    agent = make_agent(args, discrete((5,), "uint8", 3), CPU, learns=False, seed=1)
    said = _played(args, agent)
    samples = [encode_message(next(m for m in said if isinstance(m, kind))) for kind in (Chunk, Chunk, Episode)]
    samples += [encode_message(message) for message in (Joined(3), RoundEnd(4))]
    decode = actor_messages(agent.spec, discrete((5,), "uint8", 3), nb_env=2).decode
    replay = Replay(agent.spec, discrete((5,), "uint8", 18), 512, torch.Generator().manual_seed(1), CPU)
    sequence = itertools.count()
    for message in said:
        if isinstance(message, Chunk):
            replay.add(ChunkId(0, next(sequence)), message)
    replay.sample(4, 0.5)  # loads compiled code, which is no fault of a case

    def use(message: Message) -> None:
        if isinstance(message, Chunk):
            replay.add(ChunkId(0, next(sequence)), message)
            if replay._tree.total and replay.inserted % 50 == 0:
                check_valid(replay)
                weights = replay.sample(4, 0.5).weights
                assert weights is not None and weights.isfinite().all()
        elif isinstance(message, Episode):
            _use([training_record(message, 1)] * 2)  # sums of two must be finite, too

    return Target(0.30, [*samples * 2, bomb(wire.Tag.CHUNK)], forge_packet, decode, use, (ValueError,))


def _evaluations() -> Target:
    values = asdict(RECORD) | {"version": 3}
    sample = encode_message(Episode({name: values[name] for name in values if name not in ("actor", "env", "episode")}))
    decode = EVALUATION_MESSAGES.decode

    def use(message: Message) -> None:
        assert isinstance(message, Episode)
        record = evaluation_record(Entry(ChunkId(1, 8), message))
        assert (record.actor, record.env, record.episode) == (1, 0, 7)
        _use([record] * 2)

    return Target(0.05, [sample, encode_message(RoundEnd(4))], forge_packet, decode, use, (ValueError,))


def _sequences(words: str) -> Target:
    """Messages of an agent that learns from sequences, and updates from what is taken of them."""
    args = options.parse([*SETTINGS, "--multi-step", "2", *words.split()], "fuzz", "")
    environment = discrete((5,), "uint8", 3)
    agent = make_agent(args, environment, CPU, learns=True, seed=1)
    said = _played(args, agent)
    samples = [encode_message(next(m for m in said if isinstance(m, kind))) for kind in (Chunk, Chunk, Episode)]
    sized = replace(args, memory_capacity=100, batch_size=4, learn_start=1)
    buffer = make_buffer(sized, agent, environment, torch.Generator().manual_seed(1))
    sequence = itertools.count()

    def use(message: Message) -> None:
        if isinstance(message, Chunk):
            buffer.add(ChunkId(0, next(sequence)), message)
            enough = buffer.ready() if isinstance(buffer, Mixture) else buffer.chunks >= 4
            if buffer.inserted % 5 == 0 and enough:
                batch = buffer.sample(4, 0.5)
                update = agent.update(batch, 0.5)
                assert all(metric.isfinite() for metric in update.metrics.values())
                buffer.learned(batch, update.priorities)
                if isinstance(buffer, Mixture):
                    check_valid(buffer)

    for message in said:
        use(message)
    decode = actor_messages(agent.spec, environment, 2).decode
    return Target(0.35, samples * 2, forge_packet, decode, use, (ValueError,))


def _played(args: options.Args, agent: Agent) -> list[Message]:
    player = Rollout(args, agent, VectorEnvironment([ChainEnvironment(seed) for seed in range(2)]))
    return [message for step in range(200) for message in player.play(step, step)]


def _use(records: list[EpisodeRecord]) -> None:
    """As the plot does."""
    for record in records:
        format_line(record)
    moments = ScoreCurve(records=records).moments
    json.dumps(to_plotly(reward_figure(moments, Task("pong"), 4, moments)), allow_nan=False)


def _weights(args: options.Args) -> Target:
    agent = make_agent(args, discrete((5,), "uint8", 3), CPU, learns=False, seed=1)
    player = Rollout(args, agent, VectorEnvironment([ChainEnvironment(seed) for seed in range(2)]))
    weights = agent.model.published()
    half = {name: tensor.bfloat16() for name, tensor in weights.items()}
    most = weights_packet.most_bytes(agent.loaded())

    def read(data: bytes) -> dict[str, torch.Tensor]:
        return weights_packet.weights_for(agent.loaded(), wire.decode(data, most))

    def use(weights: dict[str, torch.Tensor]) -> None:
        player.load(weights, 1)
        with suppress(RunError):  # outputs that no learner takes end an actor
            player.play(10**6, 10**6)

    samples = [weights_packet.pack(weights, 1), weights_packet.pack(half, 2)]
    return Target(0.05, [*samples * 4, bomb(wire.Tag.WEIGHTS)], forge_packet, read, use, (wire.WireError, RunError))


def _cart_pole(seed: int) -> Environment:
    return GymnasiumEnvironment(EnvironmentSettings(env="gymnasium:CartPole-v1"), seed)


def _state(args: options.Args, kind: str, make: Callable[[int], Environment]) -> Target:
    vector = VectorEnvironment([make(seed) for seed in range(2)])
    first = vector.environments[0]
    player = Rollout(args, make_agent(args, first.spec, CPU, learns=False, seed=1), vector)
    samples = [player.snapshot(ResumePoint(0, 0))]
    for step in range(75):
        player.play(step, step)
    samples.append(player.snapshot(ResumePoint(3, 2)))

    def use(_: int) -> None:
        for step in range(9):
            player.play(step, step)
        player.snapshot(ResumePoint(4, 0))

    share = 0.02 if kind == "chain" else 0.01
    hostile = [*samples * 4, bomb(wire.Tag.STATE)]
    return Target(share, hostile, forge_packet, lambda data: player.restore(Saved(data, 5)), use, (RunError,))


class _SavedBuffer(NamedTuple):
    """A buffer's checkpoint, what restores one, and what is done with the buffer then."""

    checkpoint: Checkpoint
    restore: Callable[[Checkpoint], Any]
    use: Callable[[Any], None]


def _saved_replay(agent: Agent) -> _SavedBuffer:
    def restore(checkpoint: Checkpoint) -> None:
        replay = Replay(agent.spec, discrete((5,), "uint8", 3), 256, torch.Generator().manual_seed(1), CPU)
        replay.restore(checkpoint, {0: 10})

    checkpoint = Checkpoint(2, torch.tensor([[0, 5], [0, 6]]), torch.ones(2, agent.spec.samples))
    return _SavedBuffer(checkpoint, restore, lambda _: None)


def _mixture_snapshots(path: Path) -> Target:
    """Checkpoints of a mixture, which is used where one is taken: half of its chunks come again, and more."""
    args = options.parse([*SETTINGS, *MIXTURE.split(), "--memory-capacity", "100"], "fuzz", "")
    environment = discrete((5,), "uint8", 3)
    agent = make_agent(args, environment, CPU, learns=True, seed=1)
    chunks = [message for message in _played(args, agent) if isinstance(message, Chunk)]

    def make() -> Mixture:
        mixture = make_buffer(args, agent, environment, torch.Generator().manual_seed(1))
        assert isinstance(mixture, Mixture)
        return mixture

    def add(mixture: Mixture, some: Iterable[int]) -> None:
        for number in some:
            mixture.add(ChunkId(0, number), chunks[number % len(chunks)])
            if number % 6 == 0 and mixture.ready():
                mixture.learned(mixture.sample(None), torch.ones(4))

    def restore(checkpoint: Checkpoint) -> Mixture:
        mixture = make()
        mixture.restore(checkpoint, {0: len(chunks)})
        return mixture

    def use(mixture: Mixture) -> None:
        check_valid(mixture)
        add(mixture, [number for number in range(len(chunks)) if number % 2 and mixture.remembers(ChunkId(0, number))])
        mixture.forget({0: len(chunks)})
        check_valid(mixture)
        add(mixture, range(len(chunks), len(chunks) + 40))
        check_valid(mixture)
        mixture.checkpoint()

    good = make()
    add(good, range(len(chunks)))
    return _snapshots(args, agent, path, _SavedBuffer(good.checkpoint(), restore, use))


def _snapshots(args: options.Args, agent: Agent, path: Path, buffer: _SavedBuffer) -> Target:
    values = {
        "T_actors": 5, "T_learner": 4, "run_id": "abc", "round": 1, "round_end": 8, "best_mean": 1.5,
        "settings": json.dumps(args.shared), "counted": {0: 7}, "published": {3: torch.zeros(9, dtype=torch.uint8)},
        "replay_generator": torch.Generator().get_state(),
        "replay": structs.asdict(buffer.checkpoint),
        "run_name": "fuzz", "crews": [[0, 0, 1, 8]], "logged": 90, "finished": False, "server": "here", "saves": 2,
    }  # fmt: skip
    snapshot.save(path, agent, values)
    good = path.read_bytes()
    content = torch.load(path, weights_only=True)
    torch.save(content, path, _use_new_zipfile_serialization=False)
    legacy = path.read_bytes()

    def forge(rng: random.Random, data: bytes) -> bytes:
        return _forged_snapshot(rng, content, path) if rng.random() < 0.3 else forge_archive(rng, data)

    def read(data: bytes) -> Any:
        path.write_bytes(data)
        saved = snapshot.load(path, "--model")
        restored = None
        with damage_named(path):
            if saved.keys() >= values.keys():
                restored = buffer.restore(parse(path, saved).ranks[0].replay)
            snapshot.restore(agent, saved)
        snapshot.restore_weights(agent, saved)
        return restored

    def use(restored: Any) -> None:
        if restored is not None:
            buffer.use(restored)

    return Target(0.005, [good, legacy], forge, read, use, (UserError,))


def _forged_snapshot(rng: random.Random, content: dict[str, Any], path: Path) -> bytes:
    """A file that torch has written, with another value in one place."""
    strange: tuple[Any, ...] = (
        None, -1, 2**70, "x", float("nan"), [], {}, {"x": 1}, torch.zeros(3), torch.tensor(float("nan")), (1, 2),
        torch.zeros(0, 7), torch.ones(2, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.bool).expand(10**6),
    )  # fmt: skip

    def change(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() and rng.random() < 0.7:
            new = value.clone()
            new.view(-1)[rng.randrange(value.numel())] = rng.choice((0, 1, 2, 3, 5, 60, 255))
            return new
        if not isinstance(value, dict) or not value or rng.random() > 0.9:
            return rng.choice(strange)
        key = rng.choice([*value, *(key for key in ("replay", "extra") if key in value)])
        others = {name: value[name] for name in value if name != key}
        return others if rng.random() < 0.1 else others | {key: change(value[key])}

    key = rng.choice([*content, "replay", "replay"])
    torch.save(content | {key: change(content[key])}, path)
    return path.read_bytes()


def _log(path: Path) -> Target:
    lines = [RECORD, RECORD, RECORD]
    good = (HEADER + "\n" + "".join(map(format_line, lines))).encode()

    def read(data: bytes) -> list[EpisodeRecord]:
        path.write_bytes(data)
        return read_records(path)

    return Target(0.12, [good], damage_lines, read, _use, (ValueError,))
