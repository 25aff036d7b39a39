"""The page in a real browser: every plot draws, nothing is wrong on the console, nothing asks the network."""

import base64
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.report.inputs import Label
from rainbow_iqn_apex.saber.report.program import write_report
from rainbow_iqn_apex.saber.results.figure import AGENTS
from rainbow_iqn_apex.saber.results.task import Task
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.browser import Browser, needs_browser
from tests.saber.report.logs import ATARI57, write_run
from tests.saber.results.records import page_of

pytestmark = [needs_browser, pytest.mark.slow]

# Drawn marks of each plot by its id: paths of lines with a length, bars and points.
MARKS = """Object.fromEntries(Object.keys(figures).map(id => [id, [
  ...document.getElementById(id).querySelectorAll(".js-line, .bars path, .points path")
].filter(path => path.getTotalLength() > 0).length]))"""
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
# Right edges [pixels] of what would be cut off on paper: tables, cells, plots and texts.
BEYOND_PAPER = """[...document.querySelectorAll("main *, header *")].filter(e => !e.closest(".js-plotly-plot"))
  .concat([...document.querySelectorAll(".main-svg")])
  .filter(e => e.getBoundingClientRect().right > document.body.getBoundingClientRect().right + 1)
  .map(e => e.outerHTML.slice(0, 200))"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


def check_page(browser: Browser, path: Path, plots: int, *, width: int, dark: bool) -> None:
    browser.open(path, width=width, height=900, dark=dark)
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


def test_long_names_fit_the_page(browser: Browser, tmp_path: Path) -> None:
    # Mutations: names that are not broken, in legends, above the plots and in tables.
    for seed in (1, 2):
        write_run(tmp_path / "a" / str(seed), "pong", seed, 2_500_000, an_option_of_many_words=1, lr_IQN=1e-4)
        write_run(tmp_path / "b" / str(seed), "pong", seed, 2_500_000, an_option_of_many_words=2, lr_IQN=2e-4)
        write_run(tmp_path / "c" / str(seed), "pong", seed, 2_500_000)
    write_report([tmp_path], tmp_path, [Label("large_batch_" * 5, tmp_path / "c")])
    for width in (400, 1280):
        check_page(browser, tmp_path / "saber.html", 1 + 4, width=width, dark=False)
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert browser.value(BEYOND_PAPER) == []


def test_one_short_run(browser: Browser, tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 50_000, episodes=5)
    write_report([tmp_path], tmp_path)
    check_page(browser, tmp_path / "saber.html", 1, width=400, dark=False)
    check_page(browser, tmp_path / "saber.html", 1, width=1280, dark=True)


def test_the_plot_of_a_training_run(browser: Browser, tmp_path: Path) -> None:
    log = write_run(tmp_path, "pong", 1, 50_000)
    (tmp_path / "Reward_pong.html").write_text(page_of(read_records(log), Task("pong")))
    check_page(browser, tmp_path / "Reward_pong.html", 1, width=400, dark=False)
    check_page(browser, tmp_path / "Reward_pong.html", 1, width=1280, dark=True)


def test_all_plots_are_drawn_before_the_page_counts_as_loaded(browser: Browser, tmp_path: Path) -> None:
    # Mutation: draw what comes into view; a picture of the whole page would lack the others.
    for game in ATARI57[:30]:
        write_run(tmp_path, game, 1, 50_000)
    write_report([tmp_path], tmp_path)
    noted = f"addEventListener('load', () => {{ atLoad = {MARKS}; }})"
    browser.open(tmp_path / "saber.html", width=400, height=600, first=f"let atLoad; {noted}")
    marks = browser.value("atLoad")
    assert len(marks) == 30 and min(marks.values()) > 0


@pytest.fixture(scope="module")
def two_agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two agents with all games at all marks."""
    folder = tmp_path_factory.mktemp("two agents")
    for number, game in enumerate(ATARI57):
        write_run(folder / "a", game, 1, 50_000_000, 2400, level=0.1 * number, agent="rainbow_iqn", preset="paper")
        write_run(folder / "b", game, 1, 50_000_000, 2400, level=0.1 * number, agent="rainbow", preset="paper")
    write_report([folder], folder)
    return folder / "saber.html"


@pytest.mark.parametrize("dark", [False, True])
def test_on_paper_nothing_is_cut_off_and_all_is_light(browser: Browser, two_agents: Path, *, dark: bool) -> None:
    # Mutations: no `beforeprint`; `overflow-x: auto` on paper; the plots in the width of the screen.
    browser.open(two_agents, width=1280, dark=dark)
    on_screen = browser.value(MARKS)
    browser.value("dispatchEvent(new Event('beforeprint'))")
    assert browser.value("document.body.clientWidth") == 690, "what A4 and Letter have between their margins"
    assert browser.value(BEYOND_PAPER) == []
    assert browser.value(BACKGROUND) == "rgb(255, 255, 255)"
    assert browser.value("document.querySelector('#profile-human .main-svg').style.background") == "rgb(255, 255, 255)"
    assert browser.value("figures['curve-0'].data.at(-1).line.color") == AGENTS[1].light
    assert browser.value("[...document.querySelectorAll('.plot')].filter(e => e.clientHeight > 960).length") == 0
    assert browser.value(HIGH) == 0
    assert browser.value("document.querySelectorAll('details:not([open])').length") == 0
    assert min(browser.value(MARKS).values()) > 0
    pdf = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert pdf.startswith(b"%PDF")
    browser.value("dispatchEvent(new Event('afterprint'))")
    assert browser.value(MARKS) == on_screen and browser.value(WIDE) == 0
    assert browser.value(BACKGROUND) == ("rgb(21, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert browser.value("document.querySelectorAll('details[open]').length") == 0
    assert browser.errors == []


@pytest.mark.parametrize("width", [1280, 400])
def test_the_columns_of_200_m_frames_are_seen_first(browser: Browser, two_agents: Path, width: int) -> None:
    # Mutation: the earliest mark first.
    browser.open(two_agents, width=width)
    assert browser.value(WIDE) == 0
    browser.value("right = e => Math.round(e.getBoundingClientRect().right)")
    heads = """[...document.querySelectorAll(".table")].map(
      table => [...table.querySelectorAll("thead th")].map(e => [e.textContent, right(e)]))"""
    games = next(head for head in browser.value(heads) if head[0][0] == "game" and "200 M frames" in dict(head))
    assert [text for text, _ in games[1:5]] == [f"{mark} M frames" for mark in (200, 100, 50, 10)]
    seen = [text for text, right in games[5:] if right <= width]
    assert seen[0] == "unlimited" and len(seen) >= 2
    if width == 1280:
        assert max(right for _, right in games) <= width, "and all others without scrolling"


def test_errors_of_a_page_are_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<script>console.error('told'); missing()</script><script src='http://127.0.0.1:9/x.js'></script>")
    browser.open(page, width=400, height=600)
    text = " ".join(browser.errors)
    assert "told" in text and "missing is not defined" in text and "127.0.0.1:9" in text
