"""Small runs that are disturbed, and everything that must be true of them afterwards."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rainbow_iqn_apex.agents.sequences import state_fields
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Discrete, Field
from rainbow_iqn_apex.memory.mixture.spec import EXPIRY
from rainbow_iqn_apex.programs import snapshot
from tests.chaos.checks import Messages, check_replay, check_scores, check_steps, check_streams, check_what_was_read
from tests.chaos.learning import check_backlog, check_draws, check_policy, check_queue, check_replayed
from tests.chaos.notes import read_learned, read_messages
from tests.chaos.system import Chaos, chaos
from tests.small import CARTPOLE, FREE, TINY

ACTORS, ENVS = 2, 2
ROUND = 40  # agent steps: over all actors in lockstep, else of each process
OPTIONS = [
    *CARTPOLE,
    *TINY,
    *f"--history-length 2 --nb-env-per-actor {ENVS} --weight-synchro-frequency {ROUND}".split(),
    *"--log-interval 20000 --evaluation-interval 2000".split(),
    *"--length-actor-buffer 100 --learner-threads 1".split(),
]
ENDLESS = [*FREE, "--T-max", "100000000"]
LSTM_SIZE, ACTIONS = 7, 2
NEWEST, ELITE = 60, 40  # sequences of a mixture's tables
CONSTANT = "--lr-IMPALA 1e-30 --lr-R2D2 1e-30".split()  # so that the weights that acted are known
# The most messages of an actor that wait without lockstep, beside those in a queue: `RateLimiter.max_unread`, those of
# one more round (a chunk has 5 steps, an episode 8 at least), what the reader holds decoded, and what one read brings.
BACKLOG = 16 + ENVS + (ROUND // 5 + ROUND // 8 + 2 * ENVS) + 16 + 32
Disturb = Callable[[Chaos], None]


class Family(NamedTuple):
    """An agent, its chunks, and the chunks for which its buffer has room."""

    spec: ChunkSpec
    slots: int
    options: list[str]
    has_queue: bool = False
    held_for: tuple[int, ...] = ()  # of a mixture: of each replayed place of a batch, insertions

    @property
    def words(self) -> list[str]:
        """The command line of all its runs."""
        return [*OPTIONS, *self.options, "--memory-capacity", str(self.slots * self.spec.period)]


def _impala(batch: int, lstm: int) -> Family:
    words = f"--agent impala --unroll-length 5 --batch-size {batch} --hidden-size 9 --lstm-size {lstm}".split()
    extras = (("log_policy", Field((ACTIONS,), "float32")),)
    return Family(
        ChunkSpec(2, 0, 5, 1, 5, 5, extras, state_fields(lstm, Discrete(ACTIONS)), prioritised=False),
        2 * batch + 1,
        words,
        has_queue=True,
    )


def _mixture() -> Family:
    """Four fresh sequences a batch, and two of each table; these record values and features, and hold memories."""
    family = _impala(8, LSTM_SIZE)
    tables = f"prioritised:0.25:{NEWEST},elite:0.25:{ELITE} --elite-insertion --feature-projection 5".split()
    words = ["--value-cloning-cost", "0.01", "--queue-size", "2", "--replay-mix", f"queue:0.5,{tables[0]}", *tables[1:]]
    more = (("value", Field((), "float32")), ("features", Field((5,), "float32")))
    return family._replace(
        spec=replace(family.spec, extras=family.spec.extras + more),
        options=[*family.options, *words],
        held_for=(NEWEST, NEWEST, EXPIRY * ELITE, EXPIRY * ELITE),
    )


def _on_policy(agent: str, more: str, lstm: int = 0) -> Family:
    rows = ROUND // (ACTORS * ENVS)
    words = f"--agent {agent} --unroll-length {rows} --epochs 2 --mlp-size 9 --hidden-size 9 {more}".split()
    extras = (("parameters", Field((ACTIONS,), "float32")), ("return", Field((), "float32")))
    state = state_fields(lstm, Discrete(ACTIONS))
    return Family(ChunkSpec(2, 0, rows, 1, rows, rows, extras, state, prioritised=False), 30, words, has_queue=True)


# Replays turn over on the way.
RAINBOW = Family(ChunkSpec(2, 0, 64, 3, 64, 1), 60, "--multi-step 3 --learn-start 400".split())
FAMILIES = {
    "rainbow": RAINBOW,
    "impala": _impala(4, 0),
    "impala-lstm": _impala(3, LSTM_SIZE),
    "mixture": _mixture(),
    "sac": Family(
        ChunkSpec(2, 0, 64, 2, 64, 1, prioritised=False),
        60,
        "--agent sac --multi-step 2 --learn-start 400 --replay-frequency 4".split(),
    ),
    "r2d2": Family(
        ChunkSpec(2, 3, 8, 3, 5, 8, state=state_fields(LSTM_SIZE, Discrete(ACTIONS))),
        100,
        "--agent r2d2 --burn-in 3 --sequence-length 8 --sequence-period 5 --multi-step 3 --learn-start 400".split()
        # An update stands for 60 steps, so that it is the learner that waits for rows.
        + f"--samples-per-insert 0.5 --lstm-size {LSTM_SIZE} --target-period 50 --exploration-base 0.9".split(),
    ),
    "ppo": _on_policy("ppo", "--minibatches 2"),
    "vmpo-lstm": _on_policy("vmpo", f"--lstm-size {LSTM_SIZE} --minibatch-split sequences --minibatches 1", LSTM_SIZE),
}
TAKE_TURNS = {"ppo", "vmpo-lstm"}  # these are in lockstep always


class Result(NamedTuple):
    """What must not depend on anything that happens to a run in lockstep."""

    weights: str  # their hash, as the learner says it
    model: dict[str, bytes]
    scores: bytes  # the training log
    messages: dict[int, list[tuple[int, bytes]]]


def asynchronous_run(
    folder: Path, disturb: Disturb, mutations: dict[str, str] | None = None, family: Family = RAINBOW
) -> None:
    """Disturb a run without lockstep, stop it in good order, and check everything."""
    words = [*family.words, *ENDLESS, *CONSTANT]
    with chaos(folder, words, ACTORS, mutations) as system:
        disturb(system)
        system.leave()
        messages = check(system, family)
        saved = last_snapshot(system)
        if family.has_queue:
            check_backlog(system.tap.seen, read_messages(folder), BACKLOG + family.slots)
        elif family.spec.state:
            assert saved["T_learner"] <= saved["T_actors"], "sequences are learned from more often than they may"
        if family.spec.state or family.spec.extras:
            check_policy(saved, messages, words)


def lockstep_run(folder: Path, steps: int, disturb: Disturb, family: Family) -> Result:
    """Disturb a run in lockstep, let it end, and check everything."""
    with chaos(folder, [*family.words, "--T-max", str(steps)], ACTORS) as system:
        disturb(system)
        system.finish()
        check(system, family, lockstep=True)
        saved = last_snapshot(system)
        weights = {name: tensor.numpy().tobytes() for name, tensor in saved["model_state_dict"].items()}
        (hash_,) = system.weights()
        return Result(hash_, weights, scores_of(system).read_bytes(), system.tap.messages)


def check(system: Chaos, family: Family, *, lockstep: bool = False) -> Messages:
    """Nothing is missing, nothing is doubled, and nobody is left; returns the messages that learners have read.

    Without lockstep these are all, as the learner was the last to end.
    """
    system.check_nobody_is_left()
    messages = check_streams(system.tap.messages, states(system), family.spec, ENVS)
    read = check_what_was_read(read_messages(system.folder), messages)
    if not lockstep:
        assert read == {actor: stream[-1][0] for actor, stream in messages.items()}, "not everything was read"
    messages = {actor: stream[: read[actor]] for actor, stream in messages.items()}
    check_scores(messages, scores_of(system))
    saved = last_snapshot(system)
    learned = read_learned(system.folder)
    if family.spec.samples == 1:
        check_draws(learned.draws, messages)
    if family.held_for:
        check_replayed(saved, learned, [*family.held_for], NEWEST)
    if family.has_queue:
        most = family.slots + (2 * ROUND + ENVS * ACTORS if lockstep else 0)  # in lockstep two rounds' chunks
        check_queue(saved, learned.draws, messages, family.spec, most)
    else:
        check_replay(saved, messages, family.slots)
    if not lockstep:
        check_steps(saved, messages, family.spec)
    return messages


def states(system: Chaos) -> dict[int, bytes]:
    """What each actor has left."""
    (run_id,) = system.tap.runs
    keys = Keys(system.name, run_id)
    found: dict[int, Any] = {actor: system.client.hget(keys.state(actor), "state") for actor in system.tap.messages}
    return found


def scores_of(system: Chaos) -> Path:
    return system.folder / "CartPole-v1.csv"


def last_snapshot(system: Chaos) -> dict[str, Any]:
    return snapshot.load(snapshot.last_models(system.folder, "CartPole-v1")[0], "test")
