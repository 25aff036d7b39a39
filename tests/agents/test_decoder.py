"""What the learner lets pass of an actor's messages, and what it makes of a log that holds more."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.chunk import LAST_ACTION, Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, EnvironmentSpec, Field, pack, packed
from rainbow_iqn_apex.memory.messages import Episode, encode_message
from rainbow_iqn_apex.memory.rows import Arrays, StepType
from rainbow_iqn_apex.programs.learner.decoder import MessageDecoder
from rainbow_iqn_apex.saber.results.episode_fields import EPISODE_FIELDS, MOST
from rainbow_iqn_apex.saber.results.training_log import HEADER, TrainingLog, format_record
from tests.specs import discrete

SPEC = ChunkSpec(stack=2, burn_in=0, length=4, bootstrap_rows=1, period=4, sample_length=1)
RECORD = EpisodeRecord(300, 0, 1, 2, 7, 1.5, -3.0, 21.0, 90, "game_over")
DECODE = MessageDecoder(SPEC, discrete((3,), "uint8", 5), nb_env=3)
COUNTS = [name for name, field in EPISODE_FIELDS.items() if field.type is int]
SCORES = [name for name, field in EPISODE_FIELDS.items() if field.type is float]


def decoded(record: dict[str, Any]) -> Any:
    return DECODE(encode_message(Episode(record)))


def test_what_an_actor_writes_passes() -> None:
    assert decoded(asdict(RECORD)) == Episode(asdict(RECORD))
    extreme = replace(RECORD, score_saber=MOST * (1 - 1e-15), length=MOST - 1, T_actors=MOST - 1, end="x" * 64)
    assert decoded(asdict(extreme)) == Episode(asdict(extreme))
    assert decoded(asdict(RECORD) | {"score_saber": 21})


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("wrong", [1.7e308, -1.7e308, 1e15, -1e15, 10**400, float("inf"), float("nan"), True, "1", ""])
def test_scores_are_bounded(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be a number between"):
        decoded(asdict(RECORD) | {name: wrong})


@pytest.mark.parametrize("name", sorted({*COUNTS} - {"T_learner"}))  # which the learner fills in
@pytest.mark.parametrize("wrong", [-1, MOST, 2**63 - 1, 10**400, 1.0, 1e300, float("nan"), False, "1"])
def test_counts_are_bounded(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be a whole number"):
        decoded(asdict(RECORD) | {name: wrong})


@pytest.mark.parametrize("wrong", ["", "a b", "a,b", "x" * 65, "fin\u00e9", "a\n", 1, 1.5])
def test_texts_are_bounded(wrong: Any) -> None:
    with pytest.raises(ValueError, match="end must be one word"):
        decoded(asdict(RECORD) | {"end": wrong})


@pytest.mark.parametrize("name", EPISODE_FIELDS)
def test_missing_and_unknown_fields_are_named(name: str) -> None:
    missing = {key: value for key, value in asdict(RECORD).items() if key != name}
    if name != "T_learner":
        with pytest.raises(ValueError, match=f"missing or unknown: '{name}'"):
            decoded(missing)
    with pytest.raises(ValueError, match=r"missing or unknown: '.xe9'"):
        decoded(asdict(RECORD) | {"\u00e9": 1})


def chunk(env: int) -> Chunk:
    rows: Arrays = {
        "obs": np.zeros((SPEC.window, 3), np.uint8),
        "step_type": np.full(SPEC.window, StepType.MID, np.uint8),
        "reward": np.zeros(SPEC.window, np.float32),
        "discount": np.ones(SPEC.window, np.float32),
        "action": np.zeros(SPEC.window, np.int32),
    }
    return Chunk(env, 0, rows, {}, np.ones(SPEC.samples, np.float32))


def test_there_are_no_more_environments_than_an_actor_has() -> None:
    assert DECODE(encode_message(chunk(2)))
    with pytest.raises(ValueError, match="beyond the 3 of an actor"):
        DECODE(encode_message(chunk(3)))
    with pytest.raises(ValueError, match="beyond the 3 of an actor"):
        decoded(asdict(RECORD) | {"env": 3})


BOXES = ChunkSpec(2, 0, 4, 1, 4, 1, state=(), prioritised=False)
RECURRENT = ChunkSpec(1, 0, 4, 1, 4, 4, state=((LAST_ACTION, Box(2).field),), prioritised=False)


def boxed(spec: ChunkSpec, wrong: float = 0.5, place: int = 0, shape: tuple[int, ...] = (2,)) -> Chunk:
    """Make a chunk with actions of a Box, one number of them `wrong`; at place -1 that of the recurrent state."""
    plain = chunk(0).rows
    actions = np.linspace(-1, 1, spec.window * int(np.prod(shape)), dtype=np.float32).reshape(spec.window, *shape)
    state = {LAST_ACTION: np.array([1, -1], np.float32)} if spec.state else {}
    if place >= 0:
        actions.reshape(spec.window, -1)[place, 0] = wrong
    else:
        state[LAST_ACTION][1] = wrong
    rows = {name: array[: spec.window] for name, array in plain.items()} | {"action": actions}
    return Chunk(0, 0, rows, state, None)


@pytest.mark.parametrize("spec", [BOXES, RECURRENT], ids=["plain", "recurrent"])
def test_the_numbers_of_a_box_arrive_as_they_were_sent(spec: ChunkSpec) -> None:
    # Mutation: send actions as float16.
    decode = MessageDecoder(spec, EnvironmentSpec(Field((3,), "uint8"), Box(2)), nb_env=3)
    sent = boxed(spec)
    arrived = decode(encode_message(sent))
    assert isinstance(arrived, Chunk)
    for name, array in (sent.rows | sent.state).items():
        np.testing.assert_array_equal((arrived.rows | arrived.state)[name], array)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1.5, -1.0000001, 1e30])
def test_numbers_beyond_a_box_are_refused_wherever_they_stand(number: float) -> None:
    # Mutation: look at the actions of rows alone, not at that of the recurrent state.
    for spec in (BOXES, RECURRENT):
        decode = MessageDecoder(spec, EnvironmentSpec(Field((3,), "uint8"), Box(2)), nb_env=3)
        for place in (*range(spec.window), -1)[: None if spec.state else -1]:
            with pytest.raises(ValueError, match=r"^chunk has (an action outside \[-1, 1\]|a number in .*action )"):
                decode(encode_message(boxed(spec, number, place)))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1)])
def test_actions_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    decode = MessageDecoder(BOXES, EnvironmentSpec(Field((3,), "uint8"), Box(2)), nb_env=3)
    with pytest.raises(ValueError, match=r"^chunk rows are "):
        decode(encode_message(boxed(BOXES, shape=shape)))
    with pytest.raises(ValueError, match=r"^chunk rows are "):  # of whole numbers
        decode(encode_message(replace(chunk(0), priorities=None)))


@pytest.mark.parametrize(
    "wrong", [{"score_saber": 1.7e308}, {"score_saber": -1.7e308}, {"episode": 2**63 - 1}, {"T_actors": 2**62}]
)
def test_a_log_that_holds_more_is_refused_and_stays(tmp_path: Path, wrong: dict[str, Any]) -> None:
    path = tmp_path / "pong.csv"
    path.write_text(HEADER + "\n" + "".join(map(format_record, [RECORD, replace(RECORD, **wrong)])))
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"line 3: .* is not an episode"):
        TrainingLog(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e30])
def test_numbers_beside_a_picture_are_checked(wrong: float) -> None:
    # Mutation: check arrays of floats alone.
    spec = ChunkSpec(1, 0, 2, 1, 2, 2, prioritised=False)
    environment = EnvironmentSpec(packed(Field((4, 4), "uint8"), Field((2,), "float32")), Discrete(2))
    decode = MessageDecoder(spec, environment, nb_env=1)
    for number in (0.5, wrong):
        obs = pack([np.ones((4, 4), np.uint8), np.array([1, number], np.float32)])
        numbers = {name: np.zeros(3, field.dtype) for name, field in spec.row_fields(environment).items()}
        data = encode_message(Chunk(0, 0, numbers | {"obs": np.stack([obs] * 3)}, {}, None))
        if number == 0.5:
            decode(data)
        else:
            with pytest.raises(ValueError, match=r"^chunk has a number in obs "):
                decode(data)
