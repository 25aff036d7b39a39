"""--record and --export: videos of episodes, written while these are played, as browsers play them."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.monitoring import video
from rainbow_iqn_apex.monitoring.video import write_video
from tests import specs
from tests.browser import Browser, needs_browser
from tests.processes import Processes, run
from tests.small import save_untrained
from tests.test_evaluation_program import BREAKOUT, Evaluations
from tests.videos import frames_of


@pytest.fixture
def evaluations(processes: Processes, tmp_path: Path) -> Evaluations:
    return Evaluations(processes, tmp_path / "results")


def play_in_browser(path: Path, folder: Path) -> dict[str, float]:
    """What a browser's video element says of it, played to its end; an error fails."""
    page = folder / "page.html"
    page.write_text(f"<!doctype html><video muted src='{path.as_uri()}'></video>")
    with Browser() as browser:
        browser.open(page)
        browser.value(
            "(async () => { const v = document.querySelector('video'); v.playbackRate = 16; await v.play();"
            " const end = (yes, no) => { v.onended = () => yes(); v.onerror = () => no(v.error.message); };"
            " if (!v.ended) await new Promise(end);"
            "})()"
        )
        assert browser.errors == []
        names = ("duration", "currentTime", "videoWidth", "videoHeight")
        return {name: browser.value(f"document.querySelector('video').{name}") for name in names}


