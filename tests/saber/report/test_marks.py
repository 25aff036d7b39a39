"""Scores at the marks, against a slow reference, and at the edges of their definition."""

import random
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import MARKS
from rainbow_iqn_apex.saber.report.inputs import Run, read_inputs
from rainbow_iqn_apex.saber.report.results import curve, curve_frames, score_at, score_now
from tests.saber.report.logs import write_log, write_settings

MARK = MARKS[0]
STEPS = MARK // 4  # agent steps


def run_of(folder: Path, ends: list[int], scores: list[float], reached: int | None = None) -> Run:
    path = write_log(folder, "pong", ends, scores)
    if reached is not None:
        write_settings(path, reached, {})
    (run,) = read_inputs([path]).runs
    return run


@pytest.mark.parametrize("seed", range(5))
def test_the_slow_reference_agrees(tmp_path: Path, seed: int) -> None:
    # Mutations: side="left"; 99 or 101 episodes; the file's order instead of that of T_actors.
    rng = random.Random(seed)
    ends = [rng.randrange(60 * STEPS // 10) for _ in range(700)]  # in no order
    scores = [float(rng.randrange(1000)) for _ in ends]
    run = run_of(tmp_path, ends, scores)
    for mark in MARKS:
        before = [
            score for end, score in sorted(zip(ends, scores, strict=True), key=lambda pair: pair[0]) if 4 * end <= mark
        ]
        if max(ends) * 4 < mark:
            assert score_at(run, mark) is None
        else:
            mean = fmean(before[-100:])
            assert score_at(run, mark) == pytest.approx([mean / 4, mean / 2, mean])


def test_an_episode_counts_where_it_ends(tmp_path: Path) -> None:
    ends = [*range(100, 200), STEPS, STEPS + 1]
    run = run_of(tmp_path, ends, [0.0] * 100 + [100.0, 10_000.0])
    assert score_at(run, MARK) == [0.25, 0.5, 1.0]  # with the one that ends at the mark, without the one after


def test_a_run_short_of_the_mark_has_a_gap(tmp_path: Path) -> None:
    ends = list(range(STEPS - 100, STEPS))
    assert score_at(run_of(tmp_path / "log alone", ends, [1.0] * 100), MARK) is None
    assert score_at(run_of(tmp_path / "short", ends, [1.0] * 100, STEPS - 1), MARK) is None
    finished = run_of(tmp_path / "finished", ends, [1.0] * 100, STEPS)  # no episode needs to end where a run does
    assert score_at(finished, MARK) == [0.25, 0.5, 1.0]
    assert score_at(finished, MARKS[1]) is None


def test_fewer_than_100_episodes_are_a_gap(tmp_path: Path) -> None:
    ends = [*range(99), STEPS + 1]
    assert score_at(run_of(tmp_path, ends, [1.0] * 100), MARK) is None


def test_a_curve_is_the_mean_of_the_last_100(tmp_path: Path) -> None:
    rng = random.Random(0)
    ends = sorted(rng.sample(range(1, 10_000), 250))
    scores = [rng.uniform(-5, 5) for _ in ends]
    run = run_of(tmp_path, ends, scores)
    frames = curve_frames([run])
    assert frames[-1] == 4 * ends[-1] and len(frames) > 100
    for frame, value in zip(frames, curve(run, frames), strict=True):
        before = [score for end, score in zip(ends, scores, strict=True) if 4 * end <= frame][-100:]
        assert value == pytest.approx(fmean(before)) if before else np.isnan(value)
    assert np.isnan(curve(run, np.array([4 * ends[-1] + 1]))[0])


def test_a_run_without_a_score_at_a_mark_has_one_now(tmp_path: Path) -> None:
    # Mutations: none beyond the first mark; all episodes in the place of the last 100.
    few = score_now(run_of(tmp_path / "few", [10, 20], [1.0, 3.0], 50))
    assert few and (few.frames, few.episodes, few.scores) == (200, 2, [0.5, 1.0, 2.0])
    many = score_now(run_of(tmp_path / "many", list(range(1, 151)), [900.0] * 50 + [4.0] * 100))
    assert many and (many.frames, many.episodes, many.scores) == (600, 100, [1.0, 2.0, 4.0])
    beyond = score_now(run_of(tmp_path / "long episodes", [10, 20], [1.0, 3.0], STEPS))
    assert beyond and (beyond.frames, beyond.scores) == (MARK, [0.5, 1.0, 2.0])
    ended = list(range(100))
    assert score_now(run_of(tmp_path / "at the mark", ended, [1.0] * 100, STEPS)) is None
    later = run_of(tmp_path / "at a later mark", [n + STEPS for n in ended], [1.0] * 100, 5 * STEPS)
    assert score_at(later, MARK) is None and score_now(later) is None
