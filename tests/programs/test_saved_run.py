"""A checkpoint is read as the run that it holds."""

from typing import Any

import pytest
import torch

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs.learner.saved_run import parse
from tests.refusals.files import CHECKPOINT, RUN, TABLE


def test_a_run_is_read() -> None:
    run = parse(CHECKPOINT, RUN)
    assert (run.progress.run_id, run.progress.round, run.progress.T_learner) == ("a1", 3, 700)
    assert (run.name, run.nb_actor, run.crews) == ("pong", 2, (Crew(0, 0, 2, 50),))
    assert (run.own_part.counted, run.published) == ({0: 17, 1: 0}, {2: bytes(5), 3: b"\1" * 6})
    assert run.own_part.replay.extra == {"slots": TABLE}
    assert (run.best_mean, run.logged, run.finished) == (-21.0, 80, False)


PART = {name: RUN[name] for name in ("counted", "replay", "replay_generator")} | {
    "generator": torch.Generator().get_state(),
    "episodes": [{"actor": 1, "score": 2.5, "end": "over"}],
}


def test_the_parts_of_several_learners_are_read() -> None:
    assert parse(CHECKPOINT, RUN).ranks == ()
    first, second = parse(CHECKPOINT, RUN | {"ranks": [PART, PART | {"counted": {3: 5}}]}).ranks
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
        parse(CHECKPOINT, RUN | {"ranks": [PART, PART | wrong]})
    assert "\n" not in str(refused.value)
