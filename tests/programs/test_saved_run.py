"""A checkpoint is read as the run that it holds."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.limiter import Crew
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.evaluation.card import check_folder
from rainbow_iqn_apex.programs.learner.checkpointer import parse
from rainbow_iqn_apex.programs.learner.program import _refuse_other_settings
from rainbow_iqn_apex.saber.results.evaluation_log import read_evaluation_record
from rainbow_iqn_apex.saber.results.run_record import read_record
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.interface import read
from tests.refusals.files import CHECKPOINT, RUN, TABLE


def test_a_run_is_read() -> None:
    run = parse(CHECKPOINT, RUN)
    assert (run.progress.run_id, run.progress.round, run.progress.T_learner) == ("a1", 3, 700)
    assert (run.name, run.crews) == ("pong", (Crew(0, 0, 2, 50),))
    (rank,) = run.ranks
    assert (rank.counted, run.published) == ({0: 17, 1: 0}, {2: bytes(5), 3: b"\1" * 6})
    assert rank.replay.extra == {"slots": TABLE}
    assert (run.best_mean, run.logged, run.finished) == (-21.0, 80, False)


def test_a_refusal_to_resume_names_the_way_out() -> None:
    # A preset fits the environments to --memory-capacity: a run begun without that has others. Mutation: name no value.
    words = ["--preset", "cpu", "--memory-capacity", "100000"]
    before: Any = SimpleNamespace(path=CHECKPOINT, settings=read(*words, "--nb-env-per-actor", "16").shared)
    with pytest.raises(UserError) as refused:
        _refuse_other_settings(read(*words), before)
    (advised,) = re.findall(r"; resume with (--\S+ \S+), or", str(refused.value))
    _refuse_other_settings(read(*words, *advised.split()), before)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: parse(path, {}),
        lambda path: snapshot.load(path, "--model"),
        lambda path: snapshot.choose(path.parent, None),
        lambda path: check_folder(path.parent),
        lambda path: read_evaluation_record(path),
        lambda path: read_record(path),
        lambda path: read_records(path),
    ],
)
def test_errors_show_a_path_as_it_was_given(
    call: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: show the absolute path, which the program works with.
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine" / "of_nothing.pth"
    file.parent.mkdir()
    file.write_text("?")
    file.with_suffix(".json").write_text("{}")
    with pytest.raises((UserError, ValueError)) as refused:
        call(file)
    assert "mine" in str(refused.value) and str(tmp_path) not in str(refused.value)


PART = {name: RUN[name] for name in ("counted", "replay", "replay_generator")} | {
    "generator": torch.Generator().get_state(),
    "episodes": [{"actor": 1, "score": 2.5, "end": "over"}],
}


def test_the_parts_of_several_learners_are_read() -> None:
    first, second = parse(CHECKPOINT, RUN | {"ranks": [PART, PART | {"counted": {3: 5}}]}).ranks
    assert (first.counted, second.counted) == ({0: 17, 1: 0}, {3: 5})
    assert second.episodes == [{"actor": 1, "score": 2.5, "end": "over"}]
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
