"""Small runs that are disturbed, and everything that must be true of them afterwards."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from memory.broker.transport import Keys
from memory.chunk import ChunkSpec
from programs import snapshot
from tests.chaos.checks import check_replay, check_scores, check_streams, check_what_was_read
from tests.chaos.system import Chaos, chaos
from tests.small import CARTPOLE, FREE, TINY

ACTORS, ENVS = 2, 2
SLOTS = 60  # chunks in the replay, which turns over on the way
SPEC = ChunkSpec(stack=2, burn_in=0, length=64, bootstrap_rows=3, period=64, sample_length=1)
OPTIONS = [
    *CARTPOLE,
    *TINY,
    *f"--history-length {SPEC.stack} --multi-step {SPEC.bootstrap_rows} --nb-env-per-actor {ENVS}".split(),
    *"--learn-start 400 --weight-synchro-frequency 40 --log-interval 20000 --evaluation-interval 2000".split(),
    *"--length-actor-buffer 100 --learner-threads 1".split(),
]
ENDLESS = [*FREE, "--T-max", "100000000"]
Disturb = Callable[[Chaos], None]


class Result(NamedTuple):
    """What must not depend on anything that happens to a run in lockstep."""

    weights: str  # their hash, as the learner says it
    model: dict[str, bytes]
    scores: bytes  # the training log
    messages: dict[int, list[tuple[int, bytes]]]


def asynchronous_run(
    folder: Path, disturb: Disturb, mutations: dict[str, str] | None = None, slots: int = SLOTS
) -> None:
    """Disturb a run without lockstep, stop it in good order, and check everything."""
    with chaos(folder, [*OPTIONS, *ENDLESS, *replay_of(slots)], ACTORS, mutations) as system:
        disturb(system)
        system.leave()
        check(system, slots)


def lockstep_run(folder: Path, steps: int, disturb: Disturb) -> Result:
    """Disturb a run in lockstep, let it end, and check everything."""
    with chaos(folder, [*OPTIONS, "--T-max", str(steps), *replay_of(SLOTS)], ACTORS) as system:
        disturb(system)
        system.finish()
        check(system, SLOTS, all_read=False)
        saved = last_snapshot(system)
        weights = {name: tensor.numpy().tobytes() for name, tensor in saved["model_state_dict"].items()}
        (hash_,) = system.weights()
        return Result(hash_, weights, scores_of(system).read_bytes(), system.tap.messages)


def replay_of(slots: int) -> list[str]:
    return ["--memory-capacity", str(slots * SPEC.period)]


def check(system: Chaos, slots: int, *, all_read: bool = True) -> None:
    """Nothing is missing, nothing is doubled, and nobody is left; `all_read` by the learner, before it ended."""
    system.check_nobody_is_left()
    messages = check_streams(system.tap.messages, states(system), SPEC, ENVS)
    read = check_what_was_read(system.read_log, messages)
    if all_read:
        assert read == {actor: stream[-1][0] for actor, stream in messages.items()}, "not everything was read"
    messages = {actor: stream[: read[actor]] for actor, stream in messages.items()}
    check_scores(messages, scores_of(system))
    check_replay(last_snapshot(system), messages, SPEC, slots)


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
