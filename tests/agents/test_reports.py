"""The learner's reports: which episodes a mean score counts, and what the hash of the weights depends on."""

import hashlib
import math
import struct
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rainbow_iqn_apex.agents.networks.duelling import NoisyLinear
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.messages import Episode
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.learner.checkpointer import best_mean_of
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.programs.snapshot import weights_hash
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, read_record


def add(reports: ResultsFolder, t_learner: int, scores: list[int]) -> None:
    first = len(reports.log.records)
    records = [EpisodeRecord(episode=first + i, score_saber=score, end="game_over") for i, score in enumerate(scores)]
    reports.add_episodes([Episode(asdict(record)) for record in records], t_learner)


def test_what_a_killed_learner_left_aside_is_removed(tmp_path: Path) -> None:
    number = ".0123456789abcdef.tmp"
    torn = [
        f".{name}{number}"
        for name in ("last_model_chain_7.pth", "best_model_chain.pth", "chain.csv", "chain.json", "chain.yaml")
    ]
    others = [f".{name}{number}" for name in ("last_model_chain_2_7.pth", "chain2.csv")] + ["my.tmp", "chain.tmp"]
    for name in torn + others:
        (tmp_path / name).touch()
    with ResultsFolder(tmp_path, "chain", 4):
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {*others, "chain.csv", ".chain.lock"}


def test_a_mean_score_does_not_look_ahead(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path, "chain", 4) as reports:
        add(reports, 1000, [7] + [1] * 99)
        assert reports.mean_score(1000) is None, "these come with the next update"
        assert reports.mean_score(1001) == 1.06
        add(reports, 1200, [11])
    with ResultsFolder(tmp_path, "chain", 4) as reports:  # resumes at a step before 1200
        assert reports.mean_score(1200) == 1.06
        assert reports.mean_score(1201) == 1.10


def test_the_best_snapshot_of_a_killed_learner_is_not_replaced_by_a_worse_one(tmp_path: Path) -> None:
    # Mutation: take the mean of another run's snapshot.
    path = tmp_path / "best_model_chain.pth"
    assert best_mean_of(path, "id") == -math.inf
    agent: Any = SimpleNamespace(parts={"model": nn.Linear(2, 1)})
    snapshot.save(path, agent, {"best_mean": 20.0, "run_id": "id"})
    assert [best_mean_of(path, run) for run in ("id", "id-abc123", "other")] == [20.0, 20.0, -math.inf]
    path.write_bytes(b"torn")
    assert best_mean_of(path, "id") == -math.inf


def test_who_reads_a_plot_while_it_is_replaced_gets_a_whole_page(tmp_path: Path) -> None:
    # Mutation: write into the file itself.
    with ResultsFolder(tmp_path, "chain", 4) as reports:
        add(reports, 1000, [1] * 100)
        reports.plot(now=True)
        page = (tmp_path / "Reward_chain.html").read_text()
        with (tmp_path / "Reward_chain.html").open() as reading:
            add(reports, 2000, [2] * 100)
            reports.plot(now=True)
            assert reading.read() == page != (tmp_path / "Reward_chain.html").read_text()


def test_a_plot_is_written_again_when_its_game_has_new_episodes(tmp_path: Path) -> None:
    # Mutation: write the plots of all games each time, 5 MB each.
    with ResultsFolder(tmp_path, "chain", 4) as reports:
        for scores, written in (([1], True), ([], False), ([2], True)):
            add(reports, 100 + len(reports.log.records), scores)
            (page := tmp_path / "Reward_chain.html").unlink(missing_ok=True)
            reports.plot(now=True)
            assert page.exists() == written


def test_episodes_that_are_known_are_counted_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def finished(*numbers: int) -> list[Episode]:
        return [Episode(asdict(EpisodeRecord(actor=1, env=2, episode=number, end="stuck"))) for number in numbers]

    with ResultsFolder(tmp_path, "chain", 4) as reports:
        reports.add_episodes(finished(0, 1), 1)
        assert capsys.readouterr().out == ""
        reports.add_episodes(finished(900, 2), 2)
        reports.add_episodes(finished(3, 4), 3)
        reports.add_episodes(finished(901), 3)
    told = capsys.readouterr().out.splitlines()
    wanted = (
        (1, 1, "the newest is episode 2 of actor 1, environment 2, where the log has come to 900"),
        (2, 3, "the newest is episode 4 of actor 1, environment 2, where the log has come to 901"),
    )
    assert told == [
        f"Left out {new} episodes that the training log has already, {count} so far; {newest}"
        for new, count, newest in wanted
    ]


def test_the_hash_does_not_depend_on_noise() -> None:
    layer = NoisyLinear(3, 2, 0.5)
    before = weights_hash(layer)
    layer.bias_epsilon.fill_(0.5)
    assert weights_hash(layer) == before


def test_the_hash_is_that_of_the_documented_bytes() -> None:
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, -2.0]]))
        layer.bias.fill_(0.5)
    content = b"bias <f4 (1,)\n" + struct.pack("<f", 0.5) + b"weight <f4 (1, 2)\n" + struct.pack("<2f", 1, -2)
    assert weights_hash(layer) == hashlib.sha256(content).hexdigest()[:16]


def start_of(commit: str) -> Start:
    return Start({}, {}, commit)


def test_the_record_tells_how_far_a_run_got(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path, "chain", 3) as reports:
        reports.begin(start_of("a"), afresh=True)
        assert read_record(tmp_path / "chain.json") == RunRecord("chain", 3, 0, (start_of("a"),))
        reports.record_progress(900)
    record = read_record(tmp_path / "chain.json")
    assert record and record.reached == 900


def test_the_plot_is_of_what_the_record_says_is_played(tmp_path: Path) -> None:
    # Mutation: take every name for a game of the emulator.
    for env, title in (("gymnasium:CartPole-v1", "CartPole-v1"), ("atari", "Pong")):
        with ResultsFolder(tmp_path / title, title.lower(), 1) as reports:
            reports.begin(Start({"env": env}, {}, "a"), afresh=True)
            reports.plot(now=True)
        page = (tmp_path / title / f"Reward_{title.lower()}.html").read_text()
        assert f"<h1>{title}: training scores</h1>" in page
        assert ("SABER score" in page) == (env == "atari")


def test_a_resumed_run_keeps_its_record(tmp_path: Path) -> None:
    # Mutation: write the record anew at every start.
    for commit in "abb":
        with ResultsFolder(tmp_path, "chain", 3) as reports:
            reports.begin(start_of(commit), afresh=commit == "a")
            reports.record_progress(7)
    record = read_record(tmp_path / "chain.json")
    assert record and [start.commit for start in record.starts] == ["a", "b"] and record.reached == 7
    (tmp_path / "chain.json").write_text("{}")
    with ResultsFolder(tmp_path, "chain", 3) as reports, pytest.raises(UserError, match=r"chain\.json"):
        reports.begin(start_of("a"), afresh=False)
