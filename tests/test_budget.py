"""A run that cannot fit is refused before it starts, with the numbers."""

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.admin import memory_use
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.messages import encode_message
from rainbow_iqn_apex.memory.mixture import buffer
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs import machine, snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import make_limiter
from rainbow_iqn_apex.programs.learner import budget
from rainbow_iqn_apex.programs.learner.budget import make_buffer
from rainbow_iqn_apex.programs.learner.ingest import actor_messages
from tests.conftest import RedisServer
from tests.processes import Processes, run
from tests.refusals.chunks import zeros_of
from tests.specs import ATARI, CARTPOLE

pytestmark = pytest.mark.redis
_GB = r"\d+\.\d GB"


def learner(server: RedisServer, folder: Path, *more: str) -> list[str]:
    place = ["--port-redis", str(server.port), "--path-to-results", str(folder / "results")]
    return ["launch_learner.py", *place, "--disable-cuda", *more]


def refusal(command: list[str]) -> str:
    code, out, errors = run(*command, seconds=100)
    assert code == 2, (out, errors)
    assert re.search(rf"^Budget: .*; each actor {_GB}$", out, re.MULTILINE), out
    return errors


def test_a_replay_beyond_the_machine(own_server: RedisServer, tmp_path: Path) -> None:
    told = refusal(learner(own_server, tmp_path, "--memory-capacity", "100000000"))
    wanted = (
        rf"--memory-capacity: choose a smaller one: learner and Redis 8\d\d\.\d GB of {_GB} free here; --force starts"
    )
    assert re.search(wanted, told), told


@pytest.mark.slow
def test_a_log_beyond_maxmemory(
    own_server: RedisServer, own_client: Client, processes: Processes, tmp_path: Path
) -> None:
    own_client.config_set("maxmemory", "100mb")
    command = learner(own_server, tmp_path, "--memory-capacity", "500000", "--nb-env-per-actor", "40")
    told = refusal(command)
    assert re.search(r"raise maxmemory.*: Redis 0\.\d GB of 0\.1 GB left of its maxmemory; --force", told), told
    assert len(told.splitlines()) == 1
    process = processes.start(*command, "--force")
    process.wait_for("\nReplay has room for 12500 rows of each environment (40 of them); below 16000")
    process.wait_for("\nLearner of run")
    process.terminate()
    assert process.finish(60) == 0


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("--memory-capacity 16000", None),
        ("--memory-capacity 15999", "15999 rows of each environment (1 of them)"),
        ("--nb-actor 3 --nb-env-per-actor 5 --memory-capacity 239999", "15999 rows of each environment (15 of them)"),
        ("--nb-actor 3 --nb-env-per-actor 5 --memory-capacity 240000", None),
        ("--agent impala --nb-env-per-actor 8", None),
        ("--agent r2d2 --preset cpu", None),
        ("--preset cpu --memory-capacity 100000", None),
        ("--preset cpu --memory-capacity 15999", "15999 rows of each environment (1 of them)"),
        ("--preset cpu --memory-capacity 100000 --nb-env-per-actor 8", "12500 rows of each environment (8 of them)"),
        ("--agent r2d2 --preset cpu --memory-capacity 25000", None),
        ("--agent r2d2 --preset cpu --nb-actor 2", "1562 rows of each environment (32 of them)"),
    ],
)
def test_few_rows_of_replay_for_each_environment_are_told(words: str, rows: str | None) -> None:
    # Mutations: rows of each actor, the same for a queue, a bound that is one row lower.
    args = options.parse([*words.split(), "--learn-start", "800", "--hidden-size", "8"], "test", "")
    told = budget.few_rows(args, make_agent(args, ATARI, torch.device("cpu"), learns=True, seed=1))
    assert (f"room for {rows};" in told) if rows else told == ""


def test_only_what_a_run_of_this_name_holds_is_its_own(own_client: Client) -> None:
    log = Keys("pong", "id").log(0)
    for number in range(1, 201):
        own_client.xadd(log, {"m": bytes(50_000)}, id=f"{number}-0")
    own_client.set(Keys("pong2", "id").weights(0), bytes(5_000_000))
    use = {name: memory_use(own_client, name).ours for name in ("pong", "pong2", "pon", "*")}
    assert 10e6 <= use.pop("pong") < 12e6
    assert 5e6 <= use.pop("pong2") < 6e6
    assert use == {"pon": 0, "*": 0}


