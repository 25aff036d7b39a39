"""Films: what is written is read again, and what nobody can have written is refused without harm."""

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.monitoring import video
from rainbow_iqn_apex.monitoring.video import (
    FILM_BYTES,
    HEADER_BYTES,
    MAX_HEIGHT,
    MAX_WIDTH,
    VIDEO_SIZE,
    Film,
    FilmError,
    TimeLapse,
    decode_film,
    decode_info,
    encode_film,
    small_size,
)
from tests.monitoring.films import INFO, film
from tests.refusals.records import film_of
from tests.videos import frames_of


def test_a_film_is_read_as_it_was_written() -> None:
    # Mutation: the changes between pictures in a type that does not wrap around.
    written = film()
    read = decode_film(encode_film(written))
    assert read.info == written.info
    assert read.pictures.dtype == np.uint8 and np.array_equal(read.pictures, written.pictures)
    assert decode_info(encode_film(written)[:HEADER_BYTES]) == written.info


def noise(pictures: int) -> Film:
    """Return a film that cannot be compressed, of the largest pictures."""
    moving = film(pictures=pictures, height=MAX_HEIGHT, width=MAX_WIDTH)
    return replace(moving, pictures=np.random.default_rng(1).integers(0, 256, moving.pictures.shape, np.uint8))


def test_a_film_that_would_be_too_large_gets_fewer_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "FILM_BYTES", most := 1 << 18)
    large = noise(6)
    data = encode_film(large)
    assert most / 2 < len(data) <= most
    read = decode_film(data)
    assert (read.info.pictures, read.info.stride) == (3, 2 * INFO.stride)
    assert np.array_equal(read.pictures, large.pictures[::2])


def test_a_film_is_thinned_evenly() -> None:
    whole = film(pictures=10)
    assert whole.thinned(10) is whole
    for most in range(1, 10):
        thin = whole.thinned(most)
        every = thin.info.stride // whole.info.stride
        assert len(thin.pictures) == thin.info.pictures <= most
        assert np.array_equal(thin.pictures, whole.pictures[::every])


# --- hostile bytes ---


def test_a_bomb_does_not_go_off() -> None:
    # Mutation: decode with the wire's own limit.
    bomb = film_of(np.zeros((120, 1 << 20), np.uint8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(bomb) < FILM_BYTES
    with pytest.raises(FilmError):
        decode_film(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


# --- pictures of an episode ---


def picture(number: int, height: int = 6, width: int = 8) -> Array:
    return np.full((height, width, 3), number % 251, np.uint8)


def add(lapse: TimeLapse, *pictures: Array) -> None:
    lapse.add(lambda: pictures)


@pytest.mark.parametrize("most", [1, 2, 5, 8])
def test_an_episode_of_any_length_gives_evenly_spaced_pictures(most: int) -> None:
    # Mutation: go on with the old stride after pictures were dropped.
    lapse = TimeLapse(most)
    for step in range(200):
        add(lapse, picture(step))
        pictures = lapse.pictures()
        shown = pictures[:, 0, 0, 0].tolist()
        assert shown == list(range(0, step + 1, lapse.stride)), "from the first on, and up to the newest"
        assert len(shown) <= most and (lapse.stride == 1 or 2 * len(shown) >= most)


def test_what_blinks_is_seen() -> None:
    # Mutations: the last picture of a step alone; two pictures in one where nothing blinks.
    for blinks, shown in ((True, [7, 2]), (False, [3, 2])):
        lapse = TimeLapse(blinks=blinks)
        add(lapse, picture(9), picture(7), picture(3))
        add(lapse, picture(2))
        add(lapse)  # of a step that ended the episode before anything was drawn
        assert lapse.pictures()[:, 0, 0, 0].tolist() == shown and lapse.per_step == 3


@pytest.mark.parametrize(
    ("size", "small"),
    [
        ((210, 160), (105, 80)),
        ((250, 160), (125, 80)),
        ((400, 600), (100, 150)),
        ((3, 5000), (1, 156)),
        ((5, 7), (5, 7)),
    ],
)
def test_pictures_are_halved_until_they_fit(size: tuple[int, int], small: tuple[int, int]) -> None:
    assert small_size(*size) == small
    lapse = TimeLapse()
    add(lapse, np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8))
    add(lapse, picture(1, 20, 30))
    assert lapse.pictures().shape == (2, *small, 3)
    shown = film(pictures=2, height=small[0], width=small[1])
    decode_film(encode_film(replace(shown, pictures=lapse.pictures())))


def test_only_due_pictures_are_drawn() -> None:
    # Mutation: draw at every step, which takes longer than many a step itself.
    lapse, drawn = TimeLapse(4), []

    def draw() -> list[Array]:
        drawn.append(lapse.stride)
        return [picture(0)]

    for _ in range(100):
        lapse.add(draw)
    assert len(drawn) < 20 and lapse.stride == 32


def test_a_video_keeps_to_its_size_and_is_faster_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: a video of any size; the speed of before; pictures in the size of a film.
    monkeypatch.setattr(video, "VIDEO_BYTES", 100_000)
    noise = np.random.default_rng(0).integers(0, 255, (50, 250, 160, 3), np.uint8)
    lapse, path = TimeLapse(largest=VIDEO_SIZE), tmp_path / "x.webm"
    for one in noise:
        add(lapse, one)
    lapse.write(path, 15.0)
    assert path.stat().st_size <= 100_000 and [*tmp_path.iterdir()] == [path]
    frames = frames_of(path, 15)
    assert lapse.stride > 1 and len(frames) == -(-50 // lapse.stride)
    assert {frame.shape for frame in frames} == {(250, 160, 3)}
