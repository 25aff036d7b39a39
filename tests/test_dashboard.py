"""The dashboard in a real browser: it grows with a run, says what is away, and asks nobody but its own server."""

import signal
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from urllib.error import HTTPError
from urllib.parse import urlsplit

import numpy as np
import pytest
import redis

from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.environment_spec import Part
from rainbow_iqn_apex.monitoring.sinks.sink import RunInfo
from rainbow_iqn_apex.monitoring.sinks.videos import FilmFiles
from rainbow_iqn_apex.monitoring.view import View
from rainbow_iqn_apex.monitoring.view import encode as encode_view
from tests.browser import Browser, needs_browser
from tests.conftest import RedisServer
from tests.dashboard import EVIL, PROBLEM, ask, errors, start
from tests.dashboard import write_run as write_files
from tests.deadline import wait_until
from tests.monitoring.films import film
from tests.monitoring.sinks.moments import moment as a_moment
from tests.processes import Processes
from tests.small import SHORT_CHAIN
from tests.start_script import free_port
from tests.system import LEARNER, System

pytestmark = [pytest.mark.redis, needs_browser]

NEWEST = "Math.max(0, ...(document.getElementById('scores').data ?? []).flatMap(t => t.name === 'mean' ? t.x : []))"
NAMELESS = """[...document.querySelectorAll('input, select, video, [role=img], [role=region], figure h3 + div')]
    .filter(e => !e.closest('[hidden]') && !(e.labels?.length || e.ariaLabel || e.getAttribute('aria-labelledby')))
    .map(e => e.outerHTML.slice(0, 100))"""
# The least contrast of a text with the page, as WCAG 2.2 counts it, with the opacity and the greying of what is stale.
CONTRAST = """(() => {
    document.documentElement.classList.add('stale');
    const numbers = text => text.match(/[0-9.]+/g).map(Number).slice(0, 3);
    const luminance = rgb => rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const paper = numbers(getComputedStyle(document.body).backgroundColor);
    const contrasts = [...document.querySelectorAll('main *')].filter(e => e.offsetHeight && e.innerText).map(e => {
        let rgb = numbers(getComputedStyle(e).color);
        for (let around = e; around; around = around.parentElement) {
            const style = getComputedStyle(around), gray = Number(style.filter.match(/grayscale[(](.*)[)]/)?.[1] ?? 0);
            const mean = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
            rgb = rgb.map(v => v + gray * (mean - v)).map((v, i) => paper[i] + style.opacity * (v - paper[i]));
        }
        const [less, more] = [luminance(rgb), luminance(paper)].sort((a, b) => a - b);
        return (more + 0.05) / (less + 0.05);
    });
    return Math.min(...contrasts);
})()"""


@pytest.mark.slow
def test_the_page_shows_all_of_a_run_in_words_too(browser: Browser, address: str) -> None:
    # Mutations: set `innerHTML` in the place of `textContent`; an opacity of 0.6 for what is stale.
    for width, dark in ((1280, False), (400, True)):
        browser.open(address, width=width, dark=dark)
        browser.wait_for("document.querySelectorAll('#processes tr').length === 3")
        browser.wait_for("document.querySelector('#lag .main-svg') !== null")
        browser.wait_for("document.querySelector('#priorities .main-svg') !== null")
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
        table = "document.querySelector('table').parentElement"
        assert width > 400 or browser.value(f"{table}.scrollWidth <= {table}.clientWidth"), "no column is cut"
        assert browser.value("[...document.querySelectorAll('#shares .xtick')].at(-1).textContent") == "100%"
        assert browser.value("document.title") == f"Pong · {EVIL} – dashboard"
        assert browser.value("document.querySelectorAll('img').length") == 0
        assert browser.value(NAMELESS) == []
        assert browser.value("[...document.querySelectorAll('th')].every(e => ['col', 'row'].includes(e.scope))")
        for landmark in ("header", "main", "h1", "[aria-live=polite]", "#problem[role=status]"):
            assert browser.value(f"document.querySelectorAll('{landmark}').length") == 1, landmark
        alerts = browser.value("document.getElementById('alert-list').innerText")
        assert EVIL in alerts and "actor 0 has not reported" in alerts
        assert "mean 3 of the last 40 episodes" in browser.value("document.getElementById('scores-text').textContent")
        assert browser.value("[...document.querySelectorAll('#metrics figure')].every(e => !e.hidden)")
        headings = browser.value("[...document.querySelectorAll('#metrics h3')].map(e => e.textContent)")
        assert f"train/{EVIL.replace(' ', '_')}" in headings
        assert errors(browser, address) == []
        assert browser.value(CONTRAST) >= 4.5, "what is stale can be read"