def test_chunks_that_the_learner_would_not_read() -> None:
    def spec(stack: int) -> ChunkSpec:
        return ChunkSpec(stack=stack, burn_in=0, length=64, bootstrap_rows=3, period=64, sample_length=1)

    budget.check_chunk(spec(4), ATARI)
    budget.check_chunk(spec(2200), ATARI)
    with pytest.raises(UserError, match=r"^--history-length: a chunk of 2466 rows has up to 17497.* 16777216 at most"):
        budget.check_chunk(spec(2400), ATARI)


def test_a_chunk_with_the_state_of_a_large_network_is_read() -> None:
    # Mutation: count the rows alone.
    spec = ChunkSpec(1, 0, 4, 1, 4, 4, state=(("h", Field((40_000,), "float32")),), prioritised=False)
    state = {"h": np.random.default_rng(1).random(40_000, np.float32)}  # which no compression makes smaller
    message = actor_messages(spec, CARTPOLE, nb_env=1).decode(
        encode_message(Chunk(0, 0, zeros_of(spec, CARTPOLE), state, None))
    )
    assert isinstance(message, Chunk) and np.array_equal(message.state["h"], state["h"])


def test_a_queue_has_room_for_what_more_actors_have_left() -> None:
    # Mutation: count the chunks of the actors that play now.
    def rows(*numbers: int) -> int:
        words = f"--agent impala --nb-env-per-actor 64 --nb-actor {numbers[-1]} --learn-start 1 --hidden-size 8"
        args = options.parse(words.split(), "test", "")
        agent = make_agent(args, CARTPOLE, torch.device("cpu"), learns=True, seed=1)
        limiter = make_limiter(replace(args, nb_actor=numbers[0]), agent.spec, ())
        for number in numbers[1:]:
            limiter = limiter.change(3, 3, number)
        return budget.capacity(args, agent, limiter)

    assert rows(4) == rows(4, 1) == rows(4, 1, 2) > rows(1)


def test_memory_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free = machine.available_memory()
    assert 10**7 < free < 10**14
    (tmp_path / "memory.max").write_text(f"{free // 2}\n")
    (tmp_path / "memory.current").write_text("1000\n")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert machine.available_memory() == free // 2 - 1000
    (tmp_path / "memory.stat").write_text("file 800\ninactive_file 700\nactive_file 100\n")
    assert machine.available_memory() == free // 2 - 300  # Mutation: count what was read from files as used
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.available_memory() > free // 2
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "missing")
    assert machine.available_memory() > free, "all that the machine has"


