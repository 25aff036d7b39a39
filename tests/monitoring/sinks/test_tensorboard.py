"""Event files as TensorBoard itself reads them."""

import io
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.video import animate
from tests.monitoring.films import film
from tests.monitoring.sinks.moments import COUNTS, VALUES, moment

pytest.importorskip("tensorboard", reason="an extra: pip install -r requirements-extra.txt")
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rainbow_iqn_apex.monitoring.sinks.tensorboard import TensorBoardSink


def read(folder: Path) -> Any:
    events = EventAccumulator(str(folder), dict.fromkeys(("scalars", "tensors", "histograms", "images"), 0))
    return events.Reload()


def written(folder: Path, *steps: int) -> None:
    sink = TensorBoardSink(folder)
    for step in steps:
        sink.take(moment(step, loss=step / 8))
    sink.close()


def test_every_metric_is_a_tag_over_agent_steps(tmp_path: Path) -> None:
    written(tmp_path, 100, 200, 300)
    events = read(tmp_path)
    assert set(events.Tags()["scalars"]) == VALUES.keys()
    assert set(events.Tags()["histograms"]) == METRICS.keys() - VALUES.keys()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [
        (100, 12.5),
        (200, 25),
        (300, 37.5),
    ]
    fps = events.SummaryMetadata("time/fps")
    assert fps.summary_description == "frames/s of the environments of all actors"


def test_the_histogram_has_the_bins_between_the_outermost_that_hold_something(tmp_path: Path) -> None:
    written(tmp_path, 100)
    (event,) = read(tmp_path).Histograms("buffer/priorities")
    bins = event.histogram_value
    assert (bins.min, bins.max, bins.num) == (PRIORITY_BOUNDS[6], PRIORITY_BOUNDS[9], sum(COUNTS))
    assert list(bins.bucket) == [5, 0, 3]
    assert list(bins.bucket_limit) == list(PRIORITY_BOUNDS[7:10])


def test_films_are_images_that_move(tmp_path: Path) -> None:
    # Mutation: write them at their own steps: TensorBoard drops those that are beyond the next one's.
    sink = TensorBoardSink(tmp_path)
    best, newest = film(score=3.0, pictures=4), film(pictures=5, step=90)
    sink.take(moment(100, films={"best": best, "newest": newest}))
    sink.take(moment(200))
    sink.close()
    events = read(tmp_path)
    assert set(events.Tags()["images"]) == {"evaluation/best_episode", "evaluation/newest_episode"}
    for tag, shown in (("best", best), ("newest", newest)):
        (event,) = events.Images(f"evaluation/{tag}_episode")
        assert (event.step, event.height, event.width) == (100, 5, 7)
        with Image.open(io.BytesIO(event.encoded_image_string)) as image:
            assert (image.format, getattr(image, "n_frames", 1), image.size) == ("GIF", shown.info.pictures, (7, 5))
    assert [event.step for event in events.Scalars("train/loss")] == [100, 200]


def test_a_gif_shows_a_film_and_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: no second try with fewer pictures.
    monkeypatch.setattr("rainbow_iqn_apex.monitoring.video.GIF_BYTES", most := 1 << 17)
    shown = film(pictures=40, height=105, width=80)
    with Image.open(io.BytesIO(animate(shown))) as image:
        assert (getattr(image, "n_frames", 1), image.info["loop"]) == (40, 0)
        image.seek(20)
        error = np.abs(np.array(image.convert("RGB")).astype(int) - shown.pictures[20])
        assert error.mean() < 16
    noisy = replace(shown, pictures=np.random.default_rng(1).integers(0, 256, shown.pictures.shape, np.uint8))
    assert most / 3 < len(animate(noisy)) <= most


@pytest.mark.parametrize("place", [0, len(PRIORITY_BOUNDS)])
def test_the_outermost_bins_have_finite_bounds(tmp_path: Path, place: int) -> None:
    counts = [0.0] * len(COUNTS)
    counts[place] = 4.0
    sink = TensorBoardSink(tmp_path)
    filled = moment(1)
    filled.histograms["buffer/priorities"] = counts
    sink.take(filled)
    sink.close()
    (event,) = read(tmp_path).Histograms("buffer/priorities")
    assert 0 <= event.histogram_value.min < event.histogram_value.max < 1e5


def test_a_learner_that_goes_back_leaves_one_curve(tmp_path: Path) -> None:
    # Mutation: no session's start in the second file.
    written(tmp_path, 100, 200, 300, 400)
    time.sleep(0.01)  # the files' names say which is the newer one
    written(tmp_path, 250, 350)
    assert [event.step for event in read(tmp_path).Scalars("train/loss")] == [100, 200, 250, 350]


@contextmanager
def no_file_grows_beyond(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_no_torn_event(tmp_path: Path) -> None:
    # Mutation: no truncation.
    sink = TensorBoardSink(tmp_path)
    sink.take(moment(100))
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size
    with no_file_grows_beyond(size + 100), pytest.raises(OSError, match="File too large"):
        sink.take(moment(200))
    assert path.stat().st_size == size
    sink.take(moment(300))
    sink.close()
    assert [event.step for event in read(tmp_path).Scalars("train/loss")] == [100, 300]


def test_a_moment_costs_milliseconds(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path)
    sink.take(moment(0))
    before = time.thread_time()
    for step in range(1, 51):
        sink.take(moment(step))
    sink.close()
    assert time.thread_time() - before < 0.5  # 10 ms each; 0.3 ms in truth
