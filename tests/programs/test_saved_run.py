"""A checkpoint is a run, or it is refused in one line, whatever it holds."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs.learner.saved_run import parse

PATH = Path("last_model_pong_7.pth")
CONTENT: dict[str, Any] = {
    "run_id": "a1",
    "round": 3,
    "T_actors": 500,
    "T_learner": 700,
    "round_end": 800,
    "run_name": "pong",
    "settings": json.dumps({"nb_actor": 2, "game": "pong"}),
    "crews": [[0, 0, 2, 50]],
    "counted": {0: 17, 1: 0},
    "published": {2: torch.zeros(5, dtype=torch.uint8), 3: torch.ones(6, dtype=torch.uint8)},
    "replay": {"first": 0, "ids": torch.zeros(0, 2, dtype=torch.int64), "priorities": torch.zeros(0, 64), "extra": {}},
    "replay_generator": torch.Generator().get_state(),
    "best_mean": -21.0,
    "logged": 80,
    "finished": False,
    "server": "localhost:6379",
    "saves": 4,
}


def test_a_run_is_read() -> None:
    run = parse(PATH, CONTENT)
    assert (run.progress.run_id, run.progress.round, run.progress.T_learner) == ("a1", 3, 700)
    assert (run.name, run.nb_actor, run.crews) == ("pong", 2, (Crew(0, 0, 2, 50),))
    assert (run.own_part.counted, run.published) == ({0: 17, 1: 0}, {2: bytes(5), 3: b"\1" * 6})
    assert (run.best_mean, run.logged, run.finished) == (-21.0, 80, False)


def test_a_replay_of_tables_is_read() -> None:
    run = parse(PATH, CONTENT | {"replay": CONTENT["replay"] | {"extra": {"slots": TABLE}}})
    assert run.own_part.replay.extra == {"slots": TABLE}


@pytest.mark.parametrize(
    "name", [name for name in CONTENT if name not in ("round", "T_actors", "T_learner", "round_end")]
)
def test_weights_of_others_are_for_a_start(name: str) -> None:
    with pytest.raises(UserError, match=f"{PATH} cannot be resumed from, only started from: give it as --model"):
        parse(PATH, {key: value for key, value in CONTENT.items() if key != name})


TABLE = torch.zeros(3, dtype=torch.int64)
WRONG_EXTRAS: list[Any] = [
    None, [], {3: TABLE}, {"slots": [1]}, {"slots": TABLE[None]}, {"slots": torch.zeros(17)},
    {str(number): TABLE for number in range(17)},
]  # fmt: skip
WRONG_TABLES: list[dict[str, Any]] = [{"extra": wrong} for wrong in WRONG_EXTRAS]
WRONG: dict[str, list[Any]] = {
    "run_id": ["", "a b", "x" * 65, 3, None, b"a"],
    "round": [-1, 1.0, True, None, "3", 2**63],
    "T_actors": [-1, 1.0],
    "T_learner": [None],
    "round_end": ["800"],
    "run_name": [[1], 3, None],
    "server": [3, None],
    "saves": [-1, None],
    "finished": [None, 3],
    "settings": ["", "{", "[]", "3", None, 3],
    "crews": [None, 3, [[0, 0, 0, 1]], [[0, 0]]],
    "counted": [None, [], {-1: 0}, {"0": 0}, {0: -1}, {0: 1.0}, {0: 2**63}],
    "published": [None, [], {-1: CONTENT["replay_generator"]}, {2: b"x"}, {2: torch.zeros(3)}],
    "replay": [
        None,
        {},
        {"first": 0},
        *(CONTENT["replay"] | wrong for wrong in ({"ids": [1]}, {"more": 1}, *WRONG_TABLES)),
    ],
    "replay_generator": [None, torch.zeros(3), torch.zeros(2, 2, dtype=torch.uint8)],
    "best_mean": [None, "3", True, torch.zeros(())],
    "logged": [None, -1, 2.0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_that_no_learner_has_saved_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError) as caught:
        parse(PATH, CONTENT | {name: value})
    assert str(caught.value).startswith(f"--path-to-results: {PATH} cannot be resumed from, it is damaged (")
    assert "\n" not in str(caught.value)


PART = {name: CONTENT[name] for name in ("counted", "replay", "replay_generator")} | {
    "generator": torch.Generator().get_state(),
    "episodes": [{"actor": 1, "score": 2.5, "end": "over"}],
}


def test_the_parts_of_several_learners_are_read() -> None:
    assert parse(PATH, CONTENT).ranks == ()
    first, second = parse(PATH, CONTENT | {"ranks": [PART, PART | {"counted": {3: 5}}]}).ranks
    assert (first.counted, second.counted) == ({0: 17, 1: 0}, {3: 5})
    assert second.episodes == ({"actor": 1, "score": 2.5, "end": "over"},)
    assert first.generator is not None and torch.equal(first.generator, PART["generator"])


@pytest.mark.parametrize(
    "wrong",
    [{"counted": {-1: 0}}, {"replay": None}, {"generator": torch.zeros(3)}, {"episodes": [{"a": []}]}, {"more": 1}],
    ids=str,
)
def test_wrong_parts_are_refused_in_one_line(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="damaged") as refused:
        parse(PATH, CONTENT | {"ranks": [PART, PART | wrong]})
    assert "\n" not in str(refused.value)