@pytest.mark.slow
def test_keys_choose_axis_runs_and_lines(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.wait_for(f"{NEWEST} === 390")
    browser.value("document.querySelector('input[value=steps]').focus()")
    press(browser, "ArrowDown")
    browser.wait_for(f"{NEWEST} === 1560")
    press(browser, "ArrowDown")
    browser.wait_for(f"Math.abs({NEWEST} - 0.65) < 1e-6")
    for folded, box in (("other-runs", "other/pong"), ("lines", "world record")):
        browser.value(f"document.getElementById('{folded}').parentElement.querySelector('summary').focus()")
        press(browser, "Enter")
        browser.value(f"document.querySelector('input[value=\"{box}\"]').focus()")
        press(browser, " ")
    browser.wait_for("document.getElementById('scores-text').textContent.includes('other/pong: mean 12')")
    browser.wait_for("document.getElementById('scores').layout.shapes.some(s => s.name === 'world record 21.0')")
    names = browser.value("document.getElementById('scores').data.map(t => t.name)")
    assert "pong" in names and "mean" not in names
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    assert errors(browser, address) == []


@pytest.mark.slow
def test_films_of_evaluation_episodes_play(
    browser: Browser, redis_port: int, run_name: str, tmp_path: Path, processes: Processes
) -> None:
    # Mutations: leave `media-src` out of the policy; replace a film that somebody watches; load no first picture.
    # Mutation: give the video the film's address, from which the browser reads on as another film is there.
    folder = tmp_path / "results"
    write_files(folder, "pong", 40)
    sink = FilmFiles(RunInfo(run_name, "id", folder, "pong", {}))
    size = {"height": 105, "width": 80}
    sink.take(a_moment(1, films={"best": film(score=21.0, pictures=400, **size), "newest": film(pictures=40, **size)}))
    _, address = start(processes, redis_port, folder, "--run-name", run_name)
    browser.open(address)
    browser.wait_for("document.querySelectorAll('#film-list video').length === 2")
    browser.wait_for("document.querySelectorAll('#film-list figcaption')[1].textContent.length > 9")
    best = browser.value("document.querySelector('#film-list figcaption').textContent")
    assert best.startswith("Best episode: score 21 after 7,000 agent steps, 2 times as fast, 2017-07-")
    video = "document.querySelector('#film-list video')"
    asked = (f"{video}.{name}" for name in ("muted", "loop", "controls", "preload", "ariaLabel"))
    assert browser.value(f"[{', '.join(asked)}]") == [True, True, True, "metadata", "Best episode"]
    browser.wait_for(f"{video}.readyState >= 2 && {video}.paused && {video}.currentTime === 0")  # a first picture
    browser.value(f"{video}.play()")
    browser.wait_for(f"{video}.currentTime > 0.2 && {video}.videoHeight === 210")
    before = browser.value(f"{video}.src")
    sink.take(a_moment(2, films={"best": film(score=22.0, at=1.6e9, pictures=5, **size)}))
    polls = "performance.getEntriesByType('resource').filter(entry => entry.name.includes('/api/')).length"
    browser.wait_for(f"{polls} > {browser.value(polls) + 4}")  # it has asked again
    assert browser.value(f"{video}.src") == before, "somebody watches it"
    browser.value(f"{video}.pause()")
    browser.wait_for(f"{video}.src !== {before!r}")
    assert "score 22 " in browser.value("document.querySelector('#film-list figcaption').textContent")
    assert browser.value(NAMELESS) == []
    assert errors(browser, address) == []


def quantiles() -> View:
    curves = tuple(tuple(float(action + place) for place in range(4)) for action in range(18))
    frame = np.zeros((84, 84), np.uint8)
    frame[2, 3] = 200
    return View(0.0, 7, 3, frame, "quantiles", tuple(map(fmean, curves)), None, (0.1, 0.3, 0.6, 0.9), curves)


class Player(threading.Thread):
    """Writes views to an actor's key, while somebody listens to the channel of that name."""

    def __init__(self, port: int, channel: str, view: View | None = None) -> None:
        super().__init__(name="player")
        self.view = view or quantiles()
        self._client = redis.Redis(port=port)
        self._channel = channel
        self._done = threading.Event()
        self.listeners = 0

    def run(self) -> None:
        while not self._done.wait(0.2):
            self.listeners = self._client.pubsub_numsub(self._channel)[0][1]
            if self.listeners:
                self._client.set(self._channel, encode_view(replace(self.view, at=time.time())), ex=5)
        self._client.close()

    def close(self) -> None:
        self._done.set()
        self.join()


@pytest.mark.slow
def test_what_an_actor_sees_is_drawn_while_somebody_looks(
    browser: Browser, address: str, redis_port: int, run_name: str
) -> None:
    # Mutation: ask for views of an actor that nobody has in view.
    player = Player(redis_port, Keys(run_name, "id").view(1))
    player.start()
    with closing(player):
        browser.open(address, height=300)
        browser.wait_for("document.querySelectorAll('#watched option').length === 2")
        browser.value("document.getElementById('watched').value = 'actor 1'")
        assert player.listeners == 0, "it is below the window"
        browser.value("document.getElementById('view').scrollIntoView()")
        browser.wait_for("document.querySelector('#thoughts .main-svg') !== null")
        pixel = "[...document.getElementById('frame').getContext('2d').getImageData(3, 2, 1, 1).data]"
        assert browser.value(pixel) == [200, 200, 200, 255]
        text = browser.value("document.getElementById('thoughts-text').textContent")
        assert "best is down left fire, mean 18.5" in text and "at its step 7, with weights 3" in text
        assert browser.value("document.getElementById('action-list').children.length") == 18
        assert browser.value("document.getElementById('frame').ariaLabel").startswith("Frame at its step 7")
        browser.value("document.getElementById('watch').focus()")
        press(browser, " ")
        wait_until(lambda: player.listeners == 0, "nobody to listen any more")
        assert errors(browser, address) == []


@pytest.mark.slow
def test_a_policy_over_several_actions_is_drawn_beside_the_numbers_that_it_sees(
    browser: Browser, address: str, redis_port: int, run_name: str
) -> None:
    # Mutation: take all probabilities for those of one choice.
    parts = (Part("goal", 0, 2), Part(EVIL, 2, 3))
    fractions, ranges = (0.05, 0.25, 0.5, 0.75, 0.95), ((-1.0, -0.6, -0.2, 0.3, 1.0), (0.1, 0.2, 0.4, 0.5, 0.6))
    seen = View(0.0, 7, 3, np.array([1.5, -2, 0.25], np.float32), parts=parts)
    box = replace(seen, kind="intervals", actions=(-0.2, 0.4), value=2.5, places=fractions, curves=ranges)
    choices = replace(seen, kind="choices", actions=(0.1, 0.9, 0.2, 0.5, 0.3), places=(2.0, 3.0), parts=())
    player = Player(redis_port, Keys(run_name, "id").view(0), box)
    player.start()
    text, bars = "document.getElementById('thoughts-text').textContent", "document.getElementById('thoughts').data"
    items = "[...document.querySelectorAll('#{} > *')].map(e => [...e.children].map(c => c.textContent).join(': '))"
    with closing(player):
        for width, dark in ((1280, False), (400, True)):
            player.view = box
            browser.open(address, width=width, dark=dark)
            browser.wait_for("document.querySelectorAll('#watched option').length === 2")
            browser.value("document.getElementById('view').scrollIntoView()")
            browser.wait_for(f"{text}.includes('takes without exploration: -0.2, 0.4; value of the state 2.5')")
            assert browser.value(items.format("numbers")) == ["goal: 1.5, -2", f"{EVIL}: 0.25"]
            assert browser.value(f"{bars}[0].y") == [-1, 1, None, 0.1, 0.6, None]
            player.view = choices
            browser.wait_for(f"{text}.includes('the likeliest: 1 (90 %), 1 (50 %)')")
            assert browser.value(f"{bars}[0].x") == [0, 1, 3, 4, 5], "a gap parts the choices"
            assert browser.value(items.format("numbers")) == ["0: 1.5", "1: -2", "2: 0.25"]
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            assert browser.value(NAMELESS) == []
            assert errors(browser, address) == []


def test_an_evaluation_actor_is_watched_as_an_actor_is(address: str, redis_port: int, run_name: str) -> None:
    # Mutation: listen to the actor of the same number.
    player = Player(redis_port, Keys(run_name, "id", evaluation=True).view(1))
    player.start()
    with closing(player):
        wait_until(lambda: "view" in ask(address, "api/view?who=evaluation%20actor%201"), "a view")
        assert "view" not in ask(address, "api/view?who=actor%201")
    with pytest.raises(HTTPError, match="400"):
        ask(address, "api/view?who=learner")


def press(browser: Browser, key: str) -> None:
    text = {"Enter": "\r", " ": " "}.get(key, "")
    for kind in ("keyDown", "keyUp"):
        code = {"Enter": 13, " ": 32, "ArrowDown": 40}[key]
        more = {"text": text} if text and kind == "keyDown" else {}
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)


