"""Weights & Biases and Trackio without a network, in processes of their own: they work until a process ends."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes import Processes, clean_environment
from tests.videos import frames_of

pytestmark = pytest.mark.slow

LOG = """
import sys
from pathlib import Path
from rainbow_iqn_apex.monitoring.sinks.sink import InThread, RunInfo
from rainbow_iqn_apex.options.sink_options import SinkOptions, check_sinks
from tests.monitoring.films import film
from tests.monitoring.sinks.moments import moment

def log(kind):
    check_sinks(SinkOptions(**{sys.argv[1]: True}))
    sink = InThread(kind(RunInfo("pong", "abc", Path(sys.argv[2]), "pong", {"batch_size": 32, "model": None})))
    for step in (100, 200, 150):
        films = {"best": film(score=21.5, pictures=9, height=105, width=80)} if step == 200 else {}
        sink.take(moment(step, loss=step / 8, films=films))
    sink.close()
"""
WANDB = LOG + "from rainbow_iqn_apex.monitoring.sinks.wandb import WandbSink\nlog(WandbSink)"
TRACKIO = LOG + "from rainbow_iqn_apex.monitoring.sinks.trackio import TrackioSink\nlog(TrackioSink)"


def log(code: str, name: str, folder: Path, **variables: str) -> str:
    """Log three moments in a process, and return what it has printed."""
    pytest.importorskip(name, reason="an extra: pip install -r requirements-extra.txt")
    own = {key: value for key, value in clean_environment().items() if not key.startswith(("WANDB_", "TRACKIO_"))}
    (folder / "home").mkdir(exist_ok=True)
    with Processes() as processes:
        environment = own | {"HOME": str(folder / "home")} | variables
        process = processes.start("-c", code, name, folder, environment=environment, together=True)
        assert process.finish() == 0, process.output
        assert "Metrics are not written" not in process.output
        return process.output


def test_wandb_stays_in_the_folder(tmp_path: Path) -> None:
    log(WANDB, "wandb", tmp_path, WANDB_MODE="offline")
    (stored,) = tmp_path.glob("wandb/offline-run-*/run-abc.wandb")
    data = stored.read_bytes()
    assert all(text in data for text in (b"rainbow-iqn-apex", b"batch_size", b"train/loss", b"12.5", b"18.75"))
    assert b"evaluation/best_episode" in data and b"score 21.5 after 7,000 agent steps" in data
    (video,) = stored.parent.glob("files/media/videos/evaluation/best_episode_*.webm")
    assert len(frames_of(video, 15)) == 9


def test_wandb_keeps_a_run_whose_server_is_away(tmp_path: Path) -> None:
    away = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    printed = log(WANDB, "wandb", tmp_path, **away)
    assert "Weights & Biases is not reached (" in printed
    (stored,) = tmp_path.glob("wandb/offline-run-*/run-abc.wandb")
    assert b"train/loss" in stored.read_bytes()


def test_trackio_goes_on_with_a_run(tmp_path: Path) -> None:
    for _ in range(2):
        log(TRACKIO, "trackio", tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    with closing(sqlite3.connect(tmp_path / "trackio" / "rainbow-iqn-apex.db")) as database:
        value = "json_extract(metrics, '$.\"{0}\"')"
        asked = f"select run_name, step, {value} from metrics where {value} is not null"
        rows = database.execute(asked.format("train/loss")).fetchall()
        films = database.execute(asked.format("evaluation/best_episode")).fetchall()
    assert [step for _, step, _ in films] == [200, 200]
    for *_, text in films:
        assert json.loads(text)["caption"] == "score 21.5 after 7,000 agent steps, 2 times as fast"
        assert len(frames_of(tmp_path / "trackio" / "media" / json.loads(text)["file_path"], 15)) == 9
    assert rows == 2 * [("pong abc", 100, 12.5), ("pong abc", 200, 25.0), ("pong abc", 150, 18.75)]