def test_what_has_worked_is_told_of_little_memory_and_not_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the kernel has killed it for want of memory, others hold what is missing."""
    (tmp_path / "meminfo").write_text("MemAvailable: 1000 kB\n")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    with pytest.raises(UserError, match="start fewer actors on this machine"):
        machine.check_actor(options.parse([], "test", ""))
    monkeypatch.setenv("RAINBOW_HAS_WORKED", "yes")
    machine.check_actor(options.parse([], "test", ""))
    assert capsys.readouterr().out.startswith("start fewer actors on this machine: actor 0.3 GB of 0.0 GB free here\n")


def test_an_actor_that_asks_fits_where_one_that_computes_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Mutation: ask the same memory of both.
    (tmp_path / "memory.max").write_text("200000000\n")
    (tmp_path / "memory.current").write_text("0\n")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    for place in ("server", "learner"):
        machine.check_actor(options.parse(["--id-actor", "0", "--inference", place], "test", ""))
    with pytest.raises(
        UserError, match=r"^start fewer actors on this machine: actor 0\.\d GB of 0\.2 GB free here; --force"
    ):
        machine.check_actor(options.parse(["--id-actor", "0"], "test", ""))


def test_the_inference_server_of_a_learner_is_counted(
    own_client: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Mutations: leave it out; count one policy where each actor in lockstep, and each evaluation actor, has its own.
    needed = {}
    for place in ("server", "learner"):
        words = (
            f"--inference {place} --nb-actor 30 --nb-eval-actors 20 --force --learn-start 800 --memory-capacity 9000"
        )
        args = options.parse([*words.split(), "--path-to-results", str(tmp_path)], "test", "")
        agent = make_agent(args, ATARI, torch.device("cpu"), learns=True, seed=1)
        budget.check_learner(args, agent, ATARI, torch.device("cpu"), own_client, 0)
        found = re.search(r"Budget: learner and Redis (\d+\.\d) GB", capsys.readouterr().out)
        assert found
        needed[place] = float(found[1])
    weights = sum(4e-9 * tensor.numel() for tensor in agent.model.parameters())
    assert abs(needed["learner"] - needed["server"] - 0.35 - 51 * weights) <= 0.11, needed


def test_a_server_that_drops_keys_is_refused(own_client: Client, tmp_path: Path) -> None:
    # Mutation: look at the policy alone, which decides nothing where there is no limit.
    own_client.config_set("maxmemory-policy", "allkeys-lru")
    for words in ([], ["--force"]):
        args = options.parse(
            ["--learn-start", "800", "--memory-capacity", "9000", "--path-to-results", str(tmp_path), *words],
            "test",
            "",
        )
        agent = make_agent(args, ATARI, torch.device("cpu"), learns=True, seed=1)
        own_client.config_set("maxmemory", 0)
        budget.check_learner(args, agent, ATARI, torch.device("cpu"), own_client, 0)
        own_client.config_set("maxmemory", 1 << 40)
        with nullcontext() if words else pytest.raises(UserError, match=r"maxmemory-policy allkeys-lru.*noeviction"):
            budget.check_learner(args, agent, ATARI, torch.device("cpu"), own_client, 0)


def test_the_files_of_a_run_are_as_large_as_announced(tmp_path: Path) -> None:
    # Mutation: count a checkpoint as 3 times the weights, or one checkpoint less.
    args = options.parse("--memory-capacity 100000 --hidden-size 100 --precision float32".split(), "test", "")
    agent = make_agent(args, ATARI, torch.device("cpu"), learns=True, seed=1)
    model, adam = agent.parts["model"], agent.parts["optimiser"]
    assert isinstance(model, Network) and isinstance(adam, torch.optim.Optimizer)
    sum(parameter.sum() for parameter in model.parameters()).backward()  # type: ignore[union-attr]
    adam.step()
    packet = torch.frombuffer(bytearray(weights_packet.pack(model.published(), 1)), dtype=torch.uint8)
    chunks = args.memory_capacity // agent.spec.period
    replay = {"ids": torch.zeros(chunks, 2, dtype=torch.int64), "priorities": torch.zeros(chunks, agent.spec.samples)}
    snapshot.save(tmp_path / "whole.pth", agent, {"replay": replay, "published": {1: packet, 2: packet.clone()}})
    snapshot.save_weights(tmp_path / "weights.pth", agent, {})
    whole, weights = ((tmp_path / name).stat().st_size for name in ("whole.pth", "weights.pth"))
    parameters = 4 * sum(parameter.numel() for parameter in model.parameters())
    for kept in (0, 14):  # two checkpoints, the best, one that is being written
        needed = 4 * whole + kept * weights
        assert needed <= budget._files_bytes(args, agent, parameters, kept) <= 1.2 * needed


MIXED = {
    "newest": "--replay-mix queue:0.5,prioritised:0.25:600,uniform:0.25:300",
    "elite": "--replay-mix queue:0.5,uniform:0.25:60,elite:0.25:400 --value-cloning-cost 1",
    "elite insertion": "--replay-mix queue:0.5,uniform:0.25:60,elite:0.25:200 --elite-insertion",
}
UPDATES = {
    "impala": "--agent impala",
    "impala in float32": "--agent impala --precision float32",
    "impala deep": "--agent impala --architecture deep --lstm-size 256 --batch-size 4",
    "r2d2": "--agent r2d2 --lstm-size 256 --batch-size 10 --precision float32",
    "r2d2 burn-in": "--agent r2d2 --lstm-size 64 --burn-in 300 --sequence-length 10 --sequence-period 5 --batch-size 5 "
    "--precision float32",
    "r2d2 data-efficient": "--agent r2d2 --architecture data-efficient --lstm-size 128 --batch-size 14",
}
MIXTURES = {
    "elite": "--batch-size 32 --replay-mix queue:0.5,elite:0.5:100 --queue-size 1",
    "elite of small batches": "--batch-size 4 --replay-mix queue:0.5,elite:0.5:100 --candidates 40 --queue-size 1",
    "elite ahead": "--batch-size 8 --replay-mix queue:0.5,elite:0.5:100 --queue-size 16",
    "uniform ahead": "--batch-size 16 --replay-mix queue:0.5,uniform:0.5:100 --queue-size 12",
    "attentive with IMPACT": "--batch-size 16 --replay-mix queue:0.75,attentive:0.25:50 --impact-target-period 4",
}
UPDATES |= {name: f"--agent impala {words}" for name, words in MIXTURES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_an_update_takes_no_more_than_estimated_and_at_least_half(name: str) -> None:
    # Mutations: leave out what a library sorts anew, the activations, or the rows of the burn-in; of a mixture the
    # batches ahead, or what tables measure.
    out = run("-m", "tests.update_memory", *UPDATES[name].split(), seconds=200).succeeded()
    used, estimated = map(int, out.split())
    assert used <= estimated <= 2 * used, (used, estimated)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "rainbow_iqn --precision float32",
        "rainbow_iqn --num-tau-samples 16 --precision float32",
        "rainbow --atoms 400 --precision float32",
        "btr --precision float32",
    ],
)
def test_an_update_of_many_samples_takes_what_the_budget_has_room_for_and_what_is_estimated(words: str) -> None:
    # Mutations: count the batch alone; leave out the heads.
    out = run("-m", "tests.update_memory", "--batch-size", "128", "--agent", *words.split(), seconds=200).succeeded()
    used, estimated = map(int, out.split())
    assert used - 200e6 <= estimated <= 1.5 * used, (used, estimated)


@pytest.mark.parametrize("name", MIXED)
def test_a_mixture_needs_no_more_than_is_announced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: count a table's capacity for the log, where elite insertion keeps four; or one checkpoint's alone.
    for module in (budget, buffer):
        monkeypatch.setattr(module, "LOG_ROWS", 100)
    words = f"--agent impala --batch-size 8 --memory-capacity 320 --hidden-size 16 {MIXED[name]}"
    args = options.parse([*words.split(), "--precision", "float32"], "test", "")
    agent = make_agent(args, CARTPOLE, torch.device("cpu"), learns=True, seed=1)
    mixture = make_buffer(args, agent, CARTPOLE, torch.Generator())
    assert isinstance(mixture, Mixture)
    spec, rng = agent.spec, np.random.default_rng(1)
    mixture.features.measure = lambda rows, _: rows["extras.features"][spec.stack - 1 :] + rows["obs"][:1, :, :1]
    log: dict[int, int] = {}  # bytes by message
    needed, most_logged, most_held = [0], 0, 0
    for number in range(1700):  # more than two checkpoints and what a table holds before them
        rows = {
            field: rng.standard_normal((spec.window, *form.shape)).astype(form.dtype)
            for field, form in spec.row_fields(CARTPOLE).items()
        }
        rows["obs"][0] = number  # the newest have changed most, so an elite table keeps what it has as long as it may
        rows["step_type"][:] = StepType.MID
        chunk = Chunk(0, 0, rows, {}, None)
        log[number + 1] = len(encode_message(chunk))
        mixture.add(ChunkId(0, number + 1), chunk)
        if mixture.ready():
            mixture.learned(mixture.sample(None), torch.ones(8))
        most_logged, most_held = max(most_logged, sum(log.values())), max(most_held, mixture.chunks)
        if mixture.inserted % mixture.turnover == 0:
            needed.append(mixture.oldest()[0])
            log = {sequence: size for sequence, size in log.items() if sequence >= needed[-2]}
    announced = budget._redis_bytes(args, agent, CARTPOLE, 0) - budget._REDIS - args.nb_env * budget._STATE
    assert most_logged <= announced <= 2 * most_logged, (most_logged, announced)
    held = most_held * budget.chunk_bytes(spec, CARTPOLE)
    assert held <= budget.replay_bytes(args, agent, CARTPOLE) <= 2 * held
    checkpoint = mixture.checkpoint()
    saved = sum(tensor.nbytes for tensor in (checkpoint.ids, checkpoint.priorities, *checkpoint.extra.values()))
    assert saved <= budget._SAVED * budget.held(args, agent).at_once <= 4 * saved


@pytest.mark.parametrize("words", ["--agent r2d2 --lstm-size 512", "--agent r2d2", "--agent impala --lstm-size 64"])
def test_states_and_extras_are_counted(words: str) -> None:
    # Mutation: count the observations alone, and R2D2's memory, twenty times as large here, is forgotten.
    args = options.parse(
        [*words.split(), "--memory-capacity", "8000", "--learn-start", "10", "--history-length", "1"], "", ""
    )
    for environment in (CARTPOLE, ATARI):
        agent = make_agent(args, environment, torch.device("cpu"), learns=False, seed=1)
        replay = Replay(agent.spec, environment, args.memory_capacity, torch.Generator(), torch.device("cpu"))
        held = sum(part.nbytes for parts in (replay.ring.rows, replay.ring.state) for part in parts.values())
        assert held <= budget.replay_bytes(args, agent, environment) <= 1.2 * held
        log = budget._redis_bytes(args, agent, environment, 0) - budget._REDIS - args.nb_env * budget._STATE
        assert log >= 2 * sum(part.nbytes for part in replay.ring.state.values()), "a memory cannot be compressed"