@pytest.mark.slow
def test_the_best_the_median_and_the_worst_episode_are_recorded(evaluations: Evaluations, tmp_path: Path) -> None:
    # Mutations: play them again; other episodes, or another number of random draws, where pictures are kept.
    path = save_untrained(tmp_path / "brick.pth", BREAKOUT, specs.ATARI)
    films, scores = tmp_path / "films", evaluations.folder / "evaluations" / "breakout_brick_seed123.csv"
    more = ["--game", "breakout", "--evaluation-episodes", "4", "--evaluation-workers", "2"]
    evaluations.run(path, *more).succeeded()
    unrecorded = scores.read_bytes()
    scores.unlink()
    more += ["--record", str(films), "--export", str(tmp_path / "card")]
    films.mkdir()
    other, older = (films / f"breakout_brick_seed123_{name}_episode9.webm" for name in ("stochastic_best", "best"))
    other.touch()
    older.touch()
    out = evaluations.run(path, *more).succeeded()
    assert "Playing again" not in out and scores.read_bytes() == unrecorded
    other.unlink()  # the video of another evaluation stays
    assert not older.exists()
    rows = {int(row[0]): row for row in evaluations.rows(scores.name)}
    ordered = sorted((float(row[4]) for row in rows.values()), reverse=True)
    expected = {"best": ordered[0], "median": ordered[2], "worst": ordered[-1]}
    found = {}
    for film in films.iterdir():
        place, episode = re.fullmatch(r"breakout_brick_seed123_(\w+)_episode(\d+)\.webm", film.name).groups()  # type: ignore[union-attr]
        row = rows[int(episode)]
        found[place] = float(row[4])
        assert f"{film}: score {float(row[4]):g}" in out
        frames, steps = frames_of(film, 15), int(row[5])
        speed = 2 if f"{film}: score {float(row[4]):g}, shown 2 times as fast" in out else 1
        assert -(-steps // speed) <= len(frames) <= -(-(steps + 1) // speed), "that of the reset, and of each step"
        assert {frame.shape for frame in frames} == {(210, 160, 3)} and film.stat().st_size < 2_000_000
        environment = make_environment(EnvironmentSettings(game="breakout", record=True), int(row[1]))
        environment.reset()
        (first,) = environment.pictures()
        assert np.abs(frames[0].astype(int) - first[:, :, ::-1]).mean() < 6, "it begins as the game, in its colours"
    assert found == expected
    (median,) = films.glob("*_median_*")
    assert median.read_bytes() == (tmp_path / "card" / "replay.webm").read_bytes(), "a card shows this one"
    assert '<video src="replay.webm"' in (tmp_path / "card" / "README.md").read_text()


def record_a_game(path: Path, game: str, action: int, steps: int) -> None:
    environment = make_environment(EnvironmentSettings(game=game, record=True), 0)
    environment.reset()
    pictures = environment.pictures()
    for _ in range(steps):
        environment.step(action)
        pictures += environment.pictures()
    write_video(path, pictures, 60)


@needs_browser
def test_a_browser_plays_a_film_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "film.webm"
    record_a_game(path, "breakout", 1, 30)
    seen = play_in_browser(path, tmp_path)
    assert (seen["videoWidth"], seen["videoHeight"]) == (160, 210)
    assert seen["duration"] == pytest.approx(len(frames_of(path)) / 60, abs=0.1)
    assert seen["currentTime"] == pytest.approx(seen["duration"], abs=0.1)


@pytest.mark.slow
def test_ctrl_c_leaves_no_video_and_the_same_command_plays_again_what_it_shows(
    evaluations: Evaluations, tmp_path: Path
) -> None:
    """Two minutes of boxing: episodes that take seconds."""
    # Mutations: leave the videos of the moment; show only episodes that were played after the stop.
    path = save_untrained(tmp_path / "brick.pth", [*BREAKOUT, "--game", "boxing"], specs.ATARI)
    films, card = tmp_path / "films", tmp_path / "card"
    more = ["--game", "boxing", "--evaluation-episodes", "3", "--evaluation-workers", "1"]
    more += ["--record", str(films), "--export", str(card)]
    process = evaluations.start(path, *more)
    process.wait_for("episode 1: ", seconds=300)
    process.press_ctrl_c()
    process.end().succeeded()
    assert [*films.iterdir(), *card.iterdir()] == []
    assert "Playing again what was played without a video: episode " in evaluations.run(path, *more).succeeded()
    assert len([*films.iterdir()]) == 3 and (card / "replay.webm").exists()
    assert len(evaluations.rows("boxing_brick_seed123.csv")) == 3


def test_a_video_is_all_or_nothing(tmp_path: Path) -> None:
    def pictures() -> Iterator[Array]:
        yield np.zeros((21, 16, 3), np.uint8)
        raise KeyError

    path = tmp_path / "short.webm"
    with pytest.raises(KeyError):
        write_video(path, pictures(), 60)
    assert [*tmp_path.iterdir()] == []
    record_a_game(path, "pong", 0, 5)
    assert [*tmp_path.iterdir()] == [path]
    assert len(frames_of(path)) == 21


def test_threads_that_silence_ffmpeg_give_the_standard_error_back() -> None:
    # Mutation: no lock: one thread keeps what the other has put there, and gives that back last.
    def place() -> str:
        return str(Path("/proc/self/fd/2").readlink())

    before, meet = place(), threading.Barrier(2, timeout=60)

    def silence(lasts: float) -> None:
        meet.wait()
        time.sleep(lasts / 2)
        with video._silent_stderr():
            time.sleep(lasts)

    threads = [threading.Thread(target=silence, args=(lasts,)) for lasts in (0.2, 0.3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place() == before


@pytest.mark.slow
def test_a_video_that_does_not_fit_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    # OpenCV does not tell that a write has failed. A limit of a file's size stands for a full disk.
    code = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from rainbow_iqn_apex.monitoring.video import write_video
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
noise = np.random.default_rng(0).integers(0, 255, (50, 42, 32, 3), np.uint8)
write_video(Path(sys.argv[1]), noise, 60)
"""
    codes = []
    for limit in (100_000, 200_000, 10**9):
        folder = tmp_path / str(limit)
        folder.mkdir()
        exit_code, _, errors = run("-c", code, folder / "x.webm", limit)
        codes.append((exit_code, len(list(folder.iterdir()))))
        assert exit_code == 0 or errors.splitlines()[-1].endswith("is not whole; is the disk full?")
    assert codes == [(1, 0), (1, 0), (0, 1)]


def test_pictures_are_kept_on_request_only() -> None:
    for game, shape in (("pong", (210, 160, 3)), ("klax", (250, 160, 3))):
        for repeat in (4, 1):
            kept = make_environment(EnvironmentSettings(game=game, action_repeat=repeat, record=True), 0)
            kept.reset()
            assert [picture.shape for picture in kept.pictures()] == [shape]
            kept.step(0)
            assert [picture.shape for picture in kept.pictures()] == [shape] * repeat
    plain = make_environment(EnvironmentSettings(game="pong"), 0)
    plain.reset()
    plain.step(0)
    assert plain.pictures() == []
