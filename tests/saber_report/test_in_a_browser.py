"""The page in a real browser: every plot draws, nothing is wrong on the console, nothing asks the network."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from saber.report.program import write_report
from saber.reward_plot import write_reward_plot
from saber.training_log import read_records
from tests.browser import Browser, needs_browser
from tests.saber_report.logs import ATARI57, write_run

pytestmark = [needs_browser, pytest.mark.slow]

# Drawn marks of each plot by its id: paths of lines with a length, bars and points.
MARKS = """Object.fromEntries(Object.keys(figures).map(id => [id, [
  ...document.getElementById(id).querySelectorAll(".js-line, .bars path, .points path")
].filter(path => path.getTotalLength() > 0).length]))"""
DRAWN = "document.querySelectorAll('.js-plotly-plot .main-svg').length >= Object.keys(figures).length"
# Elements that stick out of the window, but for those in a table that scrolls by itself.
WIDE = """[...document.body.querySelectorAll("*")].filter(e => !e.closest(".table") && e.offsetParent
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).length"""
# Plots that are higher than their place, and so would cover what follows.
HIGH = """Object.keys(figures).map(id => document.getElementById(id))
  .filter(e => e.querySelector(".main-svg").clientHeight > e.clientHeight + 1).length"""
# Legends that reach into their plot, or out of their page.
IN_THE_WAY = """[...document.querySelectorAll(".js-plotly-plot")].filter(e => e.querySelector(".legend")).filter(e => {
  const box = e.querySelector(".legend").getBoundingClientRect(), top = e.getBoundingClientRect().top;
  const texts = [...e.querySelectorAll(".legendtext")].map(text => text.getBoundingClientRect().right);
  return box.bottom - top > e._fullLayout._size.t || Math.max(...texts) > document.documentElement.clientWidth;
}).map(e => e.id)"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def check_page(browser: Browser, path: Path, plots: int, *, width: int, dark: bool) -> None:
    browser.open(path, width=width, height=900, dark=dark)
    browser.value("Object.keys(figures).forEach(draw)")
    browser.wait_for(DRAWN)
    marks = browser.value(MARKS)
    assert len(marks) == plots and min(marks.values()) > 0, marks
    assert browser.value(WIDE) == browser.value(HIGH) == 0
    assert browser.value(IN_THE_WAY) == []
    assert browser.value(BACKGROUND) == ("rgb(21, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert browser.errors == []


def test_all_games_and_three_seeds(browser: Browser, tmp_path: Path) -> None:
    for number, game in enumerate(ATARI57):
        for seed in (1, 2, 3):
            write_run(tmp_path / str(seed), game, seed, 2_500_000, level=0.1 * number)
    write_report([tmp_path], tmp_path)
    check_page(browser, tmp_path / "saber.html", 57 + 4, width=1280, dark=False)
    check_page(browser, tmp_path / "saber.html", 57 + 4, width=400, dark=True)


def test_a_few_games_of_which_not_all_is_known(browser: Browser, tmp_path: Path) -> None:
    for seed in (1, 2):
        for game in ATARI57[:3]:
            write_run(tmp_path / str(seed), game, seed, 2_500_000)
    (tmp_path / "1" / f"{ATARI57[0]}.json").unlink()
    write_report([tmp_path], tmp_path)
    for width in (400, 1280):
        check_page(browser, tmp_path / "saber.html", 3 + 4, width=width, dark=False)


def test_one_short_run(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 50_000, episodes=5)
    write_report([tmp_path], tmp_path)
    check_page(browser, tmp_path / "saber.html", 1, width=400, dark=False)
    check_page(browser, tmp_path / "saber.html", 1, width=1280, dark=True)


def test_the_plot_of_a_training_run(browser: Browser, tmp_path: Path) -> None:
    log = write_run(tmp_path, "pong", 1, 50_000)
    write_reward_plot(read_records(log), tmp_path / "Reward_pong.html", "pong")
    check_page(browser, tmp_path / "Reward_pong.html", 1, width=400, dark=False)
    check_page(browser, tmp_path / "Reward_pong.html", 1, width=1280, dark=True)


def test_plots_draw_as_they_come_into_view(browser: Browser, tmp_path: Path) -> None:
    for game in ATARI57[:30]:
        write_run(tmp_path, game, 1, 50_000)
    write_report([tmp_path], tmp_path)
    browser.open(tmp_path / "saber.html", width=400, height=600)
    browser.wait_for("drawn.has('curve-0')")
    assert not browser.value("drawn.has('curve-29')")
    browser.value("document.getElementById('curve-29').scrollIntoView()")
    browser.wait_for("drawn.has('curve-29')")


def test_errors_of_a_page_are_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('told'); missing()</script><script src='http://127.0.0.1:9/x.js'></script>")
    browser.open(page, width=400, height=600)
    text = " ".join(browser.errors)
    assert "told" in text and "missing is not defined" in text and "127.0.0.1:9" in text
