"""Films of evaluation episodes in whole runs: they reach the sinks, and whoever asks for the impossible is told."""

import io
from pathlib import Path

import pytest

from rainbow_iqn_apex.monitoring.sinks.videos import read_shown
from rainbow_iqn_apex.monitoring.video import FilmSlot
from tests.deadline import wait_until
from tests.failing import FAILING
from tests.processes import run
from tests.small import FREE, TINY
from tests.system import EVALUATORS, LEARNER, Run
from tests.videos import frames_of

FILM_SLOTS: tuple[FilmSlot, ...] = ("best", "newest")
ATARI = [*TINY, *"--game breakout --T-max 1000000 --learn-start 400 --memory-capacity 4000".split(), *FREE, "--force"]


@pytest.mark.slow
@pytest.mark.redis
def test_best_and_newest_episode_reach_files_and_tensorboard(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: an evaluation actor that does not open its environment for recording.
    pytest.importorskip("tensorboard", reason="an extra: pip install -r requirements-extra.txt")
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with Run(redis_port, run_name, tmp_path, [*ATARI, "--record-evaluations", "--tensorboard"]) as run:
        learner, evaluator = run.start(LEARNER), run.start(EVALUATORS[0])
        actor = run.start("0")
        videos = [tmp_path / f"breakout_{slot}_evaluation.webm" for slot in FILM_SLOTS]
        wait_until(lambda: all(video.exists() for video in videos), run.last_words, 400)
        learner.press_ctrl_c()
        assert [process.finish(60) for process in (learner, evaluator, actor)] == [0, 0, 0], run.last_words()
        for process in (learner, evaluator):
            assert "Metrics are not written" not in process.output and "Not shown" not in process.output
    shown = read_shown(tmp_path, "breakout").films
    scores = [float(line.split(",")[7]) for line in (tmp_path / "breakout_evaluation.csv").read_text().splitlines()[1:]]
    assert {shown[slot].score for slot in FILM_SLOTS} <= set(scores)
    events = EventAccumulator(str(tmp_path / "breakout_tensorboard" / run_name), {"images": 0}).Reload()
    for slot, video in zip(FILM_SLOTS, videos, strict=True):
        frames = frames_of(video, 15)
        assert len(frames) == shown[slot].pictures > 20 and frames[0].shape == (210, 160, 3)
        assert any((frame != frames[0]).mean() > 0.001 for frame in frames), "something moves"
        newest = events.Images(f"evaluation/{slot}_episode")[-1]
        with Image.open(io.BytesIO(newest.encoded_image_string)) as image:
            assert image.format == "GIF" and getattr(image, "n_frames", 1) > 20


@pytest.mark.slow
@pytest.mark.parametrize("program", ["launch_learner.py", "launch_actor.py --id-eval-actor 0"])
def test_an_environment_without_pictures_is_refused_at_once(program: str, tmp_path: Path) -> None:
    # Mutation: look for pictures only when the first episode begins.
    words = [*program.split(), *FAILING.split(), *TINY, "--history-length", "1", "--path-to-results", tmp_path / "x"]
    (line,) = run(*words, "--port-redis", "1", "--record-evaluations").refused()
    told = "error: --record-evaluations: cannot record tests.failing:Failing-v0: it draws no pictures"
    assert line.startswith(f"{program.split()[0]}: {told}"), line
