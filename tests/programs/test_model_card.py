"""What a model card holds, of which the page is only one file."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from rainbow_iqn_apex.args import Args, parse
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.evaluation import card, program
from rainbow_iqn_apex.programs.evaluation.card import check_folder, write_card
from rainbow_iqn_apex.programs.evaluation.recording import Videos
from rainbow_iqn_apex.programs.evaluation.workers import Played, Task
from rainbow_iqn_apex.saber.results.evaluation_log import (
    EvaluationLog,
    EvaluationRecord,
    read_evaluation,
    read_evaluation_record,
)

RECORD = EvaluationRecord("../last_model_pong_700.pth", "01ab", 7, {"game": "pong"}, "cpu", {}, ["abc"], 5, 700)
SAVED = {"model_state_dict": {}, "T_actors": 700}


def evaluated(folder: Path, asked: int) -> EvaluationLog:
    """Return an evaluation that asks for so many episodes, of which five have been played at an earlier start."""
    path = folder / "pong_seed7.csv"
    with EvaluationLog(path, RECORD) as log:
        for number in range(5):
            log.add(number, EpisodeRecord(0, 0, 0, 0, number, 1, 2, number, 9, "game_over"))
        log.write()
    with EvaluationLog(path, dataclasses.replace(RECORD, episodes=asked)) as log:
        return log


def test_a_card_has_the_episodes_that_were_asked_for(tmp_path: Path) -> None:
    # Mutations: copy the files of the evaluation; its path of the snapshot.
    folder = tmp_path / "card"
    folder.mkdir()
    write_card(Args().replace(game="pong", export=folder), SAVED, evaluated(tmp_path, 3), 4, film=False)
    scores = [episode.record.score_saber for episode in read_evaluation(folder / "scores.csv")]
    record = read_evaluation_record(folder / "scores.json")
    assert scores == [0, 1, 2] and record.episodes == 3
    assert (folder / record.model).is_file()
    page = (folder / "README.md").read_text()
    assert (
        "3 episodes" in page and "--model <this folder> --evaluation-episodes 3 --seed 7 --game pong` evaluates" in page
    )
    (model,) = yaml.safe_load(page.split("---\n")[1])["model-index"]
    assert model["results"][0]["metrics"][0]["value"] == "1.00 +/- 1.00"


def test_a_card_that_is_unfinished_or_was_added_to_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutations: no page before all else; a head that must begin as ours.
    folder = tmp_path / "card"
    args, log = Args().replace(game="pong", export=folder), evaluated(tmp_path, 3)
    check_folder(folder)
    with monkeypatch.context() as full:
        full.setattr(card, "write_evaluation", lambda *_: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(OSError, match="no room"):
            write_card(args, SAVED, log, 4, film=False)
    check_folder(folder)
    write_card(args, SAVED, log, 4, film=False)
    page = folder / "README.md"
    page.write_text(page.read_text().replace("---\n", "---\nlicense: mit\n", 1))
    check_folder(folder)


def test_a_card_names_what_the_snapshot_may_not_import_by_itself(tmp_path: Path) -> None:
    args = dataclasses.replace(Args(), env="gymnasium:mine:Pole-v0", agent="mine:Agent", export=tmp_path)
    write_card(args, SAVED, evaluated(tmp_path, 1), 1, film=False)
    words = "--evaluation-episodes 1 --seed 7 --agent mine:Agent --env gymnasium:mine:Pole-v0` evaluates it again"
    assert words in (tmp_path / "README.md").read_text()


def test_what_a_card_says_repeats_its_evaluation(tmp_path: Path) -> None:
    # Mutations: settings.yaml with None; the rules of an evaluation by their defaults, or as those of its training.
    trained = Args().replace(game="pong,breakout").settings
    saved = SAVED | {"settings": json.dumps(trained | {"model": None})}
    rules = {"disable_SABER_mode": True, "proba_sticky_actions": 0.0}
    args = Args().replace(game="pong", export=tmp_path, **rules)
    args = dataclasses.replace(args, given=frozenset(rules))
    write_card(args, saved, evaluated(tmp_path, 1), 1, film=False)
    words = "--seed 7 --game pong --proba-sticky-actions 0.0 --disable-SABER-mode True` evaluates it again"
    assert words in (tmp_path / "README.md").read_text()
    assert learned(tmp_path / "model_pong_700.pth") == trained | {"model": None}
    assert parse(["--config", str(tmp_path / "settings.yaml")], "test", "").task == "pong"
    assert parse(["--disable-SABER-mode", "True"], "test", "").disable_SABER_mode
    write_card(args, SAVED, evaluated(tmp_path, 1), 1, film=False)
    assert learned(tmp_path / "model_pong_700.pth") == {"agent": "rainbow_iqn", "game": "pong"}, "no rules of training"


def learned(path: Path) -> dict[str, Any]:
    return snapshot.settings_of(torch.load(path, weights_only=True))


class Players:
    """Play again, or are stopped while they do."""

    def __init__(self, *, stopped: bool) -> None:
        self.player = SimpleNamespace(action_repeat=4)
        self._stopped = stopped

    def play(self, tasks: Iterable[Task]) -> Iterator[Played]:
        for task in tasks:
            if self._stopped:
                raise Stopped
            assert task.video
            task.video.write_text(f"episode {task.episode}")
            yield Played(task, EpisodeRecord(0, 0, 0, 0, task.episode, 1, 2, task.episode, 9, "game_over"), 1)


def test_a_page_shows_no_video_that_is_not_there(tmp_path: Path) -> None:
    # Mutation: write the page before the video is there.
    card, place = tmp_path / "card", tmp_path / "videos"
    card.mkdir()
    place.mkdir()
    args = Args().replace(game="pong", export=card)

    def export(asked: int, *, stopped: bool) -> dict[str, bytes]:
        players: Any = Players(stopped=stopped)
        program._keep(players, args, SAVED, evaluated(tmp_path, asked), Videos(place))
        return {path.name: path.read_bytes() for path in card.iterdir()}

    with pytest.raises(Stopped):
        export(3, stopped=True)
    assert not any(card.iterdir()), "a folder without a page would be refused the next time"
    (card / "model_pong_600.pth").touch()
    before = export(3, stopped=False)
    names = ["README.md", "model_pong_700.pth", "replay.webm", "scores.csv", "scores.json", "settings.yaml"]
    assert sorted(before) == names and b"replay.webm" in before["README.md"]
    assert before["replay.webm"] == b"episode 1", "the median"
    with pytest.raises(Stopped):
        export(5, stopped=True)
    assert {path.name: path.read_bytes() for path in card.iterdir()} == before