@pytest.mark.slow
def test_curves_grow_through_restarts_of_everybody(
    browser: Browser, own_server: RedisServer, run_name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    options = [*SHORT_CHAIN, *"--T-max 10000000 --evaluation-interval 2000".split()]
    with System(own_server.port, run_name, folder, options) as system, Processes() as processes:
        dashboard, address = start(processes, own_server.port, folder, "--port", str(free_port()))

        def wait_for_more() -> None:
            before = browser.value(NEWEST)
            browser.wait_for(f"{NEWEST} > {before}")

        browser.open(address)
        for _ in range(2):
            wait_for_more()
        browser.wait_for("document.querySelector('#speed .main-svg') !== null")
        system.wait_for(LEARNER, "T = 3000")
        system.restart(LEARNER, signal.SIGKILL)
        browser.wait_for("document.getElementById('events').innerText.includes('was started again')")
        wait_for_more()
        own_server.stop(signal.SIGKILL)
        browser.wait_for(f"{PROBLEM}.startsWith('No news of the run: ')")
        own_server.start()
        browser.wait_for(f"{PROBLEM} === ''")
        wait_for_more()
        assert errors(browser, address) == []
        dashboard.terminate()
        dashboard.finish()
        browser.wait_for(f"{PROBLEM}.includes('is dashboard.py still running?')")
        start(processes, own_server.port, folder, "--port", str(urlsplit(address).port))
        browser.wait_for(f"{PROBLEM} === ''")
        wait_for_more()
